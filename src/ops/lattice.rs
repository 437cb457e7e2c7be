//! `v/ops/lattice/*`: read, write and list the owner's tree.

use crate::domain::lattice::path::MAX_SEGMENTS;
use crate::domain::lattice::value::below;
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::READ_BYTES;
use crate::domain::patch::Selector;
use crate::domain::render::{RenderOptions, render};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::tree::{shared, value_at, virtuals};
use crate::venue::workspace::{TreePage, WriteOp, page};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Covia's names of these operations.
pub const ALIASES: [(&str, &str); 10] = [
    ("v/ops/covia/read", "v/ops/lattice/read"),
    ("v/ops/covia/write", "v/ops/lattice/write"),
    ("v/ops/covia/delete", "v/ops/lattice/delete"),
    ("v/ops/covia/append", "v/ops/lattice/append"),
    ("v/ops/covia/list", "v/ops/lattice/list"),
    ("v/ops/covia/slice", "v/ops/lattice/slice"),
    ("v/ops/covia/inspect", "v/ops/lattice/inspect"),
    ("v/ops/covia/copy", "v/ops/lattice/copy"),
    ("v/ops/covia/count", "v/ops/lattice/count"),
    ("v/ops/covia/aggregate", "v/ops/lattice/aggregate"),
];

/// Paths of one call.
const PATHS: usize = 100;

#[derive(Debug, Clone, Copy)]
enum Verb {
    Read,
    Write,
    Delete,
    Append,
    List,
    Slice,
    Inspect,
    Copy,
    Count,
    Aggregate,
}

struct Lattice(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [
        Verb::Read,
        Verb::Write,
        Verb::Delete,
        Verb::Append,
        Verb::List,
        Verb::Slice,
        Verb::Inspect,
        Verb::Copy,
        Verb::Count,
        Verb::Aggregate,
    ];
    verbs.into_iter().map(|verb| Arc::new(Lattice(verb)) as Arc<dyn Operation>).collect()
}

pub(super) fn schema(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

pub(super) fn path_schema() -> Value {
    json!({
        "description": "lattice path, e.g. w/records/123, or an array of keys",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "integer"]}}]
    })
}

impl Verb {
    fn spec(self) -> Spec {
        let path = path_schema;
        let count = || json!({"type": "integer", "minimum": 0});
        let depth = || json!({"type": "integer", "minimum": 1, "maximum": MAX_SEGMENTS});
        let (name, description, input) = match self {
            Self::Read => (
                "v/ops/lattice/read",
                "Read the value at a path, or (`paths`) the values at several. A value over maxSize bytes is not returned but its size.",
                schema(
                    &json!({"path": path(), "paths": {"type": "array", "items": path(), "maxItems": PATHS}, "maxSize": count()}),
                    &[],
                ),
            ),
            Self::Write => (
                "v/ops/lattice/write",
                "Write a value at a path; intermediate maps are created, siblings stay. `expect` makes it compare-and-set on the version.",
                schema(&json!({"path": path(), "value": {}, "expect": count()}), &["path", "value"]),
            ),
            Self::Delete => (
                "v/ops/lattice/delete",
                "Delete what is at a path; nothing there is no error.",
                schema(&json!({"path": path()}), &["path"]),
            ),
            Self::Append => (
                "v/ops/lattice/append",
                "Append a value to the array at a path, creating it when absent.",
                schema(&json!({"path": path(), "value": {}}), &["path", "value"]),
            ),
            Self::List => (
                "v/ops/lattice/list",
                "List the keys of the map (or the size of the array) at a path, page by page.",
                schema(&json!({"path": path(), "limit": count(), "offset": count()}), &[]),
            ),
            Self::Slice => (
                "v/ops/lattice/slice",
                "Read a page of the elements of an array, or of the entries of a map.",
                schema(&json!({"path": path(), "offset": count(), "limit": count()}), &["path"]),
            ),
            Self::Inspect => (
                "v/ops/lattice/inspect",
                "Render one or more values as JSON5 within a byte budget: a summary of what is large.",
                schema(
                    &json!({"path": path(), "paths": {"type": "array", "items": path(), "maxItems": PATHS}, "budget": count(), "compact": {"type": "boolean"}}),
                    &[],
                ),
            ),
            Self::Copy => (
                "v/ops/lattice/copy",
                "Copy the value of one path to another.",
                schema(&json!({"from": path(), "to": path()}), &["from", "to"]),
            ),
            Self::Count => (
                "v/ops/lattice/count",
                "Count the entries of the map or array at a path, or what lies `depth` steps below it.",
                schema(&json!({"path": path(), "depth": depth()}), &["path"]),
            ),
            Self::Aggregate => (
                "v/ops/lattice/aggregate",
                "Count the entries `depth` steps below a path (1 when absent), grouped by one of their fields (`state`, or a path such as customer/country).",
                schema(&json!({"path": path(), "groupBy": {"type": "string"}, "depth": depth()}), &["path"]),
            ),
        };
        Spec { path: name, description, input, effect: self.effect() }
    }

    const fn effect(self) -> Effect {
        match self {
            Self::Read | Self::List | Self::Slice | Self::Inspect | Self::Count | Self::Aggregate => Effect::Read,
            Self::Write | Self::Delete | Self::Append | Self::Copy => Effect::Buffered,
        }
    }
}

pub(super) fn path_of(arguments: &Value, key: &str) -> Result<Path, OpError> {
    Path::from_json(&arguments[key]).map_err(|e| OpError::Invalid(e.to_string()))
}

pub(super) fn number(arguments: &Value, key: &str, default: usize) -> usize {
    arguments[key].as_u64().map_or(default, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

pub(super) fn need(ability: &'static str, path: &Path) -> Need {
    // Who may read the tree doesn't see the names of secrets by it.
    let ability = if path.namespace() == Namespace::Secrets { "secret/list" } else { ability };
    Need { ability, resource: path.into() }
}

#[async_trait]
impl Operation for Lattice {
    fn spec(&self) -> Spec {
        self.0.spec()
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let path = || path_of(arguments, "path");
        Ok(match self.0 {
            Verb::List if arguments["path"].is_null() => Vec::new(),
            Verb::Slice | Verb::Count | Verb::Aggregate | Verb::List => vec![need("crud/read", &path()?)],
            Verb::Read | Verb::Inspect => {
                let paths = several(arguments)?;
                paths.iter().map(|path| need("crud/read", path)).collect()
            }
            Verb::Write => vec![need("crud/write", &path()?)],
            Verb::Append => vec![need("crud/append", &path()?)],
            Verb::Delete => vec![need("crud/delete", &path()?)],
            Verb::Copy => {
                vec![need("crud/read", &path_of(arguments, "from")?), need("crud/write", &path_of(arguments, "to")?)]
            }
        })
    }

    async fn invoke(&self, call: &Invocation<'_>, mut arguments: Value) -> Result<Output, OpError> {
        let value = match self.0 {
            Verb::Read => read(call, &arguments).await?,
            Verb::List => list(call, &arguments).await?,
            Verb::Slice => slice(call, &arguments).await?,
            Verb::Inspect => inspect(call, &arguments).await?,
            Verb::Count => count(call, &arguments).await?,
            Verb::Aggregate => aggregate(call, &arguments).await?,
            Verb::Write => {
                let path = path_of(&arguments, "path")?;
                let expect = arguments["expect"].as_u64();
                change(call, WriteOp::Write { path, value: arguments["value"].take(), expect }).await?
            }
            Verb::Append => {
                let path = path_of(&arguments, "path")?;
                change(call, WriteOp::Append { path, value: arguments["value"].take() }).await?
            }
            Verb::Delete => change(call, WriteOp::Delete { path: path_of(&arguments, "path")? }).await?,
            Verb::Copy => {
                let (from, to) = (path_of(&arguments, "from")?, path_of(&arguments, "to")?);
                change(call, WriteOp::Copy { from, to }).await?
            }
        };
        Ok(value.into())
    }
}

/// A page of what lies under `path`; from the tree no more than that is read.
async fn page_at(
    call: &Invocation<'_>,
    path: &Path,
    offset: usize,
    limit: usize,
    values: bool,
) -> Result<Option<TreePage>, OpError> {
    let found = if path.namespace().is_writable() {
        call.workspace.page(path, offset, limit, values).await?
    } else {
        virtuals::get(call, path).await?.map(|value| page(value, offset, limit))
    };
    call.reads.note(path, None, found.is_some());
    Ok(found)
}

/// Changes the tree: in a turn with its commit, else at once.
pub(super) async fn change(call: &Invocation<'_>, op: WriteOp) -> Result<Value, OpError> {
    let path = op.target();
    if path.namespace() == Namespace::Venue && path.segments().first().is_some_and(|first| first == shared::CONTEXT) {
        return shared::change(call, op).await;
    }
    if !path.namespace().is_writable() {
        return Err(OpError::Invalid(format!("`{path}` can't be written: the namespace is kept by the venue")));
    }
    if let WriteOp::Copy { from, to } = &op
        && !from.namespace().is_writable()
    {
        return copy_kept(call, from, to.clone()).await;
    }
    if let WriteOp::Copy { from, to } = &op {
        let found = call.workspace.read(from).await?;
        call.reads.copied(from, found.as_ref().map(|(version, _)| *version), to, found.is_some());
    }
    Ok(match &call.site {
        Site::Turn(site) => call.workspace.apply(site.call, op).await?,
        Site::Api { .. } => call.workspace.apply_now(call.venue.now(), &op).await?,
    })
}

/// A copy of what the venue keeps: it is read once, and written as a value is.
async fn copy_kept(call: &Invocation<'_>, from: &Path, path: Path) -> Result<Value, OpError> {
    let found = virtuals::get(call, from).await?;
    call.reads.copied(from, None, &path, found.is_some());
    let Some(value) = found else { return Ok(json!({"copied": false, "exists": false})) };
    let mut answer = Box::pin(change(call, WriteOp::Write { path, value, expect: None })).await?;
    if let Value::Object(map) = &mut answer {
        map.shift_remove("written");
        map.shift_insert(0, "copied".to_owned(), true.into());
    }
    Ok(answer)
}

async fn read(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    if arguments["paths"].is_null() {
        return read_one(call, &path_of(arguments, "path")?, arguments).await;
    }
    let mut values = Map::new();
    for path in several(arguments)? {
        values.insert(path.to_string(), read_one(call, &path, arguments).await?);
    }
    Ok(json!({"values": values}))
}

async fn read_one(call: &Invocation<'_>, path: &Path, arguments: &Value) -> Result<Value, OpError> {
    let Some(value) = value_at(call, path).await? else { return Ok(json!({"exists": false})) };
    let size = serde_json::to_vec(&value).map_or(0, |b| b.len());
    if size > number(arguments, "maxSize", READ_BYTES) {
        return Ok(json!({"exists": true, "value": null, "truncated": true, "size": size, "valueBytes": size}));
    }
    let mut answer = json!({"exists": true, "value": value});
    if path.namespace().is_writable() && !path.segments().is_empty() {
        answer["version"] = call.workspace.version(path).await?.into();
    }
    Ok(answer)
}

async fn list(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    if arguments["path"].is_null() {
        let keys: Vec<_> = Namespace::ALL.iter().map(|n| n.prefix()).collect();
        return Ok(json!({"exists": true, "type": "map", "count": keys.len(), "keys": keys, "offset": 0}));
    }
    let path = path_of(arguments, "path")?;
    let offset = number(arguments, "offset", 0);
    let Some(page) = page_at(call, &path, offset, number(arguments, "limit", 1000), false).await? else {
        return Ok(json!({"exists": false, "type": "null"}));
    };
    let mut answer = json!({"exists": true, "type": page.kind});
    if let Some(count) = page.count {
        answer["count"] = count.into();
        answer["offset"] = offset.into();
        if page.kind == "map" {
            answer["keys"] = page.items.into_iter().map(|(key, _)| key).collect();
        }
    }
    Ok(answer)
}

/// Elements that the first step of a slice reads, and any step at most.
const SLICE_STEP: usize = 32;
const SLICE_MOST: usize = 128;

async fn slice(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let path = path_of(arguments, "path")?;
    let offset = number(arguments, "offset", 0);
    let limit = number(arguments, "limit", 100);
    let (mut values, mut bytes, mut step) = (Vec::new(), 0, SLICE_STEP);
    loop {
        // Nobody knows how large they are: few at first, then as many as they let.
        let (place, wanted) = (offset.saturating_add(values.len()), step.min(limit - values.len()));
        let Some(page) = page_at(call, &path, place, wanted, true).await? else { return Ok(json!({"exists": false})) };
        let Some(count) = page.count else {
            return Err(OpError::Invalid(format!("`{path}` is a {}, expected a map or an array", page.kind)));
        };
        let (map, found) = (page.kind == "map", page.items.len());
        for (key, value) in page.items {
            let value = if map { json!({"key": key, "value": value}) } else { value };
            bytes += serde_json::to_vec(&value).map_or(0, |text| text.len());
            if bytes > READ_BYTES && !values.is_empty() {
                let next = offset + values.len();
                return Ok(json!({
                    "exists": true, "type": page.kind, "count": count, "values": values, "offset": offset,
                    "truncated": true, "next": next
                }));
            }
            values.push(value);
        }
        if found == 0 || offset.saturating_add(values.len()) >= count || values.len() >= limit {
            return Ok(json!({"exists": true, "type": page.kind, "count": count, "values": values, "offset": offset}));
        }
        step = if bytes < READ_BYTES / 8 { (step * 2).min(SLICE_MOST) } else { step };
    }
}

/// The paths of a call with `path` or `paths`.
fn several(arguments: &Value) -> Result<Vec<Path>, OpError> {
    match (&arguments["path"], &arguments["paths"]) {
        (Value::Null, Value::Array(paths)) => {
            paths.iter().map(|p| Path::from_json(p).map_err(|e| OpError::Invalid(e.to_string()))).collect()
        }
        (path, Value::Null) if !path.is_null() => Ok(vec![path_of(arguments, "path")?]),
        _ => Err(OpError::Invalid("expected exactly one of `path` and `paths`".to_owned())),
    }
}

async fn inspect(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let options = RenderOptions {
        budget: number(arguments, "budget", 500),
        pretty: !arguments["compact"].as_bool().unwrap_or(true),
    };
    let mut rendered = Map::new();
    for path in several(arguments)? {
        let text = match value_at(call, &path).await? {
            Some(value) => render(&value, options),
            None => "null /* missing */".to_owned(),
        };
        rendered.insert(path.to_string(), text.into());
    }
    let single = arguments["paths"].is_null();
    let result = if single { rendered.into_iter().next().map(|(_, v)| v).unwrap_or_default() } else { rendered.into() };
    Ok(json!({"result": result}))
}

async fn count(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let path = path_of(arguments, "path")?;
    let depth = number(arguments, "depth", 1);
    if depth > 1 {
        let value = value_at(call, &path).await?;
        return Ok(value.map_or_else(
            || json!({"exists": false}),
            |value| json!({"exists": true, "count": below(&value, depth).len()}),
        ));
    }
    let Some(page) = page_at(call, &path, 0, 0, false).await? else { return Ok(json!({"exists": false})) };
    Ok(json!({"exists": true, "count": page.count.unwrap_or(1)}))
}

async fn aggregate(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let path = path_of(arguments, "path")?;
    let Some(value) = value_at(call, &path).await? else { return Ok(json!({"exists": false})) };
    let entries = below(&value, number(arguments, "depth", 1));
    let count = if entries.is_empty() && !value.is_object() && !value.is_array() { 1 } else { entries.len() };
    let mut answer = json!({"exists": true, "count": count});
    if !arguments["groupBy"].is_null() {
        let field = Selector::try_from(arguments["groupBy"].clone()).map_err(OpError::Invalid)?;
        let mut groups: Map<String, Value> = Map::new();
        for entry in entries {
            let key = match field.of(entry) {
                None | Some(Value::Null) => "null".to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            let group = groups.entry(key).or_insert_with(|| json!({"count": 0}));
            group["count"] = (group["count"].as_u64().unwrap_or(0) + 1).into();
        }
        answer["groups"] = groups.into();
    }
    Ok(answer)
}
