//! Errors of operations and of what they call.

use crate::domain::authority::DenialError;
use crate::domain::decode::DataError;
use crate::store::StoreError;
use crate::venue::secrets::SecretError;
use crate::venue::workspace::WorkspaceError;
use std::sync::Arc;

/// Why an operation has no result.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// Arguments are invalid.
    #[error("{0}")]
    Invalid(String),
    /// Arguments don't fit the operation's schema.
    #[error("arguments of `{path}` are not valid: {}", list_misfits(.wrong))]
    Arguments {
        /// Path of the operation.
        path: Arc<str>,
        /// The first few violations.
        wrong: Vec<DataError>,
    },
    /// A capability is missing; the text is complete.
    #[error("{0}")]
    Denied(String),
    /// There is no such agent, job or operation.
    #[error("{0}")]
    NotFound(String),
    /// The state doesn't allow it.
    #[error("{0}")]
    Conflict(String),
    /// A limit of what may run or be kept is reached.
    #[error("{0}")]
    Limit(String),
    /// The operation was tried and failed.
    #[error("{0}")]
    Failed(String),
    /// Another server that the operation needs doesn't answer, or its reply is invalid.
    #[error("{0}")]
    Upstream(String),
    /// The operation took longer than allowed; it may be repeated, or had not begun.
    #[error("{0}")]
    Timeout(String),
    /// A call that must not be repeated ended without a usable answer.
    #[error("outcome unknown: {0}; it may or may not have happened; check before doing it again")]
    OutcomeUnknown(String),
    /// The running turn has lost its lease: it must stop.
    #[error("the lease was lost")]
    Fenced,
    /// The store failed: the whole turn is tried again later.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpError {
    /// Returns the error with its text changed. Errors of the store and of leases have no text from outside.
    pub(crate) fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            error @ Self::Arguments { .. } => Self::Invalid(change(error.to_string())),
            Self::Invalid(text) => Self::Invalid(change(text)),
            Self::Denied(text) => Self::Denied(change(text)),
            Self::NotFound(text) => Self::NotFound(change(text)),
            Self::Conflict(text) => Self::Conflict(change(text)),
            Self::Limit(text) => Self::Limit(change(text)),
            Self::Failed(text) => Self::Failed(change(text)),
            Self::Upstream(text) => Self::Upstream(change(text)),
            Self::Timeout(text) => Self::Timeout(change(text)),
            Self::OutcomeUnknown(text) => Self::OutcomeUnknown(change(text)),
            error @ (Self::Fenced | Self::Store(_)) => error,
        }
    }
}

fn list_misfits(wrong: &[DataError]) -> String {
    let one = |DataError { pointer, fact, .. }: &DataError| match pointer.as_str() {
        "" => fact.to_string(),
        place => format!("at `{place}`: {fact}"),
    };
    wrong.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl From<WorkspaceError> for OpError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Store(error) => Self::Store(error),
            WorkspaceError::VersionConflict { .. } => Self::Conflict(error.to_string()),
            WorkspaceError::Path(_)
            | WorkspaceError::NotHere { .. }
            | WorkspaceError::Change(_)
            | WorkspaceError::Refused(_) => Self::Invalid(error.to_string()),
        }
    }
}

impl From<DenialError> for OpError {
    fn from(error: DenialError) -> Self {
        Self::Denied(error.to_string())
    }
}

impl From<SecretError> for OpError {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Store(error) => Self::Store(error),
            SecretError::Missing(_) => Self::NotFound(error.to_string()),
            SecretError::NoKey | SecretError::Exists(_) | SecretError::TooMany => Self::Conflict(error.to_string()),
            SecretError::Sealed { .. } | SecretError::Random(_) => Self::Failed(error.to_string()),
        }
    }
}
