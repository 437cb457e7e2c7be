//! `v/ops/a2a/*`: the agents elsewhere that agents give work to by the Agent2Agent protocol, and approval of their changed
//! cards. A message to one is published as `v/ops/a2a/<name>/send`.

use super::mcp::needs_at;
use crate::domain::a2a::name::GROUP;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::AgentId;
use crate::domain::lattice::Namespace;
use crate::domain::mcp::name::ServerName;
use crate::venue::a2a_agents::{self, find_remote_agent};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<ListRemoteAgents>(),
        operation::<ShowRemoteAgent>(),
        operation::<RefreshCard>(),
        operation::<ApproveCard>(),
    ]
}

/// Returns the place of an agent elsewhere in the catalogue, below which its operation is.
fn agent_place(name: &ServerName) -> ResourcePath {
    ResourcePath::at_keys(Namespace::Venue, ["ops", GROUP, name.as_str()])
}

/// List the agents elsewhere (A2A) that the venue names, and with `agent` those that the agent declares.
#[derive(Deserialize, JsonSchema)]
struct ListRemoteAgents {
    /// agent whose own list is shown too
    agent: Option<AgentId>,
}

impl Operation for ListRemoteAgents {
    const PATH: &'static str = "v/ops/a2a/agents";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("crud/read", ResourcePath::at_keys(Namespace::Venue, ["ops", GROUP]), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let found = a2a_agents::list_remote_agents(call.venue, &call.caller.owner, self.agent.as_ref()).await?;
        Ok(OpOutput::of(&found))
    }
}

/// Show an agent elsewhere (A2A): its approved card, and a change that waits.
#[derive(Deserialize, JsonSchema)]
struct ShowRemoteAgent {
    #[schemars(with = "String")]
    name: ServerName,
    /// agent that declares it; absent: one of the venue
    agent: Option<AgentId>,
}

impl Operation for ShowRemoteAgent {
    const PATH: &'static str = "v/ops/a2a/agent";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("crud/read", agent_place(&self.name), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let found = find_remote_agent(call.venue, &call.caller.owner, self.agent.as_ref(), &self.name).await?;
        Ok(OpOutput::of(&a2a_agents::show_remote_agent(call.venue, &found).await?))
    }
}

/// Ask an agent elsewhere (A2A) for its card now. What differs from the approved one waits for approval.
#[derive(Deserialize, JsonSchema)]
struct RefreshCard {
    #[schemars(with = "String")]
    name: ServerName,
    /// agent that declares it; absent: one of the venue
    agent: Option<AgentId>,
}

impl Operation for RefreshCard {
    const PATH: &'static str = "v/ops/a2a/refresh";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("crud/read", agent_place(&self.name), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let found = find_remote_agent(call.venue, &call.caller.owner, self.agent.as_ref(), &self.name).await?;
        Ok(OpOutput::of(&a2a_agents::refresh(call.venue, &found).await?))
    }
}

/// Approve the changed card of an agent elsewhere (A2A), as it was shown. From the next turn on it is called again.
#[derive(Deserialize, JsonSchema)]
struct ApproveCard {
    #[schemars(with = "String")]
    name: ServerName,
    /// agent that declares it; absent: one of the venue
    agent: Option<AgentId>,
    /// hash of the change, as `a2a/agent` shows it; refused when it is another one by now
    change: String,
}

impl Operation for ApproveCard {
    const PATH: &'static str = "v/ops/a2a/approve";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("a2a/approve", agent_place(&self.name), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let found = find_remote_agent(call.venue, &call.caller.owner, self.agent.as_ref(), &self.name).await?;
        if found.is_shared() {
            call.require_operator::<Self>(", where all owners share the agent")?;
        }
        Ok(OpOutput::of(&a2a_agents::approve(call.venue, &found, &self.change, &call.caller.name).await?))
    }
}
