//! What a call of a reply came to.

use super::PlannedCall;
use crate::domain::approval::Approval;
use crate::domain::authority::Capability;
use crate::domain::context::load::Change;
use crate::domain::context::origin::Seen;
use crate::domain::ids::{AgentId, JobId};
use serde::{Deserialize, Serialize};

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallOutcome {
    /// `ok`, `error`, `denied`, …
    pub outcome: Outcome,
    /// What the model sees.
    pub text: String,
    /// A child job that is still running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<(JobId, AgentId)>,
    /// What it changes for the turns to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// It was not made: a person is asked first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Box<Asked>>,
    /// The capabilities that it was made by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Capability>,
    /// It took effect when it was made: the commit can't hold it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_out: bool,
    /// What was read for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Seen>,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// What is asked.
    pub approval: Approval,
    /// What is done when it is approved.
    pub planned: PlannedCall,
}

impl CallOutcome {
    /// One that is a text and nothing else.
    pub fn plain(outcome: Outcome, text: impl Into<String>) -> Self {
        Self {
            outcome,
            text: text.into(),
            started: None,
            change: None,
            asked: None,
            needs: Vec::new(),
            went_out: false,
            reads: Vec::new(),
        }
    }

    /// The same of a call that takes effect when it is made, if at all.
    #[must_use]
    pub fn outward(self) -> Self {
        let went_out = matches!(self.outcome, Outcome::Ok | Outcome::Error | Outcome::OutcomeUnknown);
        Self { went_out, ..self }
    }

    /// The same of a call that these capabilities let be made, if it was.
    #[must_use]
    pub fn by(self, needs: Vec<Capability>) -> Self {
        if self.outcome.is_made() { Self { needs, ..self } } else { self }
    }
}

/// Kind of a call's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It returned.
    Ok,
    /// It failed.
    Error,
    /// A capability was missing.
    Denied,
    /// There is no such tool, or its arguments were malformed.
    Unknown,
    /// The task was cancelled before or while it ran.
    Cancelled,
    /// It began before a crash, and what it did is not known.
    OutcomeUnknown,
    /// A person is asked first.
    Awaiting,
    /// A person has said no, or nobody said anything in time.
    Rejected,
}

impl Outcome {
    /// The call was made, or waits to be.
    pub const fn is_made(self) -> bool {
        match self {
            Self::Ok | Self::Error | Self::OutcomeUnknown | Self::Awaiting => true,
            Self::Denied | Self::Unknown | Self::Cancelled | Self::Rejected => false,
        }
    }

    /// As it stands in the timeline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Unknown => "unknown tool",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome unknown",
            Self::Awaiting => "awaiting approval",
            Self::Rejected => "rejected",
        }
    }
}
