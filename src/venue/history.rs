//! History of the store: whether the store still has what it has acknowledged.

use crate::domain::ids::Owner;
use crate::domain::shard::Shards;
use crate::store::ack_log::AckLogStore;
use crate::store::journaled::JournaledStore;
use crate::store::keys::VENUE_USER;
use crate::venue::venue_owner;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a process knows of the store's history.
pub struct History {
    tail: Option<Arc<AckLogStore>>,
    /// One of the venue's own owners in each part of the store that can be set back by itself.
    parts: Vec<Owner>,
    changes: AtomicU64,
    journaled: Option<Arc<JournaledStore>>,
}

/// History of a store that is one part and has no log of its last changes.
impl Default for History {
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl History {
    /// Makes the history of a store whose last changes are in `tail`; `shards` are those of a cluster, each on one
    /// node.
    pub fn new(tail: Option<Arc<AckLogStore>>, shards: Option<Shards>) -> Self {
        let owner = |n: u32| if n == 0 { venue_owner().to_string() } else { format!("_venue{n}/{VENUE_USER}") };
        let parts = shards.unwrap_or(Shards::ONE).token_per_shard(owner);
        let parts = parts.iter().map(|owner| owner.parse().expect("a legal owner")).collect();
        Self { tail, parts, changes: AtomicU64::new(0), journaled: None }
    }

    /// Returns the history with the store whose changes are journaled in the queue.
    #[must_use]
    pub fn with_journal(self, journaled: Arc<JournaledStore>) -> Self {
        Self { journaled: Some(journaled), ..self }
    }

    /// Returns the store whose changes are journaled in the queue.
    pub fn journal(&self) -> Option<&JournaledStore> {
        self.journaled.as_deref()
    }

    /// Returns owners of the venue's own: one in each part of the store that can be set back by itself.
    pub fn parts(&self) -> &[Owner] {
        &self.parts
    }

    /// Returns how often the generation has changed: values that were read before with a version may have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Records that the generation has changed.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the log of the last acknowledged changes.
    pub fn tail(&self) -> Option<&AckLogStore> {
        self.tail.as_deref()
    }
}
