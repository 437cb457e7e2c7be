//! `v/ops/asset/*`: immutable content under `a/<hash>`, and pins of it under `o/`.

use super::lattice::{change, need, number, path_of, path_schema, schema};
use crate::domain::asset::{AssetError, Draft, not_text, shown};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::AssetId;
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::READ_BYTES;
use crate::venue::assets;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::tree::value_at;
use crate::venue::workspace::WriteOp;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// Assets of a page when nothing else is said, and at most.
const PAGE: usize = 1_000;

#[derive(Clone, Copy)]
enum Verb {
    Store,
    Get,
    List,
    Content,
    Pin,
}

struct Assets(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::Store, Verb::Get, Verb::List, Verb::Content, Verb::Pin];
    verbs.into_iter().map(|verb| Arc::new(Assets(verb)) as Arc<dyn Operation>).collect()
}

/// What `id` names.
enum Reference {
    Asset(AssetId),
    /// A pin, which names one.
    Pin(Path),
}

impl Reference {
    fn of(arguments: &Value) -> Result<Self, OpError> {
        let text = arguments["id"].as_str().unwrap_or_default();
        if text.starts_with("o/") {
            return Path::parse(text).map(Self::Pin).map_err(|e| OpError::Invalid(e.to_string()));
        }
        asset_id(text).map(Self::Asset)
    }

    fn resource(&self) -> ResourcePath {
        match self {
            Self::Asset(id) => ResourcePath::asset(id),
            Self::Pin(path) => path.into(),
        }
    }

    /// The asset; `None` when there is no such pin. Who may read a pin need not be allowed to read
    /// what it names.
    async fn resolve(self, call: &Invocation<'_>) -> Result<Option<AssetId>, OpError> {
        let path = match self {
            Self::Asset(id) => return Ok(Some(id)),
            Self::Pin(path) => path,
        };
        let (version, pin) = call.workspace.read(&path).await?.unzip();
        call.reads.note(&path, version, pin.is_some());
        let Some(pin) = pin else { return Ok(None) };
        let Some(name) = pin["asset"].as_str() else {
            return Err(OpError::Invalid(format!("`{path}` pins no asset")));
        };
        let id = asset_id(name)?;
        let permitted = call.caller.authority.permits("crud/read", ResourcePath::asset(&id));
        permitted.map_err(|denied| OpError::Denied(denied.text(call.named)))?;
        call.reads.kept(ResourcePath::asset(&id), format!("a/{id}"));
        Ok(Some(id))
    }
}

/// 64 hex digits, after `a/` or `0x` if need be.
pub fn asset_id(text: &str) -> Result<AssetId, OpError> {
    let digits = text.strip_prefix("a/").unwrap_or(text);
    AssetId::new(digits.strip_prefix("0x").unwrap_or(digits)).map_err(|e| OpError::Invalid(e.to_string()))
}

/// Where a pin goes: the name given, else the last key of what is pinned.
fn pin_path(arguments: &Value) -> Result<Path, OpError> {
    let name = match arguments["name"].as_str() {
        Some(name) => name.to_owned(),
        None => path_of(arguments, "path")?.segments().last().cloned().unwrap_or_default(),
    };
    if name.contains('/') {
        return Err(OpError::Invalid(format!("expected a `name` without `/` for the pin, got `{name}`")));
    }
    Path::from_segments(vec!["o".to_owned(), name]).map_err(|e| OpError::Invalid(e.to_string()))
}

impl Verb {
    fn spec(self) -> Spec {
        let text = || json!({"type": "string"});
        let id = || json!({"type": "string", "description": "64 hex digits, a/<hash>, or a pin o/<name>"});
        let count = || json!({"type": "integer", "minimum": 0});
        let (path, description, input, effect) = match self {
            Self::Store => (
                "v/ops/asset/store",
                "Store immutable content as an asset named by its SHA-256: `content` is text or any JSON value, \
                 `contentBase64` is bytes. Returns its `hash` and `path` (a/<hash>). Content that is there already \
                 keeps the name and description it has.",
                schema(
                    &json!({
                        "content": {}, "contentBase64": text(), "name": text(), "contentType": text(), "description": text()
                    }),
                    &[],
                ),
                Effect::Idempotent,
            ),
            Self::Get => (
                "v/ops/asset/get",
                "What is known about an asset: name, contentType, description, size, created.",
                schema(&json!({"id": id()}), &["id"]),
                Effect::Read,
            ),
            Self::List => (
                "v/ops/asset/list",
                "List the assets, page by page.",
                schema(&json!({"limit": count(), "offset": count()}), &[]),
                Effect::Read,
            ),
            Self::Content => (
                "v/ops/asset/content",
                "The content of an asset: `content` when it is UTF-8 text, else `contentBase64`. Over maxSize bytes \
                 only the size.",
                schema(&json!({"id": id(), "maxSize": count(), "encoding": {"enum": ["utf-8", "base64"]}}), &["id"]),
                Effect::Read,
            ),
            Self::Pin => (
                "v/ops/asset/pin",
                "Keep the value at a path as it is now: it becomes an asset, and o/<name> refers to it (name: the last \
                 key of the path unless given). Pinning an operation (v/ops/…) keeps its description.",
                schema(&json!({"path": path_schema(), "name": text()}), &["path"]),
                Effect::Buffered,
            ),
        };
        Spec { path, description, input, effect }
    }
}

#[async_trait]
impl Operation for Assets {
    fn spec(&self) -> Spec {
        self.0.spec()
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let all = |ability| Need { ability, resource: ResourcePath::all(Namespace::Assets) };
        Ok(match self.0 {
            Verb::Store => vec![all("asset/store")],
            Verb::List => vec![all("crud/read")],
            Verb::Get | Verb::Content => {
                vec![Need { ability: "crud/read", resource: Reference::of(arguments)?.resource() }]
            }
            Verb::Pin => {
                let path = path_of(arguments, "path")?;
                let mut needs = vec![need("crud/read", &path), need("crud/write", &pin_path(arguments)?)];
                if path.namespace() != Namespace::Assets {
                    needs.push(all("asset/store"));
                }
                needs
            }
        })
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let value = match self.0 {
            Verb::Store => store(call, &arguments).await?,
            Verb::List => list(call, &arguments).await?,
            Verb::Pin => pin(call, &arguments).await?,
            Verb::Get | Verb::Content => {
                let found = Reference::of(&arguments)?.resolve(call).await?;
                match (self.0, found) {
                    (_, None) => json!({"exists": false}),
                    (Verb::Content, Some(id)) => content(call, &id, &arguments).await?,
                    (_, Some(id)) => get(call, &id).await?,
                }
            }
        };
        Ok(value.into())
    }
}

fn invalid(error: &AssetError) -> OpError {
    OpError::Invalid(error.to_string())
}

async fn store(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let draft = Draft::parse(arguments, call.venue.now()).map_err(|e| invalid(&e))?;
    let (id, record, existed) = assets::put(call.venue, &call.caller.owner, &draft).await?;
    let mut answer = shown(&id, &record);
    answer["stored"] = true.into();
    answer["existed"] = existed.into();
    Ok(answer)
}

async fn get(call: &Invocation<'_>, id: &AssetId) -> Result<Value, OpError> {
    let Some(record) = assets::get(call.venue, &call.caller.owner, id).await? else {
        return Ok(json!({"exists": false}));
    };
    let mut answer = shown(id, &record);
    answer["exists"] = true.into();
    Ok(answer)
}

async fn list(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let offset = number(arguments, "offset", 0);
    let limit = number(arguments, "limit", PAGE).min(PAGE);
    let page = assets::list(call.venue, &call.caller.owner, offset, limit).await?;
    let items: Vec<_> = page.items.iter().map(|(id, record)| shown(id, record)).collect();
    let next = (offset < page.next && page.next < page.total).then_some(page.next);
    Ok(json!({"items": items, "total": page.total, "offset": offset, "limit": limit, "next": next}))
}

async fn content(call: &Invocation<'_>, id: &AssetId, arguments: &Value) -> Result<Value, OpError> {
    let owner = &call.caller.owner;
    let Some(record) = assets::get(call.venue, owner, id).await? else { return Ok(json!({"exists": false})) };
    let mut answer =
        json!({"exists": true, "hash": id.as_str(), "contentType": record.content_type, "size": record.size});
    if record.size > number(arguments, "maxSize", READ_BYTES) {
        answer["truncated"] = true.into();
        return Ok(answer);
    }
    let Some(asset) = assets::content(call.venue, owner, id).await? else { return Ok(json!({"exists": false})) };
    match (arguments["encoding"].as_str(), asset.text()) {
        (Some("base64"), _) => answer["contentBase64"] = asset.base64().into(),
        (_, Ok(text)) => answer["content"] = text.into(),
        (Some(_), Err(at)) => {
            return Err(OpError::Invalid(format!("{}; ask for `encoding` `base64`", not_text(at))));
        }
        (None, Err(at)) => {
            answer["contentBase64"] = asset.base64().into();
            answer["note"] = not_text(at).into();
        }
    }
    Ok(answer)
}

async fn pin(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let from = path_of(arguments, "path")?;
    let to = pin_path(arguments)?;
    let id = pinned(call, &from).await?;
    let mut value = json!({"asset": format!("a/{id}"), "from": from.to_string()});
    let operation = Some(&from).filter(|from| from.namespace() == Namespace::Venue);
    if let Some(found) = operation.and_then(|from| call.venue.catalog.resolve(&from.to_string())) {
        value["operation"] = found.spec.path.into();
    }
    let path = to.to_string();
    call.reads.went(&[path.clone(), format!("a/{id}")]);
    change(call, WriteOp::Write { path: to, value, expect: None }).await?;
    Ok(json!({"path": path, "hash": id.as_str(), "asset": format!("a/{id}")}))
}

/// The asset that a path names, or that its value becomes.
async fn pinned(call: &Invocation<'_>, from: &Path) -> Result<AssetId, OpError> {
    let owner = &call.caller.owner;
    let missing = || OpError::NotFound(format!("nothing is at `{from}`"));
    if let (Namespace::Assets, [id]) = (from.namespace(), from.segments()) {
        let id = asset_id(id)?;
        assets::get(call.venue, owner, &id).await?.ok_or_else(missing)?;
        call.reads.kept(ResourcePath::asset(&id), format!("a/{id}"));
        return Ok(id);
    }
    let value = value_at(call, from).await?.ok_or_else(missing)?;
    let about = json!({"content": value, "name": from.segments().last()});
    let draft = Draft::parse(&about, call.venue.now()).map_err(|e| invalid(&e))?;
    Ok(assets::put(call.venue, owner, &draft).await?.0)
}
