//! Whether a person is asked before a call is made.

use serde::{Deserialize, Serialize};

/// Whether a tool's calls wait for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consent {
    /// They are made at once.
    #[default]
    None,
    /// They wait until a person has approved them.
    Ask,
}

impl Consent {
    /// Nobody is asked.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}
