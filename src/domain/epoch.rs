//! Whether a store was set back: a number that grows in the store and in the queue, by which they know each other.

use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// How far a store was at a time; the queue keeps the newest, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mark {
    /// Grows by one with each beat.
    pub epoch: u64,
    /// When it was left.
    pub at: Millis,
}

/// The store was found to be older than it had been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetBack {
    /// When that was found.
    pub found: Millis,
    /// What the store said.
    pub store: Mark,
    /// What the queue said.
    pub queue: Mark,
}

impl std::fmt::Display for SetBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { found, store, queue } = self;
        write!(
            f,
            "found at {}: the store was as it had been at {} (epoch {}), the queue knows it from {} (epoch {}); what was \
             accepted in between is lost where the queue doesn't tell of it",
            found.rfc3339(),
            store.at.rfc3339(),
            store.epoch,
            queue.at.rfc3339(),
            queue.epoch
        )
    }
}

/// Whether a store with this mark was set back, by what the queue remembers.
pub fn compare(store: Mark, queue: Mark, now: Millis) -> Option<SetBack> {
    (store.epoch < queue.epoch).then_some(SetBack { found: now, store, queue })
}

/// The mark that is left next: ahead of both.
pub fn next(store: Mark, queue: Mark, now: Millis) -> Mark {
    Mark { epoch: store.epoch.max(queue.epoch) + 1, at: now }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mark(epoch: u64) -> Mark {
        Mark { epoch, at: Millis(epoch * 1_000) }
    }

    #[test]
    fn a_store_that_knows_less_than_the_queue_was_set_back() {
        for (store, queue, set_back, then) in
            [(0, 0, false, 1), (7, 7, false, 8), (8, 7, false, 9), (3, 7, true, 8), (0, 7, true, 8)]
        {
            let (store, queue) = (mark(store), mark(queue));
            assert_eq!(compare(store, queue, Millis(9)).is_some(), set_back, "{store:?} {queue:?}");
            let next = next(store, queue, Millis(9));
            assert_eq!(next, Mark { epoch: then, at: Millis(9) });
            assert_eq!(compare(next, next, Millis(9)), None, "it is told once");
        }
    }
}
