//! Answers about the venue itself, beside those about its identity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A finished copy of an embedded store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupView {
    /// Folder of the copy, on the machine of the store.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Number of its records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}
