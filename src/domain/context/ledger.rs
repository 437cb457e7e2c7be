//! The ledger: what each part of a prompt was, where it came from, and why it was cut.

use super::budget::PromptBudget;
use crate::origin::Origin;
use crate::values::placeholder::UsedKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a part in the prompt: whole, shortened or absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowStatus {
    /// All of it is in the prompt.
    Full,
    /// The prompt holds a shortened form.
    Shrunk,
    /// There was no room for it.
    Dropped,
    /// Nothing was stored there.
    Missing,
    /// The authority had no capability for it.
    Denied,
    /// It could not be fetched.
    Failed,
}

impl RowStatus {
    /// Returns the word for tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Shrunk => "shrunk",
            Self::Dropped => "dropped",
            Self::Missing => "missing",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

/// The record of one part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Key: `system`, `tools`, `context/<label>`, `loads/<path>`, `map`, `transcript`, `pending/<job>`,
    /// `inbox/<event>`, `scope/<key>`, `input`.
    pub key: String,
    /// Path, asset, job or operation that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Capability that allowed the read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Bytes that it asked for.
    pub asked: usize,
    /// Bytes that it was given.
    pub given: usize,
    /// Bytes that it has in the prompt.
    pub rendered: usize,
    /// State of the part in the prompt.
    pub status: RowStatus,
    /// Reason for a shortened or absent part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `version` and `hash` of the source, and the sources that were read for it.
    #[serde(flatten)]
    pub origin: Origin,
}

impl Row {
    /// Makes the row of a part that is never cut.
    pub fn new_fixed(key: &str, bytes: usize) -> Self {
        Self {
            key: key.to_owned(),
            source: None,
            allowed: None,
            asked: bytes,
            given: bytes,
            rendered: bytes,
            status: RowStatus::Full,
            reason: None,
            origin: Origin::default(),
        }
    }
}

/// The record of what a model saw in one turn, part by part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptLedger {
    /// Bytes of the budget, and the ratio of characters to tokens.
    pub budget: PromptBudget,
    /// Bytes used by the prompt.
    pub used: usize,
    /// Parts in the order of the prompt.
    pub rows: Vec<Row>,
    /// Placeholders that were filled in, with the tier of each value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<UsedKey>,
    /// Placeholders without a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<String>,
    /// Values that were too long for their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// Names of the tools that were offered.
    pub tools: Vec<String>,
    /// Tools that could not be offered, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(String, String)>,
    /// Bindings and `_auto` rows that could not be kept: place or tool, and the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<(String, String)>,
    /// SHA-256 of system prompt and tools, which a provider's cache keeps.
    pub prefix: String,
    /// SHA-256 of the whole prompt.
    pub prompt: String,
    /// Form of the prompt that was hashed.
    #[serde(default)]
    pub form: HashForm,
}

/// The form of a prompt that is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HashForm {
    /// The request without `turn`, as canonical JSON of RFC 8785.
    #[default]
    Canonical,
    /// Fields with their lengths in front, as older versions recorded it.
    Fields,
}

impl PromptLedger {
    /// Returns the bytes of the budget that were not used.
    pub const fn bytes_left(&self) -> usize {
        self.budget.bytes.saturating_sub(self.used)
    }

    /// Returns the percentage of the budget that was used.
    pub const fn percent(&self) -> usize {
        self.used.saturating_mul(100) / self.budget.bytes
    }
}
