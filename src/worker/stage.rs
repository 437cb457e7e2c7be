//! Stages of a session as log events; crash tests read them from a killed worker.

use crate::domain::ids::SessionKey;

/// Target of the log events; `log.level = "info,trellis::stage=debug"` shows them.
pub const TARGET: &str = "trellis::stage";

/// A stage of the path of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A message was received.
    Arrive,
    /// The store admits the event and grants the lease.
    Admit,
    /// The lease is held and no stage has begun.
    Lease,
    /// The context is being assembled.
    Context,
    /// A pipeline decides its next step.
    Decide,
    /// The model is being called.
    Model,
    /// The reply is being stored as a checkpoint.
    Record,
    /// Tools are running.
    Tools,
    /// The turn is being committed.
    Commit,
    /// Messages of the commit are being published.
    Outbox,
    /// The session is not being worked on.
    Idle,
}

impl Stage {
    /// Returns the name of the stage in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arrive => "arrive",
            Self::Admit => "admit",
            Self::Lease => "lease",
            Self::Context => "context",
            Self::Decide => "decide",
            Self::Model => "model",
            Self::Record => "record",
            Self::Tools => "tools",
            Self::Commit => "commit",
            Self::Outbox => "outbox",
            Self::Idle => "idle",
        }
    }

    /// Logs that a session enters this stage.
    pub(super) fn enter(self, session: &SessionKey) {
        tracing::debug!(target: TARGET, %session, stage = self.as_str());
    }

    /// Logs that a turn enters this stage; the turn's number puts the lines of several workers in order.
    pub(super) fn enter_turn(self, session: &SessionKey, turn: u64) {
        tracing::debug!(target: TARGET, %session, turn, stage = self.as_str());
    }
}
