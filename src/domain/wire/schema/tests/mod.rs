//! Schemas in, schemas out.

mod gemini;
mod hostile;
mod plain;
mod random;
pub mod rules;

use super::{JsonKind, ProjectedSchema, Renames, project};
use crate::wire::dialect::SchemaSubset;
use serde_json::Value;

/// Every subset.
const SUBSETS: [SchemaSubset; 3] = [SchemaSubset::OpenAi, SchemaSubset::Anthropic, SchemaSubset::Gemini];

/// Projects a schema, and checks the result by the rules of the provider.
fn sent(schema: &Value, subset: SchemaSubset) -> ProjectedSchema {
    let projected = project(schema, subset).unwrap_or_else(|error| panic!("{error}: {schema}"));
    if let Some(wrong) = rules::wrong(&projected.schema, subset) {
        panic!("{subset:?} refuses {wrong}\nof {schema}\nas {}", projected.schema);
    }
    projected
}
