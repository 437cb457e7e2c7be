//! Answers about resources: what agents keep under resource namespaces, and its erasure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Namespaces under which something is kept, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceListView {
    /// One row for each kind of a namespace.
    pub resources: Vec<ResourceCountView>,
}

/// Number of things that one kind of resource keeps in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceCountView {
    /// Namespace without `r/`, e.g. `app/user/u1`.
    pub namespace: String,
    /// Kind of the resource, e.g. `memory`.
    pub kind: String,
    /// Number of entries, files or notes.
    pub count: usize,
}

/// What was erased of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePurgeView {
    /// Namespace without `r/`.
    pub namespace: String,
    /// Whether everything below the namespace was erased, too.
    pub recursive: bool,
    /// Numbers of deleted entries, files, notes and things of other servers, by kind.
    pub purged: BTreeMap<String, usize>,
    /// Numbers of erased records.
    pub erased: ErasedRecordsView,
    /// Kinds whose servers can't be asked to delete; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_purged: Option<Vec<String>>,
}

/// Numbers of records that were erased because they ran under a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErasedRecordsView {
    /// Number of erased turns.
    pub turns: usize,
    /// Number of jobs whose inputs and outputs were erased.
    pub jobs: usize,
    /// Number of deleted dead letters.
    pub dead_letters: usize,
    /// Number of deleted timers.
    pub timers: usize,
}
