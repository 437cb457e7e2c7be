//! Consent of a person before a call is made.

use serde::{Deserialize, Serialize};

/// Whether a tool's calls wait for a person's approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consent {
    /// Calls are made at once.
    #[default]
    None,
    /// Calls wait until a person has approved them.
    Ask,
}

impl Consent {
    /// Whether calls need no approval.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}
