//! What is done from outside turns, and its answers.

use crate::domain::job::JobStatus;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::store::DocConflict;
use bytes::Bytes;

/// A write outside turns, by an operator or an API caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutsideWrite {
    /// All of them, at once.
    Done,
    /// None of them.
    Conflict(Vec<DocConflict>),
}

/// Answer of [`crate::store::Store::finish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// The job has this status now.
    Done,
    /// It already had a terminal one.
    Already(JobStatus),
    /// No such job.
    Unknown,
}

/// Answer of [`crate::store::Store::park`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    /// The job is paused now, or goes on.
    Done,
    /// It has ended, or was so already.
    Already(JobStatus),
    /// No such job.
    Unknown,
}

/// What a session is made to be from outside its turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Turns that it has, at least 1.
    pub version: u64,
    /// What the next turn finds.
    pub state: Bytes,
    /// What the owner may keep with it, else [`crate::store::StoreError::Over`]; `None`: whatever that is.
    pub within: Option<Quota>,
}

/// Answer of [`crate::store::Store::seat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seated {
    /// The session is so.
    Done,
    /// A worker holds it until then.
    Held(Millis),
    /// It has turns or events of its own already.
    Taken,
    /// A document isn't as it was seen.
    Changed,
}
