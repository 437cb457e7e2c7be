//! Exit codes, and a failure as its code and the text for the person who sees it.

use crate::store::StoreError;
use crate::venue::failure::OpError;
use std::fmt;
use std::process::ExitCode;

/// What a script can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// A fault of Trellis itself.
    Internal = 1,
    /// Bad arguments, input or configuration; nothing was done.
    Usage = 2,
    /// The job failed, was cancelled or was rejected.
    JobFailed = 3,
    /// The wait ended before the job; the job goes on.
    TimedOut = 4,
    /// No such agent, job or value.
    NotFound = 5,
    /// The state of things doesn't allow it.
    Conflict = 6,
    /// Not permitted.
    Denied = 7,
    /// A server doesn't answer.
    Unreachable = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that didn't do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The process ends with it.
    pub exit: Exit,
    /// What was wrong, where, and what to do.
    pub text: String,
}

impl Failure {
    /// Of an operation that this very process has run.
    pub fn operation(error: &OpError) -> Self {
        let exit = match error {
            OpError::Invalid(_) | OpError::Arguments { .. } | OpError::Store(StoreError::Oversized(_)) => Exit::Usage,
            OpError::NotFound(_) => Exit::NotFound,
            OpError::Conflict(_) => Exit::Conflict,
            OpError::Denied(_) => Exit::Denied,
            OpError::Store(_) => Exit::Unreachable,
            OpError::Limit(_)
            | OpError::Failed(_)
            | OpError::Upstream(_)
            | OpError::Timeout(_)
            | OpError::OutcomeUnknown(_)
            | OpError::Fenced => Exit::Internal,
        };
        Self::new(exit, error.to_string())
    }

    /// Any code.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    /// [`Exit::Usage`].
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// [`Exit::Internal`].
    pub fn internal(text: impl Into<String>) -> Self {
        Self::new(Exit::Internal, text)
    }

    /// The same with advice behind it, when it is about a thing that isn't there and says `what`: an unknown
    /// turn is not found by looking for agents.
    #[must_use]
    pub fn about(self, what: &str, advice: &str) -> Self {
        if self.text.contains(what) { self.hint(Exit::NotFound, advice) } else { self }
    }

    /// The same with advice behind it, when it is this kind of failure.
    #[must_use]
    pub fn hint(mut self, exit: Exit, advice: &str) -> Self {
        if self.exit == exit {
            self.text = format!("{}; {advice}", self.text);
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}
