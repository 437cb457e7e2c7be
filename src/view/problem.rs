//! Answers about refusals.

use crate::domain::decode::{Code, DataError, Fact};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong: problem details of RFC 9457, with Covia's `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemView {
    /// Always `about:blank`: the status says which kind of problem it is.
    pub r#type: String,
    /// Phrase of the status.
    pub title: String,
    /// Status of the answer.
    pub status: u16,
    /// What went wrong, in words.
    pub detail: String,
    /// The same as `detail`.
    pub error: String,
    /// What is wrong with the data that was sent; absent if it isn't about data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<MisfitView>>,
    /// `QUOTA_EXCEEDED` with 507: the owner's quota is reached; delete something, or ask an operator for more.
    /// `OUTCOME_UNKNOWN` with 500: the call may have happened. Absent with other problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// What is wrong with data that was sent, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MisfitView {
    /// JSON pointer into the data; empty for all of it.
    pub pointer: String,
    /// Kind of rule that the data breaks.
    pub code: Code,
    /// What is wrong, in words.
    pub reason: String,
    /// Values that are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Value that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Nearest right form, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<&DataError> for MisfitView {
    fn from(error: &DataError) -> Self {
        let Fact { code, reason, expected, found, hint, .. } = &*error.fact;
        Self {
            pointer: error.pointer.clone(),
            code: *code,
            reason: reason.clone(),
            expected: expected.clone(),
            found: found.clone(),
            hint: hint.clone(),
        }
    }
}
