//! Detection of a store that was set back: a number that grows in the store and in the queue, so that each can check
//! the other.
//!
//! Each part of a store that can be set back by itself has such a number, and the queue has one for all; they grow
//! together.

use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Progress of a store at a time; the queue keeps the newest mark, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GenerationMark {
    /// Number that grows by one with each beat.
    pub epoch: u64,
    /// Time of writing.
    pub at: Millis,
    /// Number of parts of the store that hold the mark; 0 and 1 mean the same.
    #[serde(skip_serializing_if = "is_one")]
    pub parts: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_one(parts: &usize) -> bool {
    *parts <= 1
}

/// A store was found to be older than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreSetBack {
    /// Time of the detection.
    pub found: Millis,
    /// Mark of the oldest part of the store.
    pub store: GenerationMark,
    /// Mark of the queue.
    pub queue: GenerationMark,
    /// Numbers of the parts that were set back, for a store of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<usize>,
}

impl std::fmt::Display for StoreSetBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { found, store, queue, parts } = self;
        let which = match parts.as_slice() {
            [] => String::new(),
            [one] => format!(" in shard {one:03x} of {}", queue.parts),
            [first, .., last] => format!(" in {} of {} shards, {first:03x} to {last:03x}", parts.len(), queue.parts),
        };
        write!(
            f,
            "found at {}: the store was{which} as it had been at {} (epoch {}), the queue knows it from {} (epoch {}); \
             what was accepted in between is lost where the queue doesn't tell of it",
            found.rfc3339(),
            store.at.rfc3339(),
            store.epoch,
            queue.at.rfc3339(),
            queue.epoch
        )
    }
}

/// Returns a finding if a part of the store was set back, compared with the mark of the queue.
///
/// A part without a mark may be new: its lack counts only where the queue's mark is of as many parts.
pub fn find_set_back(store: &[GenerationMark], queue: GenerationMark, now: Millis) -> Option<StoreSetBack> {
    let counts = queue.parts.max(1) == store.len();
    let is_back = |mark: &GenerationMark| mark.epoch < queue.epoch && (counts || mark.epoch > 0);
    let oldest = *store.iter().filter(|mark| is_back(mark)).min_by_key(|mark| mark.epoch)?;
    let back = store.iter().enumerate().filter(|(_, mark)| is_back(mark)).map(|(part, _)| part);
    let parts = if store.len() > 1 { back.collect() } else { Vec::new() };
    Some(StoreSetBack { found: now, store: oldest, queue, parts })
}

/// Returns the mark that is written next to each part: higher than all others.
pub fn next_mark(store: &[GenerationMark], queue: GenerationMark, now: Millis) -> GenerationMark {
    let last = store.iter().map(|mark| mark.epoch).fold(queue.epoch, u64::max);
    GenerationMark { epoch: last + 1, at: now, parts: store.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mark(epoch: u64, parts: usize) -> GenerationMark {
        GenerationMark { epoch, at: Millis(epoch * 1_000), parts }
    }

    #[test]
    fn a_store_that_knows_less_than_the_queue_was_set_back() {
        for (store, queue, set_back, then) in
            [(0, 0, false, 1), (7, 7, false, 8), (8, 7, false, 9), (3, 7, true, 8), (0, 7, true, 8)]
        {
            let (store, queue) = ([mark(store, 1)], mark(queue, 0));
            assert_eq!(find_set_back(&store, queue, Millis(9)).is_some(), set_back, "{store:?} {queue:?}");
            let next = next_mark(&store, queue, Millis(9));
            assert_eq!((next.epoch, next.at), (then, Millis(9)));
            assert_eq!(find_set_back(&[next], next, Millis(9)), None, "it is told once");
        }
    }

    #[test]
    fn each_part_is_set_back_by_itself() {
        let found = |store: &[u64], queue| {
            let store: Vec<_> = store.iter().map(|epoch| mark(*epoch, 4)).collect();
            find_set_back(&store, queue, Millis(9)).map(|found| found.parts)
        };
        assert_eq!(found(&[7, 8, 7, 9], mark(7, 4)), None);
        assert_eq!(found(&[7, 3, 7, 0], mark(7, 4)), Some(vec![1, 3]));
        assert_eq!(found(&[7, 0, 0, 0], mark(7, 1)), None, "the others had none yet");
        assert_eq!(found(&[7, 0, 0, 6], mark(7, 1)), Some(vec![3]));
        let said = find_set_back(&[mark(7, 2), mark(5, 2)], mark(7, 2), Millis(9)).unwrap().to_string();
        assert!(said.contains("was in shard 001 of 2 as it had been at") && said.contains("(epoch 5)"), "{said}");
        assert_eq!(
            next_mark(&[mark(7, 4), mark(9, 4)], mark(8, 4), Millis(3)),
            GenerationMark { epoch: 10, at: Millis(3), parts: 2 }
        );
    }

    #[test]
    fn marks_of_a_store_with_one_part_are_stored_as_ever() {
        assert_eq!(serde_json::to_string(&mark(7, 1)).unwrap(), r#"{"epoch":7,"at":7000}"#);
        assert_eq!(serde_json::from_str::<GenerationMark>(r#"{"epoch":7,"at":7000}"#).unwrap(), mark(7, 0));
    }
}
