//! Keys of who has something to himself for a while.

use crate::domain::ids::{AgentId, SessionKey};

/// Document that says which worker leaves the marks of the epoch. Builds before know `auditor`, by which one of them audits
/// all owners; beside them that goes on.
pub const MARKER: &str = "marker";

/// Document of who copies sessions to an agent's name.
pub fn agent_claim(to: &AgentId) -> String {
    format!("g/{}/copy", to.token())
}

/// Document of who copies to a session's name.
pub fn session_claim(to: &SessionKey) -> String {
    format!("{}/{}", agent_claim(&to.agent), to.session.token())
}
