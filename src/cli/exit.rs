//! Exit codes, and failures: an exit code and a text for people.

use crate::store::StoreError;
use crate::venue::failure::OpError;
use std::fmt;
use std::process::ExitCode;

/// Exit code of the process, by which scripts distinguish results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Ok = 0,
    /// Trellis itself failed, or a check found a problem.
    Internal = 1,
    /// Arguments, input or configuration are wrong; nothing was done.
    Usage = 2,
    /// The job failed, was cancelled or was rejected.
    JobFailed = 3,
    /// The wait ended before the job; the job goes on.
    TimedOut = 4,
    /// There is no such agent, job or value.
    NotFound = 5,
    /// The state doesn't allow the change.
    Conflict = 6,
    /// The caller isn't permitted to do it.
    Denied = 7,
    /// A server doesn't answer.
    Unreachable = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit code of the process.
    pub exit: Exit,
    /// Message for the user: the error, its place and the next step.
    pub text: String,
}

impl Failure {
    /// Makes the failure of an operation that this process has run.
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

    /// Makes a failure with this exit code.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    /// Makes a failure with [`Exit::Usage`].
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// Makes a failure with [`Exit::Internal`].
    pub fn internal(text: impl Into<String>) -> Self {
        Self::new(Exit::Internal, text)
    }

    /// Appends advice if something was not found and the text contains `what`: a missing turn isn't found by looking
    /// for agents.
    #[must_use]
    pub fn with_advice_on(self, what: &str, advice: &str) -> Self {
        if self.text.contains(what) { self.with_advice(Exit::NotFound, advice) } else { self }
    }

    /// Appends advice if the failure has this exit code.
    #[must_use]
    pub fn with_advice(mut self, exit: Exit, advice: &str) -> Self {
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
