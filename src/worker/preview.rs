//! What the first turn of a new session would see, with nothing changed by looking.

use super::fetch::Reader;
use crate::agents;
use crate::domain::agent::AgentRecord;
use crate::domain::context::budget::{Budget, RATIO_DEFAULT};
use crate::domain::context::inputs::{Frame, Inputs, Moment, Served};
use crate::domain::context::{entry, fill};
use crate::domain::event::{Event, Payload, fresh_session};
use crate::domain::ids::{AgentId, EventId, JobId, Owner, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::tools::resolve;
use crate::domain::values::{Resolver, Values};
use crate::ops::{Caller, shared};
use crate::store::StoreError;
use crate::venue::Venue;
use crate::workspace::Workspace;
use serde_json::Value;
use std::sync::Arc;

/// The event of a task that nobody has sent.
const EVENT: &str = "preview";

/// The inputs of the prompt that a new session's first turn would have; `None` without the agent.
pub async fn inputs(
    venue: &Venue,
    owner: &Owner,
    id: &AgentId,
    task: Option<Value>,
    session_context: Values,
) -> Result<Option<Inputs>, StoreError> {
    let Some((agent, _)) = agents::get(venue, owner, id).await? else { return Ok(None) };
    let event = EventId::new(EVENT).expect("a legal id");
    let job = JobId::derive(&venue.key, owner, &event);
    let session = SessionKey { agent: id.clone(), session: fresh_session(&job) };
    let task = task.map(|input| Event {
        id: event,
        caller: Some(owner.to_string()),
        received: venue.now(),
        reply_to: None,
        parent: None,
        session_context: Values::new(),
        payload: Payload::Task { job: job.clone(), input },
    });
    let scope = Scope { session: Some(session.clone()), job: task.is_some().then_some(job) };
    let workspace = Workspace::new(Arc::clone(&venue.store), owner.clone(), scope);
    let AgentRecord { config, state, .. } = &agent;
    let caller = Caller { owner: owner.clone(), name: format!("agent:{id}"), authority: config.authority() };
    let (user, project) = shared::load(&*venue.store, owner).await?;
    let resolver = Resolver::new(session_context, user, project, config.context_mapping.clone());
    let reader = Reader { venue, caller: &caller, workspace: &workspace, resolver: &resolver };
    let entries = config.context.iter().chain(&state.context);
    let items = reader.items(entry::plan(entries, &[&state.loads])).await?;
    let window = config.model.context_window;
    Ok(Some(Inputs {
        frame: Frame {
            agent: id.clone(),
            venue: venue.name.clone(),
            model: config.model.clone(),
            authority: caller.authority,
            completion: config.completion,
            strict: config.strict_placeholders,
            aliases: config.uses_aliases(),
        },
        moment: Moment {
            turn: format!("{owner}/{session}/1"),
            date: venue.now().date(),
            budget: Budget::of(config.context_budget, window, config.model.max_tokens, RATIO_DEFAULT),
        },
        system: config.system_prompt.clone(),
        tools: Arc::new(resolve(config, &[], task.is_some(), &resolver, &venue.catalog)),
        values: fill::known(&config.system_prompt, &items, &resolver),
        items,
        transcript: Vec::new(),
        served: Served { task, ..Served::default() },
    }))
}
