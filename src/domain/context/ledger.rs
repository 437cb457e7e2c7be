//! The ledger: what every part of a prompt was, where it came from, and why it was cut.

use super::budget::PromptBudget;
use crate::origin::Origin;
use crate::values::placeholder::UsedKey;
use serde::{Deserialize, Serialize};

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All of it is in the prompt.
    Full,
    /// A part of it is.
    Shrunk,
    /// It is not, for want of room.
    Dropped,
    /// Nothing was there.
    Missing,
    /// No capability for it.
    Denied,
    /// It could not be fetched.
    Failed,
}

impl Status {
    /// As tables show it.
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

/// One part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// `system`, `tools`, `context/<label>`, `loads/<path>`, `map`, `transcript`, `pending/<job>`,
    /// `inbox/<event>`, `scope/<key>`, `input`.
    pub key: String,
    /// Path, asset, job or operation that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The capability that allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Bytes that it asked for.
    pub asked: usize,
    /// Bytes that it was given.
    pub given: usize,
    /// Bytes that it has in the prompt.
    pub rendered: usize,
    /// What became of it.
    pub status: Status,
    /// Why it is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `version` and `hash` of what was there, and what was read for it.
    #[serde(flatten)]
    pub origin: Origin,
}

impl Row {
    /// A part that is never cut.
    pub fn fixed(key: &str, bytes: usize) -> Self {
        Self {
            key: key.to_owned(),
            source: None,
            allowed: None,
            asked: bytes,
            given: bytes,
            rendered: bytes,
            status: Status::Full,
            reason: None,
            origin: Origin::default(),
        }
    }
}

/// What a model saw in one turn, part by part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Bytes allowed and the ratio of bytes to tokens.
    pub budget: PromptBudget,
    /// Bytes used.
    pub used: usize,
    /// Parts in the order of the prompt.
    pub rows: Vec<Row>,
    /// Placeholders that were filled in, and from which tier.
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
    /// Tools that could not be offered, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(String, String)>,
    /// Bindings and `_auto` rows that could not be kept: place or tool, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<(String, String)>,
    /// SHA-256 of system prompt and tools, which a provider's cache keeps.
    pub prefix: String,
    /// SHA-256 of the whole prompt.
    pub prompt: String,
    /// Of which form of it.
    #[serde(default)]
    pub form: Form,
}

/// What of a prompt is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The request without `turn`, as canonical JSON after RFC 8785.
    #[default]
    Canonical,
    /// Its fields behind their lengths: what versions before have recorded.
    Fields,
}

impl Ledger {
    /// Bytes that were not used.
    pub const fn left(&self) -> usize {
        self.budget.bytes.saturating_sub(self.used)
    }

    /// Percent of the budget that was used.
    pub const fn percent(&self) -> usize {
        self.used.saturating_mul(100) / self.budget.bytes
    }
}
