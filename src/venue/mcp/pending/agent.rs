//! The agent of a call that goes on, as it is now.

use crate::domain::agent::AgentStatus;
use crate::domain::authority::ability::INVOKE;
use crate::domain::ids::Owner;
use crate::domain::job::JobHead;
use crate::domain::lattice::layout::Scope;
use crate::domain::mcp::pending::StartedToolCall;
use crate::store::StoreError;
use crate::venue::failure::OpError;
use crate::venue::mcp::pending::server::place_of_call;
use crate::venue::operation::Caller;
use crate::venue::{Venue, agents, policy};

/// Whether the agent of a call may go on with it.
pub(super) enum AgentStanding {
    /// An active agent, which may still call the tool.
    Permitted,
    /// A suspended agent: its call waits until it is active again.
    Suspended,
    /// A deleted agent, or one that may not call the tool any more; the error says which.
    Stopped(OpError),
}

/// Checks the agent whose turn has made a call. A call outlives the turn, and so changes of the agent.
pub(super) async fn check_agent(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    caller: &Caller,
    call: &StartedToolCall,
) -> Result<AgentStanding, StoreError> {
    let Some(parent) = &head.parent else { return Ok(AgentStanding::Permitted) };
    let id = &parent.session.agent;
    let known = agents::get(venue, owner, id).await?.map(|(record, _)| record);
    let Some(record) = known.filter(|record| record.status != AgentStatus::Terminated) else {
        let text = format!("the agent `{id}` was deleted, so its call does not go on");
        return Ok(AgentStanding::Stopped(OpError::Conflict(text)));
    };
    let (policy, _) = policy::load_in_force(&*venue.store, owner).await?;
    let authority = record.authority(&policy, &caller.envelope, &Scope::default());
    if let Err(denied) = authority.permits(INVOKE, place_of_call(call)) {
        let operation = call.server.operation_path(&call.tool);
        return Ok(AgentStanding::Stopped(OpError::Denied(denied.model_text(&operation))));
    }
    Ok(match record.status {
        AgentStatus::Suspended => AgentStanding::Suspended,
        AgentStatus::Active | AgentStatus::Terminated => AgentStanding::Permitted,
    })
}
