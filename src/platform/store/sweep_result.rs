//! What is due: the owners, and the result of one owner's sweep.

use crate::domain::ids::{Owner, SessionKey};
use crate::domain::shard::Share;
use crate::domain::time::Millis;
use crate::store::{DocKey, OutboxEntry, keys};
use std::time::Duration;

/// The result of one owner's sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepResult {
    /// Sessions to wake. Their due time moved on by the grace of the sweep.
    pub due: Vec<SessionKey>,
    /// Outbox entries that their holder didn't publish.
    pub outbox: Vec<OutboxEntry>,
    /// Whether more sessions or entries are due.
    pub more: bool,
    /// The first document under each of [`keys::SWEPT`]; `None` where nothing is to be done.
    pub first: [Option<DocKey>; keys::SWEPT.len()],
    /// Time of the next sweep; `None`: when something of the owner becomes due.
    pub next: Option<Millis>,
}

/// The owners that a worker sweeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueOwners {
    /// Each owner with the time until it is due, longest overdue first.
    pub owners: Vec<(Owner, Duration)>,
    /// Whether more owners are due.
    pub more: bool,
    /// The shards that were read.
    pub share: Share,
}

impl SweepResult {
    /// Returns the first document under one of [`keys::SWEPT`].
    pub fn first_document(&self, prefix: &str) -> Option<&DocKey> {
        let place = keys::SWEPT.iter().position(|swept| *swept == prefix)?;
        self.first[place].as_ref()
    }
}
