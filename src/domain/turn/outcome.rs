//! The outcome of a call of a reply.

use crate::approval::{Approval, DecidedCall};
use crate::authority::Capability;
use crate::call::CallRefusal;
use crate::call::Outcome;
use crate::call::PlannedCall;
use crate::call::SentMarks;
use crate::ids::{AgentId, JobId};
use crate::load::LoadChange;
use crate::origin::SourceRead;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a call ended, with its effects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallOutcome {
    /// How the call ended: `ok`, `error`, `denied`, …
    pub outcome: Outcome,
    /// Text for the model.
    pub text: String,
    /// The whole result, in turns of a pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// A child job that is still running, and its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<(JobId, AgentId)>,
    /// Change of loads, goals or tools for later turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<LoadChange>,
    /// The call was not made, because a person must approve it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Box<ApprovalRequest>>,
    /// Capabilities that allowed the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Capability>,
    /// The call took effect when it was made, so the commit can't hold it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub went_out: bool,
    /// Note of the venue above the result: who has changed the call before it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Sources that the call has read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<SourceRead>,
    /// Start of the first attempt of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Millis>,
    /// Decision of a person on the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<DecidedCall>,
    /// Marks with which the call has left the venue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentMarks>,
}

/// A call that waits for a person's approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// The approval that is asked for.
    pub approval: Approval,
    /// The call to make when it is approved.
    pub planned: PlannedCall,
}

impl CallOutcome {
    /// Makes an outcome with a text and no effects.
    pub fn from_text(outcome: Outcome, text: impl Into<String>) -> Self {
        Self {
            outcome,
            text: text.into(),
            value: None,
            started: None,
            change: None,
            asked: None,
            needs: Vec::new(),
            went_out: false,
            note: None,
            reads: Vec::new(),
            began: None,
            decided: None,
            sent: None,
        }
    }

    /// Marks the outcome of a call that takes effect when it is made, if it was made.
    #[must_use]
    pub fn with_outward_effect(self) -> Self {
        let went_out = self.outcome.is_made() && self.outcome != Outcome::Awaiting;
        Self { went_out, ..self }
    }

    /// Adds the capabilities that allowed the call, if it was made.
    #[must_use]
    pub fn with_needs(self, needs: Vec<Capability>) -> Self {
        if self.outcome.is_made() { Self { needs, ..self } } else { self }
    }
}

impl From<&CallRefusal> for CallOutcome {
    fn from(unmade: &CallRefusal) -> Self {
        Self::from_text(unmade.outcome, &unmade.text)
    }
}
