//! A denied capability, with what needed it.

use super::CapabilityDenied;

/// A use that is denied, because a capability for it is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .denied.model_text(.operation))]
pub struct DenialError {
    /// What needed the capability: a tool, a section, or `the request`.
    pub operation: String,
    /// The missing capability.
    pub denied: CapabilityDenied,
}

impl DenialError {
    /// Makes the error of an operation.
    pub fn new(operation: &str, denied: CapabilityDenied) -> Self {
        Self { operation: operation.to_owned(), denied }
    }
}
