//! Errors of changes of agents and sessions.

use crate::domain::authority::trail::MAX_TRAIL;
use crate::domain::ids::{AgentId, SessionKey};
use crate::store::StoreError;

/// Why a change of an agent is refused.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// There is no such agent.
    #[error("no agent `{0}`")]
    Unknown(AgentId),
    /// The agent is terminated.
    #[error("agent `{0}` is terminated: `agent/create` with `overwrite` makes it active again")]
    Terminated(AgentId),
    /// The configuration has another version than expected.
    #[error("configuration of agent `{agent}` has version {actual}, expected {expected}: read it again")]
    Version {
        /// Name of the agent.
        agent: AgentId,
        /// Current version of the configuration.
        actual: u64,
        /// Version that the request expects.
        expected: u64,
    },
    /// The resulting configuration, title or summary is invalid.
    #[error("{0}")]
    Config(String),
    /// An agent of that name exists.
    #[error("agent `{0}` exists: choose another name, or replace it with `overwrite` (`--overwrite`)")]
    Exists(AgentId),
    /// A turn tries to change an agent that asks people before it acts.
    #[error("agent `{0}` asks people before it calls some of its tools: only people {1}")]
    AsksPeople(AgentId, &'static str),
    /// The configuration names a secret that the caller may not use.
    #[error("{0}")]
    Denied(String),
    /// A worker still holds the session.
    #[error("session `{0}` is still held by a worker: try again in a moment")]
    Busy(SessionKey),
    /// The session is in the middle of work that needs its turns unchanged.
    #[error("session `{0}` {1}: its turns can't be compacted now, try again when it rests")]
    AtWork(SessionKey, &'static str),
    /// The agent has no such session.
    #[error("no session `{0}`: nothing was ever sent to it")]
    NoSession(SessionKey),
    /// The session has no such turn.
    #[error("session `{session}` has no turn {asked}: its newest is {newest}")]
    NoTurn {
        /// Name of the session.
        session: SessionKey,
        /// The turn that the request names.
        asked: u64,
        /// The newest turn; 0 without any.
        newest: u64,
    },
    /// The agent was changed under as many grants as can be recorded.
    #[error(
        "agent `{0}` was changed under {MAX_TRAIL} grants already, all of which it depends on; apply its configuration as a whole"
    )]
    TooMany(AgentId),
    /// A session of that name exists.
    #[error("session `{0}` exists: choose another name")]
    Taken(SessionKey),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
