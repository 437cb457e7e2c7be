//! `v/ops/lattice/*`: read, write and list the owner's tree.

mod slice;

use crate::domain::decode;
use crate::domain::lattice::path::MAX_SEGMENTS;
use crate::domain::lattice::value::values_at_depth;
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::READ_BYTES;
use crate::domain::patch::Selector;
use crate::domain::render::{RenderOptions, render};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use crate::venue::tree::{shared, value_at, virtuals};
use crate::venue::workspace::{TreePage, WriteOp, page_of_value};
use crate::view;
use crate::view::lattice::{
    CountView, GroupView, KeysView, ResultView, ValueCopiedView, ValueView, ValueWrittenView, ValuesView,
};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use slice::SliceValue;
use std::collections::HashMap;

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

/// Most paths of one call.
const PATHS: usize = 100;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<ReadValue>(),
        operation::<WriteValue>(),
        operation::<DeleteValue>(),
        operation::<AppendValue>(),
        operation::<ListKeys>(),
        operation::<SliceValue>(),
        operation::<InspectValues>(),
        operation::<CopyValue>(),
        operation::<Count>(),
        operation::<Aggregate>(),
    ]
}

pub(super) fn need(ability: &'static str, path: &Path) -> Need {
    // The names of secrets need an ability of their own, apart from reading the tree.
    let ability = if path.namespace() == Namespace::Secrets { "secret/list" } else { ability };
    Need { ability, resource: path.into() }
}

/// Returns the paths of a call with `path` or `paths`.
fn paths_of<'a>(path: Option<&'a Path>, paths: Option<&'a Vec<Path>>) -> Result<&'a [Path], OpError> {
    match (path, paths) {
        (None, Some(paths)) => Ok(paths),
        (Some(path), None) => Ok(std::slice::from_ref(path)),
        (None, None) | (Some(_), Some(_)) => {
            Err(OpError::Invalid("expected exactly one of `path` and `paths`".to_owned()))
        }
    }
}

/// Returns a page of what is under `path`; of the tree only the page is read.
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
        virtuals::get(call, path).await?.map(|value| page_of_value(value, offset, limit))
    };
    call.reads.note(path, found.is_some());
    Ok(found)
}

/// Changes the tree: in a turn with its commit, otherwise at once.
pub(super) async fn change_tree(call: &Invocation<'_>, op: WriteOp) -> Result<Value, OpError> {
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
        call.reads.note_value_copy(from, found.as_ref(), to);
    }
    Ok(match &call.site {
        Site::Turn(site) => call.workspace.apply(site.call, op).await?,
        Site::Api { .. } => call.workspace.apply_now(call.venue.now(), &op).await?,
    })
}

/// Copies a value that the venue shows: it is read once and then written.
async fn copy_kept(call: &Invocation<'_>, from: &Path, path: Path) -> Result<Value, OpError> {
    let found = virtuals::get(call, from).await?;
    call.reads.note_copy(from, &path, found.is_some());
    let Some(value) = found else { return Ok(view::to_json(&ValueCopiedView::without_source())) };
    let answer = Box::pin(change_tree(call, WriteOp::Write { path, value, expect: None })).await?;
    let written: ValueWrittenView = decode::into_type(answer).map_err(|error| OpError::Failed(error.to_string()))?;
    Ok(view::to_json(&ValueCopiedView::from(written)))
}

/// Read the value at a path, or (`paths`) the values at several. A value over maxSize bytes is not returned but its size.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadValue {
    path: Option<Path>,
    #[schemars(length(max = PATHS))]
    paths: Option<Vec<Path>>,
    max_size: Option<usize>,
}

impl Operation for ReadValue {
    const PATH: &'static str = "v/ops/lattice/read";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let paths = paths_of(self.path.as_ref(), self.paths.as_ref())?;
        Ok(paths.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        if let Some(path) = &self.path {
            return Ok(OpOutput::of(&self.read_one(call, path).await?));
        }
        let mut values = Map::new();
        for path in self.paths.iter().flatten() {
            values.insert(path.to_string(), view::to_json(&self.read_one(call, path).await?));
        }
        Ok(OpOutput::of(&ValuesView { values }))
    }
}

impl ReadValue {
    async fn read_one(&self, call: &Invocation<'_>, path: &Path) -> Result<ValueView, OpError> {
        let Some(value) = value_at(call, path).await? else { return Ok(ValueView::default()) };
        let shown = ValueView { exists: true, ..ValueView::default() };
        let size = serde_json::to_vec(&value).map_or(0, |b| b.len());
        if size > self.max_size.unwrap_or(READ_BYTES) {
            let (value, size) = (Some(Value::Null), Some(size));
            return Ok(ValueView { value, truncated: Some(true), size, value_bytes: size, ..shown });
        }
        let version = if path.namespace().is_writable() && !path.segments().is_empty() {
            // A value in parts has no version that `expect` could name.
            call.workspace.version(path).await?
        } else {
            None
        };
        Ok(ValueView { value: Some(value), version, ..shown })
    }
}

/// Write a value at a path; intermediate maps are created, siblings stay. `expect` makes it compare-and-set on the version that `read` shows; a map or array directly under a namespace (`w/NAME`) has none, its entries have.
#[derive(Deserialize, JsonSchema)]
struct WriteValue {
    path: Path,
    value: Value,
    expect: Option<u64>,
}

impl Operation for WriteValue {
    const PATH: &'static str = "v/ops/lattice/write";
    const EFFECT: Effect = Effect::Buffered;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("crud/write", &self.path)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { path, value, expect } = self;
        change_tree(call, WriteOp::Write { path, value, expect }).await.map(Into::into)
    }
}

/// Delete what is at a path; nothing there is no error.
#[derive(Deserialize, JsonSchema)]
struct DeleteValue {
    path: Path,
}

impl Operation for DeleteValue {
    const PATH: &'static str = "v/ops/lattice/delete";
    const EFFECT: Effect = Effect::Buffered;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("crud/delete", &self.path)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        change_tree(call, WriteOp::Delete { path: self.path }).await.map(Into::into)
    }
}

/// Append a value to the array at a path, creating it when absent.
#[derive(Deserialize, JsonSchema)]
struct AppendValue {
    path: Path,
    value: Value,
}

impl Operation for AppendValue {
    const PATH: &'static str = "v/ops/lattice/append";
    const EFFECT: Effect = Effect::Buffered;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("crud/append", &self.path)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        change_tree(call, WriteOp::Append { path: self.path, value: self.value }).await.map(Into::into)
    }
}

/// Copy the value of one path to another.
#[derive(Deserialize, JsonSchema)]
struct CopyValue {
    from: Path,
    to: Path,
}

impl Operation for CopyValue {
    const PATH: &'static str = "v/ops/lattice/copy";
    const EFFECT: Effect = Effect::Buffered;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("crud/read", &self.from), need("crud/write", &self.to)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        change_tree(call, WriteOp::Copy { from: self.from, to: self.to }).await.map(Into::into)
    }
}

/// List the keys of the map (or the size of the array) at a path, page by page; with `paths` where a key has a slash in it.
#[derive(Deserialize, JsonSchema)]
struct ListKeys {
    path: Option<Path>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

impl Operation for ListKeys {
    const PATH: &'static str = "v/ops/lattice/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(self.path.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Some(path) = &self.path else {
            let keys: Vec<_> = Namespace::ALL.iter().map(|n| n.prefix().to_owned()).collect();
            let (count, offset) = (Some(keys.len()), Some(0));
            let (kind, paths, keys) = ("map".to_owned(), None, Some(keys));
            return Ok(OpOutput::of(&KeysView { exists: true, kind, count, offset, paths, keys }));
        };
        let Some(page) = page_at(call, path, self.offset, self.limit.unwrap_or(1000), false).await? else {
            return Ok(OpOutput::of(&KeysView { kind: "null".to_owned(), ..KeysView::default() }));
        };
        let mut shown = KeysView { exists: true, kind: page.kind.to_owned(), ..KeysView::default() };
        if let Some(count) = page.count {
            shown.count = Some(count);
            shown.offset = Some(self.offset);
            if page.kind == "map" {
                if page.items.iter().any(|(key, _)| key.contains('/')) {
                    shown.paths = Some(page.items.iter().map(|(key, _)| path.child(key).to_string()).collect());
                }
                shown.keys = Some(page.items.into_iter().map(|(key, _)| key).collect());
            }
        }
        Ok(OpOutput::of(&shown))
    }
}

/// Render one or more values as JSON5 within a byte budget: a summary of what is large.
#[derive(Deserialize, JsonSchema)]
struct InspectValues {
    path: Option<Path>,
    #[serde(default, deserialize_with = "one_or_more")]
    #[schemars(length(max = PATHS), extend("type" = ["array", "string"]))]
    paths: Option<Vec<Path>>,
    budget: Option<usize>,
    compact: Option<bool>,
}

/// Reads a list of paths, or a text as the only path.
fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Path>>, D::Error> {
    let given = match Option::<Value>::deserialize(from)? {
        Some(Value::String(path)) => Some(Value::from(vec![path])),
        given => given,
    };
    given.map(decode::into_type).transpose().map_err(D::Error::custom)
}

impl Operation for InspectValues {
    const PATH: &'static str = "v/ops/lattice/inspect";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let paths = paths_of(self.path.as_ref(), self.paths.as_ref())?;
        Ok(paths.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let options = RenderOptions { budget: self.budget.unwrap_or(500), pretty: !self.compact.unwrap_or(true) };
        let mut rendered = Map::new();
        for path in paths_of(self.path.as_ref(), self.paths.as_ref())? {
            let text = match value_at(call, path).await? {
                Some(value) => render(&value, options),
                None => "null /* missing */".to_owned(),
            };
            rendered.insert(path.to_string(), text.into());
        }
        let result = match self.path {
            Some(_) => rendered.into_iter().next().map(|(_, text)| text).unwrap_or_default(),
            None => rendered.into(),
        };
        Ok(OpOutput::of(&ResultView { result }))
    }
}

/// Count the entries of the map or array at a path, or what lies `depth` steps below it.
#[derive(Deserialize, JsonSchema)]
struct Count {
    path: Path,
    #[schemars(range(min = 1, max = MAX_SEGMENTS))]
    depth: Option<usize>,
}

impl Operation for Count {
    const PATH: &'static str = "v/ops/lattice/count";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("crud/read", &self.path)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let count = match self.depth {
            None | Some(1) => page_at(call, &self.path, 0, 0, false).await?.map(|page| page.count.unwrap_or(1)),
            Some(depth) => value_at(call, &self.path).await?.map(|value| values_at_depth(&value, depth).len()),
        };
        Ok(OpOutput::of(&CountView { exists: count.is_some(), count, groups: None }))
    }
}

/// Count the entries `depth` steps below a path (1 when absent), grouped by one of their fields (`state`, or a path such as
/// customer/country).
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Aggregate {
    path: Path,
    #[schemars(with = "Option<String>")]
    group_by: Option<Selector>,
    #[schemars(range(min = 1, max = MAX_SEGMENTS))]
    depth: Option<usize>,
}

impl Operation for Aggregate {
    const PATH: &'static str = "v/ops/lattice/aggregate";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(vec![need("crud/read", &self.path)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Some(value) = value_at(call, &self.path).await? else { return Ok(OpOutput::of(&CountView::default())) };
        let entries = values_at_depth(&value, self.depth.unwrap_or(1));
        let count = if entries.is_empty() && !value.is_object() && !value.is_array() { 1 } else { entries.len() };
        let groups = self.group_by.map(|field| count_groups(&field, &entries));
        Ok(OpOutput::of(&CountView { exists: true, count: Some(count), groups }))
    }
}

/// Counts entries by the text of a field. The groups are in the order of their first entries.
fn count_groups(field: &Selector, entries: &[&Value]) -> Map<String, Value> {
    let (mut places, mut groups) = (HashMap::new(), Vec::<(String, GroupView)>::new());
    for entry in entries {
        let key = match field.select(entry) {
            None | Some(Value::Null) => "null".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((key, GroupView::default()));
        }
        groups[place].1.count += 1;
    }
    groups.into_iter().map(|(key, group)| (key, view::to_json(&group))).collect()
}
