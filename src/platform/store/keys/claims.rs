//! Keys of claims: documents that give one process something for a while.

use crate::domain::ids::{AgentId, SessionKey};

/// Key of the claim of the worker that writes the marks of the epoch. Older builds use `auditor` for the one that audits
/// all owners, and keep doing so beside this build.
pub const MARKER: &str = "marker";

/// Returns the key of the claim of a fork to an agent's name.
pub fn agent_claim(to: &AgentId) -> String {
    format!("g/{}/copy", to.token())
}

/// Returns the key of the claim of a fork to a session's name.
pub fn session_claim(to: &SessionKey) -> String {
    format!("{}/{}", agent_claim(&to.agent), to.session.token())
}
