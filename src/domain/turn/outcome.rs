//! What a call of a reply came to.

use super::PlannedCall;
use crate::approval::Approval;
use crate::authority::Capability;
use crate::context::load::LoadChange;
use crate::context::origin::Seen;
use crate::ids::{AgentId, JobId};
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
    pub change: Option<LoadChange>,
    /// It was not made: a person is asked first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Box<Asked>>,
    /// The capabilities that it was made by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Capability>,
    /// It took effect when it was made: the commit can't hold it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_out: bool,
    /// What the venue says above its result: who has changed it before it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
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
            note: None,
            reads: Vec::new(),
        }
    }

    /// The same of a call that takes effect when it is made, if at all.
    #[must_use]
    pub fn outward(self) -> Self {
        let went_out = self.outcome.is_made() && self.outcome != Outcome::Awaiting;
        Self { went_out, ..self }
    }

    /// The same of a call that these capabilities let be made, if it was.
    #[must_use]
    pub fn by(self, needs: Vec<Capability>) -> Self {
        if self.outcome.is_made() { Self { needs, ..self } } else { self }
    }
}

/// Why a call can't be made: what a model is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub struct Unmade {
    /// The kind of reason.
    pub outcome: Outcome,
    /// What was wrong, and what to do.
    pub text: String,
}

/// Older versions kept the text alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kept {
    Text(String),
    Reason { outcome: Outcome, text: String },
}

impl From<Kept> for Unmade {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Text(text) => Self { outcome: Outcome::Unknown, text },
            Kept::Reason { outcome, text } => Self { outcome, text },
        }
    }
}

impl Unmade {
    /// For this reason.
    pub fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self { outcome, text: text.into() }
    }

    /// For arguments that don't fit.
    pub fn arguments(text: impl Into<String>) -> Self {
        Self::new(Outcome::Arguments, text)
    }
}

impl From<&Unmade> for CallOutcome {
    fn from(unmade: &Unmade) -> Self {
        Self::plain(unmade.outcome, &unmade.text)
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
    /// A capability was missing, or the operation is not for this request.
    Denied,
    /// There is no such tool.
    Unknown,
    /// It asked for sections of the context that it may not hand on.
    Scope,
    /// Its arguments are not what the tool takes.
    Arguments,
    /// A limit is reached: of children, loads, goals, or of what is handed on.
    Limit,
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
            // An operation may have looked before it refused what it was given.
            Self::Ok | Self::Error | Self::Arguments | Self::Limit | Self::OutcomeUnknown | Self::Awaiting => true,
            Self::Denied | Self::Unknown | Self::Scope | Self::Cancelled | Self::Rejected => false,
        }
    }

    /// As it stands in the timeline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Unknown => "unknown tool",
            Self::Scope => "refused scope",
            Self::Arguments => "bad arguments",
            Self::Limit => "limit reached",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome unknown",
            Self::Awaiting => "awaiting approval",
            Self::Rejected => "rejected",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_reason_has_its_word_and_reads_back_also_from_older_records() {
        for (outcome, word, kept) in [
            (Outcome::Unknown, "unknown tool", "unknown"),
            (Outcome::Denied, "denied", "denied"),
            (Outcome::Scope, "refused scope", "scope"),
            (Outcome::Arguments, "bad arguments", "arguments"),
            (Outcome::Limit, "limit reached", "limit"),
            (Outcome::Cancelled, "cancelled", "cancelled"),
            (Outcome::Rejected, "rejected", "rejected"),
        ] {
            let unmade = Unmade::new(outcome, "why");
            assert_eq!((outcome.as_str(), json!(unmade)), (word, json!({"outcome": kept, "text": "why"})));
            assert_eq!(serde_json::from_value::<Unmade>(json!(unmade)).unwrap(), unmade);
        }
        let old: Result<(), Unmade> = serde_json::from_value(json!({"Err": "unknown tool `x`"})).unwrap();
        assert_eq!(old, Err(Unmade::new(Outcome::Unknown, "unknown tool `x`")));
    }
}
