//! Where a session is on its path, as log events: what a crash test reads from a killed worker.

use crate::domain::ids::SessionKey;

/// Target of the events; `log.level = "info,trellis::stage=debug"` shows them.
pub const TARGET: &str = "trellis::stage";

/// A stage of the path of one event (`design.md` §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A message was received.
    Arrive,
    /// The store takes the event and grants the lease.
    Admit,
    /// The lease is held and nothing is being done under it yet.
    Lease,
    /// The prompt is being built.
    Context,
    /// The model is being asked.
    Model,
    /// The reply is being recorded.
    Record,
    /// Tools run.
    Tools,
    /// The turn is being committed.
    Commit,
    /// What was committed is being published.
    Outbox,
    /// Nothing is being done for the session any more.
    Idle,
}

impl Stage {
    /// Its name in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arrive => "arrive",
            Self::Admit => "admit",
            Self::Lease => "lease",
            Self::Context => "context",
            Self::Model => "model",
            Self::Record => "record",
            Self::Tools => "tools",
            Self::Commit => "commit",
            Self::Outbox => "outbox",
            Self::Idle => "idle",
        }
    }

    /// Says that a session enters this stage.
    pub(super) fn enter(self, session: &SessionKey) {
        tracing::debug!(target: TARGET, %session, stage = self.as_str());
    }

    /// The same inside a turn: what is said of one turn can be put in order over all workers.
    pub(super) fn enter_turn(self, session: &SessionKey, turn: u64) {
        tracing::debug!(target: TARGET, %session, turn, stage = self.as_str());
    }
}
