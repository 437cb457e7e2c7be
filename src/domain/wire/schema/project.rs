//! Projects a schema to a subset.

use super::error::{ProjectionError, ProjectionFault};
use super::limits::SENT_BYTES_MAX;
use super::projected::ProjectedSchema;
use super::source::{SchemaSource, size};
use super::{arguments, gemini, keys, plain};
use crate::decode;
use crate::limits::SCHEMA_BYTES;
use crate::wire::dialect::SchemaSubset;
use serde_json::Value;

/// Projects a schema to a subset.
pub fn project(schema: &Value, subset: SchemaSubset) -> Result<ProjectedSchema, ProjectionError> {
    decode::check(schema).map_err(|error| ProjectionFault::Data(Box::new(error)).into_error("#"))?;
    let bytes = size(schema);
    if bytes > SCHEMA_BYTES {
        return Err(ProjectionFault::TooLarge { bytes }.into_error("#"));
    }
    let mut source = SchemaSource::new(schema);
    let flat = source.flatten(schema, "#")?;
    let kinds = flat.fields.get("type").cloned();
    let Some(flat) = arguments::widen(&mut source, flat, "#")? else {
        return Err(ProjectionFault::NoMap { kinds: kinds.map(Box::new) }.into_error("#"));
    };
    let names = keys::PropertyNames::new(schema, subset);
    let projected = match subset {
        SchemaSubset::OpenAi | SchemaSubset::Anthropic => plain::project(source, &names, flat)?,
        SchemaSubset::Gemini => gemini::project(source, &names, &flat)?,
    };
    let bytes = size(&projected.schema);
    if bytes > SENT_BYTES_MAX {
        return Err(ProjectionFault::TooLargeProjected { bytes }.into_error("#"));
    }
    Ok(projected)
}
