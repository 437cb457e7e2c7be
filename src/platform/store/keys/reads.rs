//! Keys of what models have seen whose turn records were removed.

use crate::domain::ids::{AgentId, SessionKey};
use crate::domain::time::Millis;

/// Prefix of what models of removed agents and sessions have seen.
pub const READS: &str = "reads/";

/// Returns the prefix of what models have seen of one agent, and of all earlier ones of its name.
pub fn agent_reads(agent: &AgentId) -> String {
    format!("{READS}{}/", agent.token())
}

/// Returns the key of one document of what models have seen in a session that was deleted at `at`.
pub fn session_reads(session: &SessionKey, at: Millis, number: usize) -> String {
    format!("{}s/{}/{:016}/{number:016}", agent_reads(&session.agent), session.session.token(), at.0)
}

/// Returns the key of a copy that a caller from outside made; `hash` is of source and target.
pub fn outside_copy(hash: &str) -> String {
    format!("{READS}~/{hash}")
}

/// Returns the key of one document of what models of a removed agent have seen; `created` is when it was created.
pub fn reads(agent: &AgentId, created: Millis, number: usize) -> String {
    format!("{}{:016}/{number:016}", agent_reads(agent), created.0)
}
