//! Projects JSON Schemas to the subset that a provider takes.
//!
//! The projected schema is never stricter than the given one, as far as the subset allows; the value that comes back is
//! checked by the given schema. Keywords outside the subset are stated in a description. Values for which Gemini has no
//! type (maps with any keys, values of any type, numbers to choose from, deep and recursive parts) are sent as JSON
//! text, and [`Renames::restore`] reads it.

mod arguments;
mod error;
mod gemini;
mod keys;
mod notes;
mod plain;
mod renames;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod union;

pub use error::{ProjectionError, ProjectionFault};
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

/// Projects a schema to a subset.
pub fn project(schema: &Value, subset: SchemaSubset) -> Result<ProjectedSchema, ProjectionError> {
    decode::check(schema).map_err(|error| ProjectionFault::Data(Box::new(error)).at("#"))?;
    let bytes = size(schema);
    if bytes > SCHEMA_BYTES {
        return Err(ProjectionFault::TooLarge { bytes }.at("#"));
    }
    let mut source = SchemaSource::new(schema);
    let flat = source.flatten(schema, "#")?;
    let kinds = flat.fields.get("type").cloned();
    let Some(flat) = arguments::widen(&mut source, flat, "#")? else {
        return Err(ProjectionFault::NoMap { kinds: kinds.map(Box::new) }.at("#"));
    };
    let names = keys::PropertyNames::new(schema, subset);
    let projected = match subset {
        SchemaSubset::OpenAi | SchemaSubset::Anthropic => plain::project(source, &names, flat)?,
        SchemaSubset::Gemini => gemini::project(source, &names, &flat)?,
    };
    let bytes = size(&projected.schema);
    if bytes > SENT_BYTES_MAX {
        return Err(ProjectionFault::TooLargeProjected { bytes }.at("#"));
    }
    Ok(projected)
}
