//! Arguments and answers of [`super::Store::amend`].

use super::DocWrite;
use bytes::Bytes;

/// A change of a session from outside its turns, and the state that it requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amend {
    /// Turns that the session had when it was read.
    pub version: u64,
    /// Session state when it was read.
    pub expected_state: Option<Bytes>,
    /// The change to make.
    pub amendment: Amendment,
    /// Documents that are written with it; of their conditions only those of checks count: where one doesn't hold, the
    /// session counts as changed.
    pub writes: Vec<DocWrite>,
}

/// A change of an amended session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amendment {
    /// The new session state; a session without a turn has none, and is refused as changed.
    State(Bytes),
    /// The session is removed with its mailbox, if no more than these events were ever appended.
    Remove {
        /// Events ever appended when it was read.
        arrivals: u64,
    },
}

/// The answer of [`super::Store::amend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmendOutcome {
    /// All was changed.
    Done,
    /// Nothing was changed: a worker holds the session, or let its lease lapse unreleased.
    Held,
    /// Nothing was changed: the session differs from what the caller read.
    Changed,
}
