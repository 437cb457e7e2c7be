//! Keys of the approved tools of servers of the Model Context Protocol.

use crate::domain::ids::AgentId;
use crate::domain::mcp::name::ServerName;
use crate::store::DocKey;

/// Prefix of the approved tools of servers that the venue names; those of an agent's servers follow `g/<agent>/`.
pub const MCP_PINS: &str = "mcp/";

/// Returns the key of the approved tools of a server: one that an agent has declared, or one of the venue.
pub fn mcp_pin(agent: Option<&AgentId>, server: &ServerName) -> DocKey {
    match agent {
        Some(agent) => format!("{}{server}", agent_mcp_pins(agent)),
        None => format!("{MCP_PINS}{server}"),
    }
}

/// Returns the prefix of the approved tools of the servers that an agent has declared.
pub fn agent_mcp_pins(agent: &AgentId) -> String {
    format!("g/{}/mcp/", agent.token())
}
