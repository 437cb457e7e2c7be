//! Checks that the operations of agents share.

use crate::domain::agent::AgentRecord;
use crate::domain::authority::HIDDEN;
use crate::domain::ids::AgentId;
use crate::venue::agents;
use crate::venue::operation::{Invocation, OpError, Operation};

/// Makes the error of an agent that doesn't exist.
pub(crate) fn no_agent(id: &AgentId) -> OpError {
    OpError::NotFound(format!("no agent `{id}`"))
}

/// Returns the agent that a call names.
pub(crate) async fn find_existing(call: &Invocation<'_>, id: &AgentId) -> Result<AgentRecord, OpError> {
    let known = agents::get(call.venue, &call.caller.owner, id).await?;
    known.map(|(record, _)| record).ok_or_else(|| no_agent(id))
}

/// Refuses a turn that may not see the values which are filled in for it: an agent that it makes or changes could see
/// them, and so could the prompt of another.
pub(crate) fn check_hides_nothing(call: &Invocation<'_>) -> Result<(), OpError> {
    if !call.caller.envelope.hides_values {
        return Ok(());
    }
    Err(OpError::Denied(format!(
        "Capability denied: the values of `{HIDDEN}` are filled in for this agent and not shown to it, so that it makes and \
         changes no agents and looks at no prompt of one; that takes a capability that names `{HIDDEN}`. Retrying the same \
         call will not help."
    )))
}

/// Refuses an operation that makes a prompt where its result becomes a piece of a prompt: agents that show each other's
/// prompts would never end, and each such prompt lies on the stack of the one around it.
pub(crate) fn check_fills_no_prompt<T: Operation>(call: &Invocation<'_>) -> Result<(), OpError> {
    if !call.fills_prompt {
        return Ok(());
    }
    Err(OpError::Invalid(format!(
        "`{}` makes a prompt, which can't be a piece of another: name what that prompt shows as entries of this agent",
        T::PATH
    )))
}
