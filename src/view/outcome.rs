//! Answers about calls of unknown outcome.

use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::outcome::{OutcomeSettlement, UnknownCall, UnknownOutcome};
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page of an owner's calls of unknown outcome, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomePage {
    /// Calls of the page.
    pub items: Vec<OutcomeView>,
    /// Calls in all.
    pub total: usize,
    /// Calls that were left out before the page.
    pub offset: usize,
    /// `offset` of the next page; null after the last.
    pub next: Option<usize>,
}

/// A call that must not be repeated and of which nobody knows whether it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeView {
    /// Id of the call, for its settlement.
    pub id: JobId,
    /// The task in whose service the call was made, or the job of an operation that was invoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Catalog path of the operation, or the tool of a resource.
    pub operation: String,
    /// Where the call stands, when a turn made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallPlaceView>,
    /// Who made the call, of one that was run and is no job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// When it was recorded, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Millis,
    /// What a person has found out about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<OutcomeSettlement>,
}

/// Place of a call that a turn made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallPlaceView {
    /// Agent of the turn.
    pub agent: AgentId,
    /// Session of the turn.
    pub session: SessionId,
    /// Number of the turn whose reply has the call, from 1.
    pub turn: u64,
    /// Place of the call in that reply, from 0.
    pub index: u32,
    /// Name by which the model called the tool.
    pub tool: String,
}

impl From<&UnknownOutcome> for OutcomeView {
    fn from(outcome: &UnknownOutcome) -> Self {
        Self {
            id: outcome.id.clone(),
            job: outcome.job.clone(),
            operation: outcome.operation.clone(),
            call: outcome.call.as_ref().map(CallPlaceView::from),
            caller: outcome.caller.clone(),
            at: outcome.at,
            settled: outcome.settled.clone(),
        }
    }
}

impl From<&UnknownCall> for CallPlaceView {
    fn from(call: &UnknownCall) -> Self {
        Self {
            agent: call.session.agent.clone(),
            session: call.session.session.clone(),
            turn: call.turn,
            index: call.index,
            tool: call.tool.clone(),
        }
    }
}
