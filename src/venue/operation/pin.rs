//! Values that stand for an operation: a pin `o/<name>`, a definition below `w/`, or an asset.
//!
//! | value | its operation |
//! |---|---|
//! | `{"operation": "v/ops/json/merge"}` | that path, as `asset/pin` writes it |
//! | `{"operation": {"adapter": "json:merge", …}}` | `v/ops/json/merge`, as Covia's metadata say it |
//! | `{"asset": "a/…"}` | what the asset says |
//! | `{"http": {…}, …}`, `{"jobs": {…}, …}` below `o/` | the tool that it declares |
//!
//! Its `description`, and `toolName` and `input` of its `operation`, go before those of the catalog where it is a tool; a
//! call's arguments must fit that `input` as well as the schema of the catalog.

use super::{CatalogView, OpError};
use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::declared::ToolDeclaration;
use crate::domain::ids::{AssetId, Owner};
use crate::domain::lattice::address::to_plain_path;
use crate::domain::lattice::catalog::{RUN, catalog_path, is_stored_operation, strip_owner};
use crate::domain::lattice::value::type_name;
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::JOB_DEPTH;
use crate::domain::schema::{arguments_error, veiled_misfits};
use crate::domain::visible::quote_foreign;
use crate::venue::Venue;
use crate::venue::assets;
use crate::venue::workspace::Workspace;
use serde_json::{Value, json};
use std::fmt;

/// Reader of values that stand for operations, with the tree in which they are looked up.
#[derive(Clone, Copy)]
pub struct PinReader<'a> {
    /// The venue with the assets.
    pub venue: &'a Venue,
    /// The operations that values may stand for.
    pub catalog: &'a CatalogView,
    /// Owner of the tree.
    pub owner: &'a Owner,
    /// Authority of the reader.
    pub authority: &'a Authority,
    /// The tree as the reader sees it.
    pub workspace: &'a Workspace,
}

/// An operation as a stored value describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct PinnedOperation {
    /// Catalogue path of the operation.
    pub path: String,
    /// Name under which models are offered the tool.
    pub tool_name: Option<String>,
    /// Description for models.
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub input: Option<Value>,
}

impl PinnedOperation {
    /// Reads the value that is stored under `asked`; `None` if it names no operation.
    fn read(catalog: &CatalogView, asked: &str, value: &Value) -> Result<Option<Self>, OpError> {
        if let Some(declared) = Self::read_declaration(catalog, asked, value)? {
            return Ok(Some(declared));
        }
        let text = |place: &str, given: &Value| match given {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.trim().is_empty())),
            other => Err(misfit(asked, place, &format!("expected text, got {}", type_name(other)))),
        };
        let operation = &value["operation"];
        let description = || text("description", &value["description"]);
        if let Some(path) = operation.as_str() {
            let description = description()?;
            return Ok(Some(Self { path: path.to_owned(), tool_name: None, description, input: None }));
        }
        let Some(adapter) = operation["adapter"].as_str() else { return Ok(None) };
        if catalog.resolve(adapter).is_none() {
            return Err(OpError::Invalid(format!(
                "`{}` is defined by the adapter `{}`, which this venue doesn't have; expected an operation of `v/ops`, such \
                 as `json:merge`",
                quote_foreign(asked),
                quote_foreign(adapter)
            )));
        }
        let input = Some(&operation["input"]).filter(|input| !input.is_null()).cloned();
        if let Some(schema) = &input {
            if !schema.is_object() {
                let why = format!("expected a JSON Schema, got {}", type_name(schema));
                return Err(misfit(asked, "operation.input", &why));
            }
            let checked = veiled_misfits(schema, &json!({}), 1);
            checked.map_err(|error| misfit(asked, "operation.input", &error.to_string()))?;
        }
        let tool_name = text("operation.toolName", &operation["toolName"])?;
        Ok(Some(Self { path: catalog_path(adapter), tool_name, description: description()?, input }))
    }
}

impl PinnedOperation {
    /// Reads a record that declares a tool; `None` if it declares none. The catalogue has its operation if the record was
    /// known when its view was made.
    fn read_declaration(catalog: &CatalogView, asked: &str, value: &Value) -> Result<Option<Self>, OpError> {
        let Some(record) = strip_owner(asked).trim_matches('/').strip_prefix("o/") else { return Ok(None) };
        let Some(declared) = ToolDeclaration::of_record(record, value) else { return Ok(None) };
        let invalid = |rule: &dyn fmt::Display| OpError::Invalid(format!("`{}`: {rule}", quote_foreign(asked)));
        let declared = declared.map_err(|error| invalid(&error))?;
        let path = declared.own_path();
        if !catalog.is_of_view(&path) {
            declared.check().map_err(|error| invalid(&error))?;
            if catalog.resolve(&path).is_some() {
                let taken = format!("`{path}` is an operation of the venue, give the record another name");
                return Err(invalid(&taken));
            }
            return Err(OpError::Invalid(format!(
                "`{}` declares a tool: an agent calls it if its `tools` name it",
                quote_foreign(asked)
            )));
        }
        let tool_name = value["name"].as_str().map(str::to_owned);
        Ok(Some(Self { path, tool_name, description: None, input: None }))
    }
}

fn misfit(asked: &str, place: &str, why: &str) -> OpError {
    OpError::Invalid(format!("`{}`: `{place}`: {why}", quote_foreign(asked)))
}

/// Checks arguments against a pin's own schema. Errors never show a value, because some values are filled in by the
/// runtime.
pub fn check_arguments(asked: &str, schema: &Value, arguments: &Value) -> Result<(), OpError> {
    let nothing = json!({});
    let arguments = if arguments.is_null() { &nothing } else { arguments };
    let wrong = veiled_misfits(schema, arguments, 5);
    let wrong = wrong.map_err(|error| misfit(asked, "operation.input", &error.to_string()))?;
    arguments_error(&quote_foreign(asked), &wrong).map_or(Ok(()), |error| Err(OpError::Invalid(error)))
}

/// Place of a value that stands for an operation.
enum PinPlace {
    Path(Path),
    Asset(AssetId),
}

impl PinReader<'_> {
    /// Returns the operation of a path: if a value there stands for one that the reader may read, that operation, after a
    /// check of the arguments against the value's schema; any other path stays as it is.
    pub async fn resolve_pin(&self, path: &str, arguments: &Value) -> Result<String, OpError> {
        let Some(found) = self.find(path).await? else { return Ok(path.to_owned()) };
        if let Some(schema) = &found.input {
            check_arguments(path, schema, arguments)?;
        }
        Ok(found.path)
    }

    /// Returns the operation for which the value at a path stands; `None` if the path is itself an operation.
    pub async fn find(&self, path: &str) -> Result<Option<PinnedOperation>, OpError> {
        let Some(place) = self.find_place(path)? else { return Ok(None) };
        let value = self.read_value(path, &place).await?;
        let catalog = self.catalog;
        if let Some(found) = PinnedOperation::read(catalog, path, &value)? {
            return Ok(Some(found));
        }
        // A pin of a value leads to the asset that holds the value.
        if let Some(id) = value["asset"].as_str().and_then(asset_of) {
            let kept = self.read_value(path, &PinPlace::Asset(id)).await?;
            if let Some(found) = PinnedOperation::read(catalog, path, &kept)? {
                return Ok(Some(found));
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
            if self.catalog.resolve(&path).is_none_or(|found| *found.spec.path != *RUN) {
                break;
            }
            let Some(asked) = arguments["operation"].as_str() else { break };
            let operation = self.resolve_pin(asked, &arguments["input"]).await?;
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
