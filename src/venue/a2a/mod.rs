//! Agents for programs that speak the Agent2Agent protocol: a task is a job, a context is a session.
//!
//! ```text
//! message ─▶ input ─▶ a new job, an answer to what the job asks, or a message to it
//! job, turns, stored messages ─▶ task, history, artifacts
//! turns of the job ─▶ log of events, which streams and push notifications read from a place on
//! ```
//!
//! Everything is read from the store: any process continues what another one began. Which agents are reached, and
//! their cards, says [`A2aSettings`](crate::domain::agent::a2a::A2aSettings).

pub mod answer;
mod artifact;
pub mod deliver;
mod history;
pub mod input;
pub mod log;
pub mod messages;
pub mod place;
pub mod push;
mod question;
pub mod reader;
mod status;
pub mod task;

use crate::domain::agent::AgentRecord;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::job::{Job, JobHead};
use crate::store::StoreError;
use crate::venue::{Venue, agents};

/// Version of the protocol, major and minor.
pub const VERSION: &str = "1.0";

/// Returns an agent that is published by this protocol and takes work; `None` tells nothing else about it.
pub async fn find_agent(venue: &Venue, owner: &Owner, id: &AgentId) -> Result<Option<AgentRecord>, StoreError> {
    let found = agents::get(venue, owner, id).await?.map(|(record, _)| record);
    Ok(found.filter(|record| record.config.a2a.is_some() && record.status.takes_work()))
}

/// Whether a published agent reads whole messages and gives parts.
pub fn has_whole_messages(agent: &AgentRecord) -> bool {
    agent.config.a2a.as_ref().is_some_and(|settings| settings.whole_messages)
}

/// Returns the session that serves a job.
pub fn session_of(head: &JobHead) -> SessionKey {
    SessionKey { agent: head.agent.clone(), session: head.session.clone() }
}

/// Whether a job is a task of an agent.
pub fn is_task_of(job: &Job, agent: &AgentId) -> bool {
    job.head.op.is_none() && job.head.agent == *agent
}
