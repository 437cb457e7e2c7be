//! `v/ops/job/outcomes` and `settle`: calls of unknown outcome.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::{EventId, JobId, VenueIdSubject};
use crate::domain::lattice::Namespace;
use crate::domain::limits::LIST_PAGE;
use crate::domain::outcome::{OutcomeSettlement, UnknownOutcome};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, Site, dispatch};
use crate::venue::outcomes;
use crate::view::outcome::{OutcomePage, OutcomeView};
use crate::view::request::AgentMessageRequest;
use crate::view::to_json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Calls that must not be repeated and of which nobody knows whether they happened, the newest first.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ListOutcomes {
    /// those that are settled too
    #[serde(default)]
    all: bool,
    #[serde(default)]
    offset: usize,
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

impl Operation for ListOutcomes {
    const PATH: &'static str = "v/ops/job/outcomes";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Jobs))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let (offset, limit) = (self.offset, self.limit.unwrap_or(LIST_PAGE).clamp(1, LIST_PAGE));
        let page = outcomes::list(call.venue, &call.caller.owner, self.all, offset, limit).await?;
        let (items, next) = (page.items.iter().map(OutcomeView::from).collect(), page.next_offset(offset));
        Ok(OpOutput::of(&OutcomePage { items, total: page.total, offset, next }))
    }
}

/// Say whether a call of unknown outcome has happened. It counts once, and changes neither job nor turn.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SettleOutcome {
    /// as `job/outcomes` shows it
    id: JobId,
    /// it has happened
    done: bool,
    /// what it returned, of a call that has happened
    result: Option<Value>,
    /// why, for the record
    note: Option<String>,
    /// send it to the agent's session as a message, which wakes it
    #[serde(default)]
    tell: bool,
}

impl Operation for SettleOutcome {
    const PATH: &'static str = "v/ops/job/settle";
    const EFFECT: Effect = Effect::Idempotent;

    /// The needed capability depends on the call, and is checked when the outcome is settled.
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let Self { id, done, result, note, tell } = self;
        let by = call.caller.name.clone();
        let settlement = OutcomeSettlement { done, result, note, by, at: call.venue.now() };
        let outcome = outcomes::settle(call.venue, call.caller, &id, settlement).await?;
        if tell {
            tell_agent(call, &outcome).await?;
        }
        Ok(OpOutput::of(&OutcomeView::from(&outcome)))
    }
}

/// Message to an agent about a call whose outcome is known now.
#[derive(Serialize)]
struct SettlementNotice<'a> {
    /// `done` or `not done`.
    settled: &'static str,
    /// Place of the call.
    about: String,
    operation: &'a str,
    /// Result of the call; null if it is unknown, or the call has not happened.
    result: Option<&'a Value>,
    /// Reason for the record; null without one.
    note: Option<&'a str>,
}

/// Sends the settlement to the session of the call, once, if the caller may send messages to it.
async fn tell_agent(call: &Invocation<'_>, outcome: &UnknownOutcome) -> Result<(), OpError> {
    let (Some(place), Some(settled)) = (&outcome.call, &outcome.settled) else {
        return Err(OpError::Invalid("no agent made this call: there is none to tell; it is settled".into()));
    };
    let notice = SettlementNotice {
        settled: if settled.done { "done" } else { "not done" },
        about: format!("call {} (`{}`) of turn {}, whose outcome was unknown", place.index, place.tool, place.turn),
        operation: &outcome.operation,
        result: settled.result.as_ref(),
        note: settled.note.as_deref(),
    };
    let request = AgentMessageRequest {
        agent_id: &place.session.agent,
        session_id: Some(&place.session.session),
        message: to_json(&notice),
        context_ids: Vec::new(),
    };
    let key = EventId::of_venue(&call.venue.key, VenueIdSubject::Answer(&outcome.id));
    let call = Invocation { site: Site::Api { key: Some(key), job: None }, ..call.clone() };
    Box::pin(dispatch::invoke(&call, "v/ops/agent/message", to_json(&request))).await.map(drop)
}
