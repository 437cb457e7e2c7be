//! `v/ops/asset/*`: immutable content under `a/<hash>`, and pins of it under `o/`.

use super::lattice::{change_tree, need};
use crate::domain::asset::{AssetError, AssetForm, AssetRecord};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AssetId, IdError};
use crate::domain::lattice::{Namespace, Path, PathError};
use crate::domain::limits::READ_BYTES;
use crate::venue::assets;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::tree::value_to_copy;
use crate::venue::workspace::{TreeValue, WriteOp};
use crate::view;
use crate::view::asset::{
    AssetContentView, AssetFoundView, AssetItemView, AssetPage, AssetStoredView, AssetView, PinView, PinnedView,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Default and greatest number of assets of a page.
const PAGE: usize = 1_000;
/// Assets that a filtered list reads.
const LOOKED: usize = 10_000;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<StoreAsset>(),
        operation::<GetAsset>(),
        operation::<ListAssets>(),
        operation::<GetContent>(),
        operation::<PinValue>(),
    ]
}

/// What `id` names.
#[derive(Deserialize)]
#[serde(try_from = "String")]
enum AssetReference {
    Asset(AssetId),
    /// A pin, which names an asset.
    Pin(Path),
}

/// Why a text names no asset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum AssetReferenceError {
    /// The path of a pin is illegal.
    #[error(transparent)]
    Pin(#[from] PathError),
    /// The id of an asset is illegal.
    #[error(transparent)]
    Asset(#[from] IdError),
}

impl TryFrom<String> for AssetReference {
    type Error = AssetReferenceError;

    fn try_from(text: String) -> Result<Self, AssetReferenceError> {
        if text.strip_prefix('/').unwrap_or(&text).starts_with("o/") {
            return Ok(Self::Pin(Path::parse(&text)?));
        }
        Ok(Self::Asset(AssetId::from_name(&text)?))
    }
}

impl AssetReference {
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        match self {
            Self::Asset(id) => Need::only("crud/read", ResourcePath::asset(id)),
            Self::Pin(path) => Need::only("crud/read", path),
        }
    }

    /// Returns the asset; `None` if there is no such pin. The capability to read a pin doesn't cover the asset that it
    /// names.
    async fn resolve(self, call: &Invocation<'_>) -> Result<Option<AssetId>, OpError> {
        let path = match self {
            Self::Asset(id) => return Ok(Some(id)),
            Self::Pin(path) => path,
        };
        let read = call.workspace.read(&path).await?;
        call.reads.note_value(&path, read.as_ref());
        let Some(TreeValue { value: pin, .. }) = read else { return Ok(None) };
        let Some(name) = pin["asset"].as_str() else {
            return Err(OpError::Invalid(format!("`{path}` pins no asset")));
        };
        let id = asset_id(name)?;
        call.permit("crud/read", ResourcePath::asset(&id))?;
        call.reads.note_kept(ResourcePath::asset(&id), format!("a/{id}"));
        Ok(Some(id))
    }
}

/// The asset of an address, such as `a/<hash>`.
pub fn asset_id(text: &str) -> Result<AssetId, OpError> {
    AssetId::from_name(text).map_err(|e| OpError::Invalid(e.to_string()))
}

fn invalid(error: &AssetError) -> OpError {
    OpError::Invalid(error.to_string())
}

/// Store immutable content as an asset named by its SHA-256: `content` is text or any JSON value, `contentBase64` is bytes;
/// `metadata` alone is its own content. Returns its `hash` and `path` (a/<hash>). Content that is there already keeps what is
/// said of it.
#[derive(Deserialize, JsonSchema)]
struct StoreAsset(AssetForm);

impl Operation for StoreAsset {
    const PATH: &'static str = "v/ops/asset/store";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("asset/store", ResourcePath::whole_namespace(Namespace::Assets))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let draft = self.0.draft(call.venue.now()).map_err(|e| invalid(&e))?;
        let (id, record, existed) = assets::put(call.venue, &call.caller.owner, &draft).await?;
        let asset = AssetView::new(&id, &record);
        Ok(OpOutput::of(&AssetStoredView { asset, id, stored: true, existed }))
    }
}

/// What is known about an asset: name, contentType, description, size, created.
#[derive(Deserialize, JsonSchema)]
struct GetAsset {
    /// 64 hex digits, a/<hash>, or a pin o/<name>
    #[schemars(with = "String")]
    id: AssetReference,
}

impl Operation for GetAsset {
    const PATH: &'static str = "v/ops/asset/get";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        self.id.needs()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let asset = match self.id.resolve(call).await? {
            Some(id) => {
                let record = assets::get(call.venue, &call.caller.owner, &id).await?;
                record.map(|record| AssetView::new(&id, &record))
            }
            None => None,
        };
        let exists = asset.is_some();
        Ok(OpOutput::of(&AssetFoundView { asset, exists }))
    }
}

/// List the assets, page by page; with `type` or `kind` those of which that is said, among the first ten thousand.
#[derive(Deserialize, JsonSchema)]
struct ListAssets {
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
    /// only those whose metadata have this type
    #[serde(rename = "type")]
    of_type: Option<String>,
    kind: Option<AssetKind>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AssetKind {
    /// Its metadata define an operation.
    Operation,
    /// Its metadata define no operation.
    Data,
}

impl ListAssets {
    /// Whether an asset passes the filter.
    fn passes_filter(&self, record: &AssetRecord) -> bool {
        let said = |key: &str| record.metadata.as_ref().and_then(|metadata| metadata.get(key));
        let is_of_type = |wanted: &String| said("type").and_then(Value::as_str) == Some(wanted);
        let is_of_kind = |kind: AssetKind| said("operation").is_some() == (kind == AssetKind::Operation);
        self.of_type.as_ref().is_none_or(is_of_type) && self.kind.is_none_or(is_of_kind)
    }

    /// Returns a page of the assets that pass the filter. All are read, because the answer has their number.
    async fn list_filtered(&self, call: &Invocation<'_>, limit: usize) -> Result<AssetPage, OpError> {
        let (mut items, mut total, mut looked) = (Vec::new(), 0, 0);
        loop {
            let page = assets::list(call.venue, &call.caller.owner, looked, PAGE).await?;
            for (id, record) in page.items.iter().filter(|(_, record)| self.passes_filter(record)) {
                if total >= self.offset && items.len() < limit {
                    items.push(AssetItemView::Asset(AssetView::new(id, record)));
                }
                total += 1;
            }
            match page.next_offset(looked) {
                Some(next) if next < LOOKED => looked = next,
                _ => break,
            }
        }
        let next = Some(self.offset + items.len()).filter(|next| *next < total && !items.is_empty());
        Ok(AssetPage { items, total, offset: self.offset, limit, next })
    }
}

impl Operation for ListAssets {
    const PATH: &'static str = "v/ops/asset/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Assets))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (offset, limit) = (self.offset, self.limit.unwrap_or(PAGE).min(PAGE));
        if self.of_type.is_some() || self.kind.is_some() {
            return Ok(OpOutput::of(&self.list_filtered(call, limit).await?));
        }
        let page = assets::list(call.venue, &call.caller.owner, offset, limit).await?;
        let (total, next) = (page.total, page.next_offset(offset));
        let items = page.items.iter().map(|(id, record)| AssetItemView::Asset(AssetView::new(id, record))).collect();
        Ok(OpOutput::of(&AssetPage { items, total, offset, limit, next }))
    }
}

/// The content of an asset: `content` when it is UTF-8 text, else `contentBase64`. Over maxSize bytes only the size.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct GetContent {
    /// 64 hex digits, a/<hash>, or a pin o/<name>
    #[schemars(with = "String")]
    id: AssetReference,
    max_size: Option<usize>,
    encoding: Option<Encoding>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    Base64,
}

impl Operation for GetContent {
    const PATH: &'static str = "v/ops/asset/content";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        self.id.needs()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (owner, absent) = (&call.caller.owner, || Ok(OpOutput::of(&AssetContentView::default())));
        let Some(id) = self.id.resolve(call).await? else { return absent() };
        let Some(record) = assets::get(call.venue, owner, &id).await? else { return absent() };
        let mut answer = AssetContentView {
            exists: true,
            hash: Some(id.clone()),
            content_type: Some(record.content_type),
            size: Some(record.size),
            ..AssetContentView::default()
        };
        if record.size > self.max_size.unwrap_or(READ_BYTES) {
            answer.truncated = Some(true);
            return Ok(OpOutput::of(&answer));
        }
        let Some(asset) = assets::read_content(call.venue, owner, &id).await? else { return absent() };
        match (self.encoding, asset.text()) {
            (Some(Encoding::Base64), _) => answer.content_base64 = Some(asset.base64()),
            (_, Ok(text)) => answer.content = Some(text.to_owned()),
            (Some(Encoding::Utf8), Err(error)) => {
                return Err(OpError::Invalid(format!("{error}; ask for `encoding` `base64`")));
            }
            (None, Err(error)) => {
                answer.content_base64 = Some(asset.base64());
                answer.note = Some(error.to_string());
            }
        }
        Ok(OpOutput::of(&answer))
    }
}

/// Keep the value at a path as it is now: it becomes an asset, and o/<name> refers to it (name: the last key of the path
/// unless given). Pinning an operation (v/ops/…) keeps its description.
#[derive(Deserialize, JsonSchema)]
struct PinValue {
    path: Path,
    name: Option<String>,
}

impl PinValue {
    /// Returns the path of the pin: the given name, else the last key of the pinned path.
    fn pin_path(&self) -> Result<Path, OpError> {
        let name = self.name.as_ref().or(self.path.segments().last()).cloned().unwrap_or_default();
        if name.contains('/') {
            return Err(OpError::Invalid(format!("expected a `name` without `/` for the pin, got `{name}`")));
        }
        Path::from_segments(vec!["o".to_owned(), name]).map_err(|e| OpError::Invalid(e.to_string()))
    }
}

impl Operation for PinValue {
    const PATH: &'static str = "v/ops/asset/pin";
    const EFFECT: Effect = Effect::Buffered;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let mut needs = vec![need("crud/read", &self.path), need("crud/write", &self.pin_path()?)];
        if self.path.namespace() != Namespace::Assets {
            needs.push(Need::new("asset/store", ResourcePath::whole_namespace(Namespace::Assets)));
        }
        Ok(needs)
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (from, to) = (&self.path, self.pin_path()?);
        let id = asset_to_pin(call, from).await?;
        let operation = Some(from).filter(|from| from.namespace() == Namespace::Venue);
        let operation = operation.and_then(|from| call.catalog.resolve(&from.to_string()));
        let asset = format!("a/{id}");
        let pin = PinView {
            asset: asset.clone(),
            from: from.to_string(),
            operation: operation.map(|found| found.spec.path.to_string()),
        };
        let path = to.to_string();
        call.reads.note_copies(&[path.clone(), asset.clone()]);
        change_tree(call, WriteOp::Write { path: to, value: view::to_json(&pin), expect: None }).await?;
        Ok(OpOutput::of(&PinnedView { path, hash: id, asset }))
    }
}

/// Returns the asset that a path names, or stores its value as one.
async fn asset_to_pin(call: &Invocation<'_>, from: &Path) -> Result<AssetId, OpError> {
    let owner = &call.caller.owner;
    let missing = || OpError::NotFound(format!("nothing is at `{from}`"));
    if let (Namespace::Assets, [id]) = (from.namespace(), from.segments()) {
        let id = asset_id(id)?;
        assets::get(call.venue, owner, &id).await?.ok_or_else(missing)?;
        call.reads.note_kept(ResourcePath::asset(&id), format!("a/{id}"));
        return Ok(id);
    }
    let value = value_to_copy(call, from).await?.ok_or_else(missing)?;
    let form = AssetForm { content: Some(value), name: from.segments().last().cloned(), ..AssetForm::default() };
    let draft = form.draft(call.venue.now()).map_err(|e| invalid(&e))?;
    Ok(assets::put(call.venue, owner, &draft).await?.0)
}
