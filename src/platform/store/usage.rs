//! The usage of an owner, a recount of it, its registration, and the result of a backup.

use crate::domain::quota::{OwnLimits, QuotaUsage};
use std::path::PathBuf;

/// The answer of [`crate::store::Accounts::usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnerUsage {
    /// What the owner keeps.
    pub used: QuotaUsage,
    /// The quota that operators set for this owner.
    pub operator_quota: OwnLimits,
}

/// The answer of [`crate::store::Accounts::register_owner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerRegistration {
    /// The owner is on the list of owners.
    Listed,
    /// The owner is not on the list, because its tenant has as many users as it may.
    Full {
        /// Number of the tenant's users on the list.
        users: u64,
    },
}

/// The answer of [`crate::store::Accounts::recount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recount {
    /// More remains to be counted: call again.
    More,
    /// Everything is counted.
    Done {
        /// The stored usage before the recount.
        stored: QuotaUsage,
        /// The counted usage.
        counted: QuotaUsage,
    },
}

/// The answer of [`crate::store::StoreInspection::backup`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupOutcome {
    /// The copy is complete.
    Made(BackupFacts),
    /// A copy of that name exists in this folder; it is left unchanged.
    Exists(PathBuf),
    /// The store lies on servers, whose own tools make backups.
    OnServers,
}

/// A finished copy of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackupFacts {
    /// Folder of the new store.
    pub path: PathBuf,
    /// Number of its records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}
