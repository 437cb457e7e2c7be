//! Size limits of an agent's prompts.

use crate::limits::{CONTEXT_BYTES_RANGE, CONTEXT_TOKENS_RANGE};
use serde::{Deserialize, Serialize};

/// `contextBudget` of an agent; the stricter of two given limits counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextBudget {
    /// Bytes of a prompt at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// Tokens of a prompt at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
}

impl ContextBudget {
    /// Checks that both limits are within their ranges.
    pub fn check(&self) -> Result<(), String> {
        for (name, given, range) in
            [("bytes", self.bytes, CONTEXT_BYTES_RANGE), ("tokens", self.tokens, CONTEXT_TOKENS_RANGE)]
        {
            if let Some(given) = given.filter(|given| !range.contains(given)) {
                let (least, most) = (range.start(), range.end());
                return Err(format!("`contextBudget.{name}`: expected {least} to {most}, got {given}"));
            }
        }
        Ok(())
    }
}
