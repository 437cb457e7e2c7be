//! What the next turn of a session would see, with nothing changed by looking.

use super::fetch::Reader;
use super::{expiry, gather, pins, session};
use crate::domain::agent::{AgentConfig, AgentRecord};
use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::grant::{self, GrantError};
use crate::domain::context::budget::{Budget, RATIO_DEFAULT};
use crate::domain::context::inputs::{Frame, Inputs, Moment, Served};
use crate::domain::context::{entry, fill};
use crate::domain::event::{Event, Mandate, Payload, fresh_session};
use crate::domain::goal::view::View;
use crate::domain::ids::{AgentId, EventId, JobId, Owner, SessionId, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::options;
use crate::domain::resource::Held;
use crate::domain::scope::{self};
use crate::domain::session::{SessionState, TurnRecord};
use crate::domain::tools::resolve_with;
use crate::domain::turn::run::{Pending, Run};
use crate::domain::values::{Resolver, Values};
use crate::ops::{Caller, shared};
use crate::store::{SessionFacts, StoreError};
use crate::venue::Venue;
use crate::venue::agents::{self, sessions};
use crate::venue::policy;
use crate::venue::resources::{self, scratchpad};
use crate::venue::workspace::Workspace;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// The event of a task that nobody has sent.
const EVENT: &str = "preview";

/// What is looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Preview {
    /// With this task besides what is pending.
    pub task: Option<Value>,
    /// Values of that task.
    pub session_context: Values,
    /// Shared buckets that the task names.
    pub context_ids: Vec<String>,
    /// Grants of that task.
    pub context: Option<Vec<Value>>,
    /// Who asks: the task may do no more.
    #[serde(skip)]
    pub envelope: Envelope,
    /// Of this session; of a new one when absent.
    pub session: Option<SessionId>,
}

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// There is no such agent.
    #[error("no agent `{0}`")]
    NoAgent(AgentId),
    /// The agent has no such session.
    #[error("no session `{0}`: nothing was ever sent to it")]
    NoSession(SessionKey),
    /// It serves somebody who holds more than who asks.
    #[error("the next turn of session `{0}` serves a request that holds more than you: it is not shown")]
    Withheld(SessionKey),
    /// A grant that breaks a rule.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session at rest.
struct Rested {
    key: SessionKey,
    run: Run,
    transcript: Vec<TurnRecord>,
}

/// The inputs of the prompt that the next turn would have.
pub async fn inputs(venue: &Venue, owner: &Owner, id: &AgentId, asked: Preview) -> Result<Inputs, PreviewError> {
    let Some((agent, _)) = agents::get(venue, owner, id).await? else {
        return Err(PreviewError::NoAgent(id.clone()));
    };
    let reader = asked.envelope.bound.clone();
    let Rested { key, run, transcript } = rested(venue, owner, id, asked).await?;
    let (mut run, mut transcript) = (run, transcript);
    let expired = expire(venue, &agent.config, &mut run, &mut transcript);
    let plan = run.plan();
    options::take_loads(&mut run.state, &plan);
    let scope = Scope { session: Some(key.clone()), job: plan.job().cloned() };
    let Mandate { event: _, session_context, context_ids, envelope } = run.mandate(&plan);
    if !reader.covers_reading(&envelope.bound) {
        return Err(PreviewError::Withheld(key));
    }
    let (policy, _) = policy::load(&*venue.store, owner).await?;
    let authority = agent.authority(&policy, &envelope, &scope);
    let workspace = Workspace::new(Arc::clone(&venue.store), owner.clone(), scope);
    if expired {
        expiry::empty(&workspace, &*venue.store).await?;
    }
    let pinned = pins::resolved(owner, &authority, &workspace, &agent).await?;
    let AgentRecord { config, state, .. } = pinned.as_ref().unwrap_or(&agent);
    let caller = Caller { envelope, ..Caller::new(owner.clone(), format!("agent:{id}"), authority) };
    let (mut user, project) = shared::load(&*venue.store, owner).await?;
    user.extend(caller.envelope.claims.clone());
    let resolver = Resolver::new(session_context, user, project, config.context_mapping.clone());
    let reader = Reader { venue, caller: &caller, workspace: &workspace, resolver: &resolver };
    let mut items =
        reader.items(entry::plan_of(&config.context, state, &run.state.goals.loads(&run.state.loads))).await?;
    let held = Held::of(&caller.authority);
    items.extend(resources::items(venue, config, &held, &workspace).await?);
    items.extend(scratchpad::items(&*venue.store, owner, &context_ids).await?);
    items.extend(plan.handed().into_iter().flat_map(|handed| scope::received(handed, &caller.authority)));
    let frame = Frame {
        agent: id.clone(),
        venue: venue.name.clone(),
        model: config.model.clone(),
        authority: caller.authority.clone().nowhere(),
        bound: caller.envelope.bound.clone(),
        completion: plan.completion(config),
        strict: config.strict_placeholders,
        aliases: config.uses_aliases(),
        bare: false,
    };
    let served = Served {
        goals: View::of(&run.state.goals, &transcript, plan.input(), frame.viewer()),
        ..plan.served(&run.state, &run.mandate(&plan))
    };
    let own = venue.catalog.resources.offered(config, &caller.envelope, &held);
    let tools = resolve_with(config, &run.state.tools, plan.ends(&run.state, config), &resolver, &venue.catalog, &own);
    let tools = tools.with_instances(&scope::instances(&items, &served));
    let window = config.model.context_window;
    Ok(Inputs {
        frame,
        moment: Moment {
            turn: format!("{owner}/{key}/{}", run.version + 1),
            date: venue.now().date(),
            budget: Budget::of(config.context_budget, window, config.model.max_tokens, RATIO_DEFAULT),
        },
        system: config.system_prompt.clone(),
        tools: Arc::new(tools),
        values: fill::known(&config.system_prompt, &items, &resolver),
        items,
        transcript,
        served,
    })
}

/// Whether the session is new and empty by the time of the turn, which it is then.
fn expire(venue: &Venue, config: &AgentConfig, run: &mut Run, transcript: &mut Vec<TurnRecord>) -> bool {
    let at = run.arrived().unwrap_or_else(|| venue.now());
    let last = transcript.last().map(|record| record.end);
    let expired = config.session.ttl.as_ref().zip(last).is_some_and(|(ttl, last)| run.expire(ttl, last, at));
    if expired {
        transcript.clear();
    }
    expired
}

/// The session as it is, with the task behind what is pending already.
async fn rested(venue: &Venue, owner: &Owner, id: &AgentId, asked: Preview) -> Result<Rested, PreviewError> {
    let event = EventId::new(EVENT).expect("a legal id");
    let job = JobId::derive(&venue.key, owner, &event);
    let id = id.clone();
    let (key, facts) = match asked.session {
        None => (SessionKey { agent: id, session: fresh_session(&job) }, None),
        Some(session) => {
            let key = SessionKey { agent: id, session };
            let facts = sessions::find(venue, owner, &key).await?;
            let facts = facts.ok_or_else(|| PreviewError::NoSession(key.clone()))?;
            (key, Some(facts))
        }
    };
    let (mut run, transcript) = match &facts {
        None => (Run::default(), Vec::new()),
        Some(facts) => {
            let state = state(facts)?;
            let transcript = gather::said(&*venue.store, owner, &key, facts.version, state.since).await?;
            let mail = venue.store.mail(owner, &key).await?;
            (Run::new(facts.version, state, session::inbox(&mail)?, false), transcript)
        }
    };
    let grants = asked.context.map(|grants| grant::parse(&grants, &venue.boundaries)).transpose()?;
    let envelope = asked.envelope.granted(grants);
    let task = asked.task.map(|input| Event {
        caller: Some(owner.to_string()),
        session_context: asked.session_context,
        context_ids: asked.context_ids,
        envelope,
        ..Event::new(event, venue.now(), Payload::Task { job, input })
    });
    run.inbox.extend(task.map(|event| Pending { key: EVENT.into(), event, crashes: 0, status: None }));
    Ok(Rested { key, run, transcript })
}

fn state(facts: &SessionFacts) -> Result<SessionState, StoreError> {
    facts.state.as_ref().map_or_else(|| Ok(SessionState::default()), session::state)
}
