//! Projects JSON Schemas to the subset that a provider takes.
//!
//! The projected schema is never stricter than the given one, as far as the subset allows; the value that comes back is
//! checked by the given schema. Keywords outside the subset are stated in a description. Values for which Gemini has no
//! type (maps with any keys, values of any type, numbers to choose from, deep and recursive parts) are sent as JSON
//! text, and [`Renames::restore`] reads it.

mod arguments;
mod gemini;
mod keys;
mod notes;
mod plain;
mod renames;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod union;

pub use renames::{JsonKind, Renames};

use super::dialect::SchemaSubset;
use crate::decode;
use crate::limits::SCHEMA_BYTES;
use serde_json::Value;
use source::{SchemaSource, size};

/// Most bytes of a projected schema.
const SENT_BYTES_MAX: usize = 4 * SCHEMA_BYTES;

/// A schema as a provider takes it, with the way back for its values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProjectedSchema {
    /// The schema to send: always an object of type `object` with `properties`, which are empty for a tool without
    /// arguments.
    pub schema: Value,
    /// How values of the projected schema differ from values of ours.
    pub renames: Renames,
}

/// Projects a schema to a subset. An error is the reason with its place.
pub fn project(schema: &Value, subset: SchemaSubset) -> Result<ProjectedSchema, String> {
    decode::check(schema).map_err(|wrong| format!("at `#`: {wrong}"))?;
    let bytes = size(schema);
    if bytes > SCHEMA_BYTES {
        return Err(format!("at `#`: the schema has {bytes} bytes, expected at most {SCHEMA_BYTES}"));
    }
    let mut source = SchemaSource::new(schema);
    let flat = source.flatten(schema, "#")?;
    let kinds = flat.fields.get("type").cloned();
    let Some(flat) = arguments::widen(&mut source, flat, "#")? else {
        let found = kinds.map_or_else(String::new, |kinds| format!(", got `\"type\": {kinds}`"));
        return Err(format!("at `#`: arguments are a map, expected a schema that a map fits{found}"));
    };
    let names = keys::PropertyNames::new(schema, subset);
    let projected = match subset {
        SchemaSubset::OpenAi | SchemaSubset::Anthropic => plain::project(source, &names, flat)?,
        SchemaSubset::Gemini => gemini::project(source, &names, &flat)?,
    };
    let bytes = size(&projected.schema);
    if bytes > SENT_BYTES_MAX {
        return Err(format!(
            "at `#`: with its references written out it has {bytes} bytes, expected at most {SENT_BYTES_MAX}"
        ));
    }
    Ok(projected)
}
