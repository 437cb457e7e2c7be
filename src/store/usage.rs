//! What an owner keeps, and a recount of it; what a backup has copied.

use crate::domain::quota::{Own, QuotaUsage};
use std::path::PathBuf;

/// Answer of [`crate::store::Accounts::usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// What is kept.
    pub used: QuotaUsage,
    /// What operators have said of this owner.
    pub own: Own,
}

/// Answer of [`crate::store::Accounts::recount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recount {
    /// There is more to count: call again.
    More,
    /// All is counted.
    Done {
        /// As it stood.
        was: QuotaUsage,
        /// As it is.
        is: QuotaUsage,
    },
}

/// Answer of [`crate::store::Inspect::backup`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackedUp {
    /// All of it is there.
    Made(BackupMade),
    /// There is one of that name, in this folder; it stays as it is.
    Exists(PathBuf),
    /// The store lies on servers, whose own tools copy it.
    OnServers,
}

/// A copy of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackupMade {
    /// The folder of the new store.
    pub path: PathBuf,
    /// Records in it.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}
