//! What [`super::Store::forget`] is told, and answers.

use super::DocKey;
use crate::domain::ids::{EventId, SessionKey};

/// What an owner no longer keeps; see [`crate::store::Store::forget`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forget {
    /// Documents that are deleted; absent ones are passed over.
    pub documents: Vec<DocKey>,
    /// Events that count as never seen.
    pub events: Vec<EventId>,
    /// Sessions that begin anew.
    pub sessions: Vec<Resting>,
    /// Sessions whose arrivals that are in no mailbox any more count as consumed.
    pub lost: Vec<SessionKey>,
    /// Somebody asked for it, who is told when it is lost with a server: that the first document is there again.
    pub asked: bool,
}

/// A session that rests, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resting {
    /// Which.
    pub session: SessionKey,
    /// Events that had ever been appended to it.
    pub arrivals: u64,
}

/// Answer of [`crate::store::Store::forget`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// All of it.
    Done,
    /// Nothing: this session doesn't rest, or got something since.
    Stirred(SessionKey),
}
