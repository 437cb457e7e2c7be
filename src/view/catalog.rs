//! Answers about the catalog of operations and tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An operation, under its path or an alias of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationView {
    /// Its path, or the alias under which it is listed.
    pub name: String,
    /// Path of the operation in the lattice.
    pub asset: String,
    /// Description for models and people.
    pub description: String,
    /// JSON Schema of its input.
    #[schemars(with = "Map<String, Value>")]
    pub input: Value,
    /// Whether it only reads, so that it may be repeated.
    pub read_only: bool,
}

/// Metadata of an operation, as the lattice shows it below `v/ops`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationNodeView {
    /// Its path, or the alias under which it is listed.
    pub name: String,
    /// Description for models and people.
    pub description: String,
    /// How it is called.
    pub operation: OperationCallView,
}

/// How an operation is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationCallView {
    /// Covia's name of the operation: group and name with a colon between them.
    pub adapter: String,
    /// JSON Schema of its input.
    #[schemars(with = "Map<String, Value>")]
    pub input: Value,
}
