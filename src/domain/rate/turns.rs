//! Owners take turns where calls wait for one limit.

use crate::time::Millis;
use std::collections::BTreeMap;

/// Place of a call among those that wait for tokens; the smallest first.
///
/// Owners take turns: with each call that is made the others of its owner stand behind all that wait by then. Within an
/// owner the longest wait goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePlace<'c> {
    pub(super) turn: Millis,
    pub(super) since: Millis,
    pub(super) id: &'c str,
}

impl<'c> QueuePlace<'c> {
    pub(super) fn new(id: &'c str, since: Millis, passed: Millis) -> Self {
        Self { turn: since.max(passed), since, id }
    }
}

/// The owner that a call's id begins with: `tenant/user/…`.
pub(super) fn owner_of(id: &str) -> &str {
    id.match_indices('/').nth(1).map_or(id, |(end, _)| &id[..end])
}

/// Index of the last call of the owner that has the most, if `owner` has none and that one more than one.
pub(super) fn last_of_most_frequent<'i>(
    ids: impl DoubleEndedIterator<Item = &'i str> + Clone,
    owner: &str,
) -> Option<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for id in ids.clone() {
        *counts.entry(owner_of(id)).or_default() += 1;
    }
    if counts.contains_key(owner) {
        return None;
    }
    let (most, _) = counts.into_iter().filter(|(_, count)| *count > 1).max_by_key(|(_, count)| *count)?;
    ids.enumerate().filter(|(_, id)| owner_of(id) == most).map(|(at, _)| at).last()
}
