//! What [`super::Store::amend`] is told, and answers.

use super::DocWrite;
use bytes::Bytes;

/// A change of a session from outside its turns, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amend {
    /// Turns that it had.
    pub version: u64,
    /// What its next turn would have found.
    pub was: Option<Bytes>,
    /// What becomes of it.
    pub then: Amendment,
    /// Documents that are written with it; of their conditions only those of checks count: where one doesn't hold, the
    /// session is not as it was seen.
    pub writes: Vec<DocWrite>,
}

/// What becomes of an amended session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amendment {
    /// Its next turn finds this; one that has had no turn remembers nothing, and is never as it was seen.
    State(Bytes),
    /// It is gone with its mailbox, when no more than these events had ever been appended to it.
    Gone {
        /// As it was seen.
        arrivals: u64,
    },
}

/// Answer of [`super::Store::amend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amended {
    /// All of it.
    Done,
    /// Nothing: a worker holds the session, or did and never gave it back.
    Held,
    /// Nothing: the session is not as it was seen.
    Stirred,
}
