//! What is due: of whom, and what a look at one owner found.

use crate::domain::ids::{Owner, SessionKey};
use crate::domain::shard::Share;
use crate::domain::time::Millis;
use crate::store::{DocKey, OutboxEntry, keys};
use std::time::Duration;

/// What one owner's sweep found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Sessions that are due: wake them. Their due time moved on by the grace of the sweep.
    pub due: Vec<SessionKey>,
    /// Outbox entries whose holder didn't publish them: publish them.
    pub outbox: Vec<OutboxEntry>,
    /// There is more of either.
    pub more: bool,
    /// The first document under each of [`keys::SWEPT`]: of what has none, nothing is to be done.
    pub first: [Option<DocKey>; keys::SWEPT.len()],
    /// When to look at the owner again; `None` = when something of it becomes due.
    pub next: Option<Millis>,
}

/// Owners to sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueOwners {
    /// With how long it is until then, those that wait for longest first.
    pub owners: Vec<(Owner, Duration)>,
    /// There are more that are due.
    pub more: bool,
    /// The shards that were looked at.
    pub share: Share,
}

impl Swept {
    /// The first document under one of [`keys::SWEPT`].
    pub fn first(&self, prefix: &str) -> Option<&DocKey> {
        let place = keys::SWEPT.iter().position(|swept| *swept == prefix)?;
        self.first[place].as_ref()
    }
}
