//! A preview of the next turn of a session; it changes nothing.

use super::{PromptView, Transcript, begin_turn, decode_inbox, decode_state};
use crate::domain::agent::AgentConfig;
use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::grant::{self, GrantError};
use crate::domain::context::inputs::Inputs;
use crate::domain::event::{Event, NAME, Payload, new_session_id};
use crate::domain::ids::{AgentId, EventId, JobId, Owner, SessionId, SessionKey};
use crate::domain::turn::run::{PendingEvent, SessionRun};
use crate::domain::turn::{NextTurn, Turn, TurnInput};
use crate::domain::values::Values;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::agents::{self, sessions};
use crate::venue::outside_tools;
use crate::venue::policy;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Event id and mailbox key of the task in a preview, which nobody has sent.
const EVENT: &str = "preview";

/// A request to preview the next turn of a session.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Preview {
    /// Task that the turn serves besides the pending events; absent: none.
    pub task: Option<Value>,
    /// Values of the task; refused without one, as `contextIds` and `context` are. Who sends it is said by the token:
    /// `user_id`, `user_name`, `user_email` and `user.id`, `user.name`, `user.email`, however they are spelt, are left out
    /// and named in `ignored`.
    #[schemars(with = "Option<Values>")]
    pub session_context: Values,
    /// Shared buckets that the task names.
    pub context_ids: Vec<String>,
    /// Grants of that task: capabilities, or names of resource namespaces; absent: all that the caller holds.
    pub context: Option<Vec<Value>>,
    /// Identity of the caller: the task may do no more.
    #[serde(skip)]
    #[schemars(skip)]
    pub envelope: Envelope,
    /// Name of the caller; the owner's if absent.
    #[serde(skip)]
    #[schemars(skip)]
    pub caller: Option<String>,
    /// Session of the turn; absent: a new one.
    #[schemars(with = "Option<String>", regex(pattern = NAME))]
    pub session: Option<SessionId>,
}

impl Preview {
    /// Checks that nothing is given for the request of a task that isn't given: it would count for nothing.
    fn check_task(&self) -> Result<(), PreviewError> {
        let given = [
            ("context", self.context.is_some()),
            ("contextIds", !self.context_ids.is_empty()),
            ("sessionContext", !self.session_context.is_empty()),
        ];
        let given = given.into_iter().find(|(_, is_given)| self.task.is_none() && *is_given);
        given.map_or(Ok(()), |(key, _)| Err(PreviewError::NoTask(key)))
    }
}

/// Why there is no preview.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// There is no such agent.
    #[error("no agent `{0}`")]
    NoAgent(AgentId),
    /// The agent has no such session.
    #[error("no session `{0}`: nothing was ever sent to it")]
    NoSession(SessionKey),
    /// The turn serves a request that holds more than the caller.
    #[error("the next turn of session `{0}` serves a request that holds more than you: it is not shown")]
    Withheld(SessionKey),
    /// A key that belongs to a task is given without one; holds the key.
    #[error("`{0}`: it belongs to the request of a task, and there is no `task`: give `task` too")]
    NoTask(&'static str),
    /// The agent asks no model.
    #[error("agent `{0}` is a pipeline: it asks no model and has no prompt; the sessions of its steps have")]
    Pipeline(AgentId),
    /// A grant breaks a rule.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session between two turns.
struct IdleSession {
    key: SessionKey,
    run: SessionRun,
    transcript: Transcript,
}

/// Returns the inputs of the prompt that the next turn would have.
pub async fn inputs(venue: &Venue, owner: &Owner, id: &AgentId, asked: Preview) -> Result<Inputs, PreviewError> {
    Box::pin(next_inputs(venue, owner, id, asked)).await
}

/// [`inputs`], boxed there because of its size.
async fn next_inputs(venue: &Venue, owner: &Owner, id: &AgentId, asked: Preview) -> Result<Inputs, PreviewError> {
    let Some((agent, _)) = agents::get(venue, owner, id).await? else {
        return Err(PreviewError::NoAgent(id.clone()));
    };
    asked.check_task()?;
    let reader = asked.envelope.bound.clone();
    let IdleSession { key, mut run, mut transcript } = read_idle_session(venue, owner, id, asked).await?;
    let is_expired = empty_if_expired(venue, &agent.config, &mut run, &mut transcript);
    let (policy, _) = policy::load(&*venue.store, owner).await?;
    let (mut plan, _) = run.plan_under_policy(&policy, &agent, &key);
    let (served, _) = plan.take_agent(&agent);
    let agent = served.map_or(agent, |served| *served);
    if agent.config.pipeline.is_some() {
        return Err(PreviewError::Pipeline(id.clone()));
    }
    let (start, date) = venue.day();
    let next = NextTurn { owner, session: &key, start, date };
    let turn_input = Box::new(TurnInput::for_next_turn(next, &agent, &run, plan, &policy));
    if !reader.covers_reading(&turn_input.mandate.envelope.bound) {
        return Err(PreviewError::Withheld(key));
    }
    outside_tools::prepare_preview(venue, owner, &agent, &run.state.tools).await?;
    let mut catalog = venue.catalog_of_agent(owner, id);
    let (turn_input, workspace, pinned) = begin_turn(venue, &mut catalog, &agent, turn_input, is_expired).await?;
    let (turn, _) = Turn::begin(turn_input, venue.now());
    let agent = pinned.as_deref().unwrap_or(&agent);
    let view = PromptView { venue, catalog: &catalog, turn_input: turn.input(), agent, workspace: &workspace };
    Ok(view.inputs(transcript.records()).await?)
}

/// Empties the session if its time to live is over at the turn. Returns whether it had expired.
fn empty_if_expired(venue: &Venue, config: &AgentConfig, run: &mut SessionRun, transcript: &mut Transcript) -> bool {
    let at = run.first_arrival().unwrap_or_else(|| venue.now());
    let last = transcript.last().map(|record| record.end);
    let expired = config.session.ttl.as_ref().zip(last).is_some_and(|(ttl, last)| run.reset_if_expired(ttl, last, at));
    if expired {
        *transcript = Transcript::default();
    }
    expired
}

/// Reads the session as it is, and adds the task after the pending events. A session that is named must exist; without a
/// name it is a new one.
async fn read_idle_session(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    asked: Preview,
) -> Result<IdleSession, PreviewError> {
    let event = EventId::new(EVENT).expect("a legal id");
    let job = JobId::derive(&venue.key, owner, &event);
    let id = id.clone();
    let (key, facts) = match asked.session {
        None => (SessionKey { agent: id, session: new_session_id(&job) }, None),
        Some(session) => {
            let key = SessionKey { agent: id, session };
            let facts = sessions::find(venue, owner, &key).await?;
            let facts = facts.ok_or_else(|| PreviewError::NoSession(key.clone()))?;
            (key, Some(facts))
        }
    };
    let (mut run, transcript) = match &facts {
        None => (SessionRun::default(), Transcript::default()),
        Some(facts) => {
            let state = decode_state(facts.state.as_ref())?;
            let transcript = Transcript::read(&*venue.store, owner, &key, facts.version, state.since).await?;
            let mail = venue.store.pending_events(owner, &key).await?;
            (SessionRun::new(facts.version, state, decode_inbox(&mail)?, false), transcript)
        }
    };
    let grants = asked.context.map(|grants| grant::parse(&grants, &venue.boundaries)).transpose()?;
    let envelope = asked.envelope.narrow_to_grants(grants);
    let task = asked.task.map(|input| Event {
        caller: asked.caller.or_else(|| Some(owner.to_string())),
        session_context: asked.session_context,
        context_ids: asked.context_ids,
        envelope,
        ..Event::new(event, venue.now(), Payload::Task { job, input })
    });
    run.inbox.extend(task.map(|event| PendingEvent { key: EVENT.into(), event, crashes: 0, status: None }));
    Ok(IdleSession { key, run, transcript })
}
