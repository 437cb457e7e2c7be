//! Size limits of an agent's prompts.

use crate::limits::{CONTEXT_BYTES_RANGE, CONTEXT_TOKENS_RANGE};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

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

/// A size limit of prompts that is out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`contextBudget.{key}`: expected {} to {}, got {found}", .range.start(), .range.end())]
pub struct ContextBudgetError {
    /// Key of the limit.
    pub key: &'static str,
    /// Range of the limit.
    pub range: RangeInclusive<usize>,
    /// Number that was given.
    pub found: usize,
}

impl ContextBudget {
    /// Checks that both limits are within their ranges.
    pub fn check(&self) -> Result<(), ContextBudgetError> {
        for (key, given, range) in
            [("bytes", self.bytes, CONTEXT_BYTES_RANGE), ("tokens", self.tokens, CONTEXT_TOKENS_RANGE)]
        {
            if let Some(found) = given.filter(|given| !range.contains(given)) {
                return Err(ContextBudgetError { key, range, found });
            }
        }
        Ok(())
    }
}
