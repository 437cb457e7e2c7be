//! A projected schema.

use super::renames::Renames;
use serde_json::Value;

/// A schema as a provider takes it, with the way back for its values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProjectedSchema {
    /// The schema to send: always an object of type `object` with `properties`, which are empty for a tool without
    /// arguments.
    pub schema: Value,
    /// How values of the projected schema differ from values of ours.
    pub renames: Renames,
}
