//! Arguments and answers of [`super::Store::forget`].

use super::DocKey;
use crate::domain::ids::{EventId, SessionKey};

/// What is removed of an owner because its retention is over; see [`crate::store::Store::forget`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForgetRequest {
    /// Documents to delete; absent ones are ignored.
    pub documents: Vec<DocKey>,
    /// Ids of events that count as never seen.
    pub events: Vec<EventId>,
    /// Sessions that begin at turn 0 again.
    pub sessions: Vec<RestingSession>,
    /// Sessions whose arrivals that are missing from the mailbox count as consumed.
    pub sessions_with_losses: Vec<SessionKey>,
    /// Whether a user asked for it; if a server loses the deletion, that user learns that the first document is back.
    pub requested_by_user: bool,
}

/// A session without pending work, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestingSession {
    /// Agent and session.
    pub session: SessionKey,
    /// Events that had ever been appended to it.
    pub arrivals: u64,
}

/// The answer of [`crate::store::Store::forget`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgetOutcome {
    /// All was forgotten.
    Done,
    /// Nothing was forgotten: this session has pending work, or got some meanwhile.
    Changed(SessionKey),
}
