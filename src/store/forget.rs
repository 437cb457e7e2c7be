//! Arguments and answers of [`super::Store::forget`].

use super::DocKey;
use crate::domain::ids::{EventId, SessionKey};

/// What is removed of an owner because its retention is over; see [`crate::store::Store::forget`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forget {
    /// Documents to delete; absent ones are ignored.
    pub documents: Vec<DocKey>,
    /// Ids of events that count as never seen.
    pub events: Vec<EventId>,
    /// Sessions that begin at turn 0 again.
    pub sessions: Vec<Resting>,
    /// Sessions whose arrivals that are missing from the mailbox count as consumed.
    pub lost: Vec<SessionKey>,
    /// Whether a user asked for it; if a server loses the deletion, that user learns that the first document is back.
    pub asked: bool,
}

/// A session without pending work, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resting {
    /// Agent and session.
    pub session: SessionKey,
    /// Events that had ever been appended to it.
    pub arrivals: u64,
}

/// The answer of [`crate::store::Store::forget`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// All was forgotten.
    Done,
    /// Nothing was forgotten: this session has pending work, or got some meanwhile.
    Stirred(SessionKey),
}
