//! Keys of who has something to himself for a while.

use crate::domain::ids::{AgentId, SessionKey};

/// Document that says which worker looks for what is lost.
pub const AUDITOR: &str = "auditor";

/// Document of who copies sessions to an agent's name.
pub fn agent_claim(to: &AgentId) -> String {
    format!("g/{}/copy", to.token())
}

/// Document of who copies to a session's name.
pub fn session_claim(to: &SessionKey) -> String {
    format!("{}/{}", agent_claim(&to.agent), to.session.token())
}
