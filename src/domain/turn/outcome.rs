//! What a call of a reply came to.

use crate::approval::{Approval, DecidedCall};
use crate::authority::Capability;
use crate::call::Outcome;
use crate::call::PlannedCall;
use crate::call::Unmade;
use crate::ids::{AgentId, JobId};
use crate::load::LoadChange;
use crate::origin::Seen;
use crate::time::Millis;
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
    /// When it was first made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Millis>,
    /// How it was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<DecidedCall>,
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
            began: None,
            decided: None,
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

impl From<&Unmade> for CallOutcome {
    fn from(unmade: &Unmade) -> Self {
        Self::plain(unmade.outcome, &unmade.text)
    }
}
