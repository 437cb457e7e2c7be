//! Changes from outside turns, and their answers.

use crate::domain::job::JobStatus;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::store::DocConflict;
use bytes::Bytes;

/// A write outside turns, by an operator or an API caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// All documents were written.
    Done,
    /// No document was written; these have other versions.
    Conflict(Vec<DocConflict>),
}

/// The answer of [`crate::store::Store::finish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishOutcome {
    /// The job has the requested status.
    Done,
    /// The job already had a terminal status.
    Already(JobStatus),
    /// There is no such job.
    Unknown,
}

/// The answer of [`crate::store::Store::set_job_paused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkOutcome {
    /// The job was paused or resumed.
    Done,
    /// The job has ended, or was paused or open already.
    Already(JobStatus),
    /// There is no such job.
    Unknown,
}

/// The turn and state that a session is put at from outside its turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// Number of its turns, at least 1.
    pub version: u64,
    /// Session state that the next turn finds.
    pub state: Bytes,
    /// The owner's quota, above which the call fails with [`crate::store::StoreError::Over`]; `None`: no quota.
    pub quota: Option<Quota>,
}

/// The answer of [`crate::store::Store::set_session`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetSessionOutcome {
    /// The session is at that turn, or removed.
    Done,
    /// A worker holds the session until this time.
    Held(Millis),
    /// The session already has turns or events.
    Taken,
    /// A document differs from what the caller read.
    Changed,
}
