//! Keys of the approved tools of servers of the Model Context Protocol, and of logins there.

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

/// Prefix of the logins that people of an owner have begun.
pub const MCP_BEGUN_LOGINS: &str = "mcp.begun/";

/// Returns the key of such a login by the hash of its state.
pub fn mcp_begun_login(state_hash: &str) -> DocKey {
    format!("{MCP_BEGUN_LOGINS}{state_hash}")
}

/// Prefix of the logins at servers that the venue names; those at an agent's servers follow `g/<agent>/`.
pub const MCP_LOGINS: &str = "mcp.login/";

/// Returns the key of the login at a server: one that an agent has declared, or one of the venue.
pub fn mcp_login(agent: Option<&AgentId>, server: &ServerName) -> DocKey {
    match agent {
        Some(agent) => format!("g/{}/{MCP_LOGINS}{server}", agent.token()),
        None => format!("{MCP_LOGINS}{server}"),
    }
}
