//! What models have seen, after its records are gone.

use crate::domain::ids::{AgentId, SessionKey};
use crate::domain::time::Millis;

/// Prefix of what models of removed agents have seen.
pub const READS: &str = "reads/";

/// The same of one agent, and of all that had its name.
pub fn reads_of(agent: &AgentId) -> String {
    format!("{READS}{}/", agent.token())
}

/// A document of what models have seen in a session that was deleted `at` a time.
pub fn session_reads(session: &SessionKey, at: Millis, number: usize) -> String {
    format!("{}s/{}/{:016}/{number:016}", reads_of(&session.agent), session.session.token(), at.0)
}

/// A copy that a caller from outside made, by the hash of where from and where to.
pub fn outside_copy(hash: &str) -> String {
    format!("{READS}~/{hash}")
}

/// A document of it; `created` is when the agent was.
pub fn reads(agent: &AgentId, created: Millis, number: usize) -> String {
    format!("{}{:016}/{number:016}", reads_of(agent), created.0)
}
