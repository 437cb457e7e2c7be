//! Values that stand for an operation: a pin `o/<name>`, a definition below `w/`, or an asset.
//!
//! | value | its operation |
//! |---|---|
//! | `{"operation": "v/ops/json/merge"}` | that path, as `asset/pin` writes it |
//! | `{"operation": {"adapter": "json:merge", …}}` | `v/ops/json/merge`, as in Covia's metadata |
//! | `{"asset": "a/…"}` | the operation that the asset names |

use super::OpError;
use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::ids::{AssetId, Owner};
use crate::domain::lattice::address::to_plain_path;
use crate::domain::lattice::catalog::{RUN, catalog_path, is_stored_operation};
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::JOB_DEPTH;
use crate::domain::visible::quote_foreign;
use crate::venue::Venue;
use crate::venue::assets;
use crate::venue::workspace::Workspace;
use serde_json::Value;

/// Reader of values that stand for operations, with the tree in which they are looked up.
#[derive(Clone, Copy)]
pub struct PinReader<'a> {
    /// The venue's catalog and assets.
    pub venue: &'a Venue,
    /// Owner of the tree.
    pub owner: &'a Owner,
    /// Authority of the reader.
    pub authority: &'a Authority,
    /// The tree as the reader sees it.
    pub workspace: &'a Workspace,
}

/// Place of a value that stands for an operation.
enum PinPlace {
    Path(Path),
    Asset(AssetId),
}

impl PinReader<'_> {
    /// Returns the operation of a path: if a value there stands for one that the reader may read, that operation; any
    /// other path stays as it is.
    pub async fn resolve_pin(&self, path: &str) -> Result<String, OpError> {
        let Some(place) = self.find_place(path)? else { return Ok(path.to_owned()) };
        let value = self.read_value(path, &place).await?;
        if let Some(operation) = self.named_operation(path, &value)? {
            return Ok(operation);
        }
        // A pin of a value leads to the asset that holds the value.
        if let Some(id) = value["asset"].as_str().and_then(asset_of) {
            let kept = self.read_value(path, &PinPlace::Asset(id)).await?;
            if let Some(operation) = self.named_operation(path, &kept)? {
                return Ok(operation);
            }
        }
        let what =
            value["from"].as_str().map_or_else(|| "a value".to_owned(), |from| format!("`{}`", quote_foreign(from)));
        Err(OpError::Invalid(format!(
            "`{}` pins no operation, but {what}; expected a map whose `operation` is a catalog path, or has an `adapter`",
            quote_foreign(path)
        )))
    }

    /// Replaces what stands for an operation in the arguments of a call that runs another one, also nested. Returns
    /// whether there was any.
    pub async fn resolve_inner(&self, path: &str, arguments: &mut Value) -> Result<bool, OpError> {
        let (mut path, mut arguments, mut is_any) = (path.to_owned(), arguments, false);
        for _ in 0..=JOB_DEPTH {
            if self.venue.catalog.resolve(&path).is_none_or(|found| found.spec.path != RUN) {
                break;
            }
            let Some(asked) = arguments["operation"].as_str() else { break };
            let operation = self.resolve_pin(asked).await?;
            if operation != asked {
                arguments["operation"] = operation.as_str().into();
                is_any = true;
            }
            path = operation;
            let Some(input) = arguments.get_mut("input") else { break };
            arguments = input;
        }
        Ok(is_any)
    }

    fn find_place(&self, path: &str) -> Result<Option<PinPlace>, OpError> {
        if !is_stored_operation(path) {
            return Ok(None);
        }
        let plain =
            to_plain_path(self.owner, path).map_err(|error| OpError::Denied(error.to_string()))?.trim_matches('/');
        if let Some(id) = asset_of(plain) {
            return Ok(Some(PinPlace::Asset(id)));
        }
        let path = Path::parse(plain).map_err(|error| OpError::Invalid(error.to_string()))?;
        Ok(Some(PinPlace::Path(path)))
    }

    async fn read_value(&self, asked: &str, place: &PinPlace) -> Result<Value, OpError> {
        let resource = match place {
            PinPlace::Path(path) => path.into(),
            PinPlace::Asset(id) => ResourcePath::asset(id),
        };
        self.authority.permits("crud/read", resource).map_err(|denied| OpError::Denied(denied.model_text(asked)))?;
        match place {
            PinPlace::Path(path) => self.workspace.get(path).await?.ok_or_else(|| not_found(path)),
            PinPlace::Asset(id) => {
                let asset = assets::read_content(self.venue, self.owner, id).await?;
                let asset = asset.ok_or_else(|| OpError::NotFound(format!("there is no asset `a/{id}`")))?;
                let content = asset.value().unwrap_or_default();
                let metadata = asset.record.metadata.filter(|_| content.get("operation").is_none());
                Ok(metadata.filter(|said| said.contains_key("operation")).map_or(content, Value::Object))
            }
        }
    }

    /// Returns the operation that a value names; `None` if it names none.
    fn named_operation(&self, asked: &str, value: &Value) -> Result<Option<String>, OpError> {
        if let Some(operation) = value["operation"].as_str() {
            return Ok(Some(operation.to_owned()));
        }
        let Some(adapter) = value["operation"]["adapter"].as_str() else { return Ok(None) };
        if self.venue.catalog.resolve(adapter).is_some() {
            return Ok(Some(catalog_path(adapter)));
        }
        Err(OpError::Invalid(format!(
            "`{}` is defined by the adapter `{}`, which this venue doesn't have; expected an operation of `v/ops`, such as \
             `json:merge`",
            quote_foreign(asked),
            quote_foreign(adapter)
        )))
    }
}

fn not_found(path: &Path) -> OpError {
    let hint = match path.namespace() {
        Namespace::Pins => "; `asset/pin` makes one of an operation",
        _ => "",
    };
    let what = if path.namespace() == Namespace::Pins { "pin" } else { "definition" };
    OpError::NotFound(format!("there is no {what} `{path}`{hint}"))
}

/// Returns the asset of `a/<hash>` or of a hash alone.
fn asset_of(text: &str) -> Option<AssetId> {
    AssetId::from_name(text).ok()
}
