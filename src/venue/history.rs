//! Whether the store is still what it has said: its history, and what is remembered against its loss.

use crate::domain::ids::Owner;
use crate::domain::shard::Shards;
use crate::store::StoreError;
use crate::store::journaled::JournaledStore;
use crate::store::tail::{Compared, TailStore};
use crate::venue::{Venue, venue_owner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a process knows of the store's history.
pub struct History {
    tail: Option<Arc<TailStore>>,
    /// One of the venue's own owners in each part of the store that can be set back by itself.
    parts: Vec<Owner>,
    changes: AtomicU64,
    journaled: Option<Arc<JournaledStore>>,
}

/// A store that is one part, and whose end nobody remembers.
impl Default for History {
    fn default() -> Self {
        Self::of(None, None)
    }
}

impl History {
    /// Of a store whose last changes `tail` remembers; the nodes of a cluster have these shards, each on one of them.
    pub fn of(tail: Option<Arc<TailStore>>, shards: Option<Shards>) -> Self {
        let owner =
            |n: u32| if n == 0 { venue_owner().to_string() } else { format!("_venue{n}/{}", super::VENUE_USER) };
        let parts = shards.unwrap_or(Shards::ONE).one_in_each(owner);
        let parts = parts.iter().map(|owner| owner.parse().expect("a legal owner")).collect();
        Self { tail, parts, changes: AtomicU64::new(0), journaled: None }
    }

    /// The history with the store whose changes the queue is told.
    #[must_use]
    pub fn with_journal(self, journaled: Arc<JournaledStore>) -> Self {
        Self { journaled: Some(journaled), ..self }
    }

    /// The store whose changes the queue is told.
    pub fn journal(&self) -> Option<&JournaledStore> {
        self.journaled.as_deref()
    }

    /// Owners of the venue's own, each in a part of the store that can be set back by itself, and none in the same.
    pub fn parts(&self) -> &[Owner] {
        &self.parts
    }

    /// How often the history was found to be another: what was read before with its version may not be so any more.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The end that is remembered.
    pub fn tail(&self) -> Option<&TailStore> {
        self.tail.as_deref()
    }
}

impl Venue {
    /// Compares what the store said last with what it says now, when its history is another; see
    /// [`TailStore::compare`]. What was remembered of documents by their versions is forgotten then.
    pub async fn compare_history(&self) -> Result<Option<Compared>, StoreError> {
        let Some(tail) = self.history.tail() else { return Ok(None) };
        let found = tail.compare(self.now(), || {
            self.history.changes.fetch_add(1, Ordering::Relaxed);
            self.prompts.forget();
        });
        found.await
    }
}
