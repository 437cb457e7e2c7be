//! A page of the keys of committed documents as a turn sees it: without those that it deleted, with those that it made.

use crate::store::{DocKey, DocPage};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Changes of a turn to the keys under a prefix.
#[derive(Debug, Default)]
pub(super) struct ChangedKeys {
    /// Keys that the turn made and that aren't committed.
    pub(super) made: BTreeSet<DocKey>,
    /// Committed keys that the turn deleted.
    pub(super) deleted: BTreeSet<DocKey>,
}

impl ChangedKeys {
    /// Returns which committed documents are needed to show `limit` after the first `skip`: how many of them to skip,
    /// and how many to take.
    pub(super) fn committed_window(&self, skip: usize, limit: usize) -> (usize, usize) {
        let take = if limit == 0 { 0 } else { limit.saturating_add(self.made.len() + self.deleted.len()) };
        (skip.saturating_sub(self.made.len()), take)
    }

    /// Returns the number of keys, and `limit` of them after the first `skip`; `page` has the committed documents of the
    /// window that [`ChangedKeys::committed_window`] returns for the same numbers.
    pub(super) fn merge_page(self, page: DocPage, skip: usize, limit: usize) -> (usize, Vec<DocKey>) {
        let total = (page.total + self.made.len()).saturating_sub(self.deleted.len());
        let (passed, _) = self.committed_window(skip, limit);
        let first = page.docs.first().map(|(key, _)| key.clone());
        let last = page.docs.last().map(|(key, _)| key.clone());
        let (from, before) = match (passed, first) {
            (0, _) => (Unbounded, 0),
            // The page begins after the last committed key, and so after all that were made.
            (_, None) => return (total, Vec::new()),
            (_, Some(first)) => {
                let made = self.made.range(..first.clone()).count();
                let deleted = self.deleted.range(..first.clone()).count();
                (Included(first), (passed + made).saturating_sub(deleted))
            }
        };
        let is_end = passed + page.docs.len() >= page.total;
        let to = last.filter(|_| !is_end).map_or(Unbounded, Excluded);
        let mut shown: BTreeSet<DocKey> = self.made.range((from, to)).cloned().collect();
        shown.extend(page.docs.into_iter().map(|(key, _)| key).filter(|key| !self.deleted.contains(key)));
        (total, shown.into_iter().skip(skip - before.min(skip)).take(limit).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Doc;

    fn key(n: usize) -> String {
        format!("w.e/c/1/{n:03}")
    }

    /// Every window over 12 keys that are committed (`c`), made, deleted, replaced or absent.
    fn check(keys: &str) {
        let with =
            |letters: &'static str| keys.char_indices().filter(move |(_, c)| letters.contains(*c)).map(|(n, _)| key(n));
        let committed: Vec<_> = with("cdr").collect();
        let seen: Vec<_> = with("cmr").collect();
        for skip in 0..=keys.len() + 1 {
            for limit in [0, 1, 2, 3, 5, 20, usize::MAX] {
                let changed = ChangedKeys { made: with("m").collect(), deleted: with("d").collect() };
                let (passed, take) = changed.committed_window(skip, limit);
                let docs = committed.iter().skip(passed).take(take).map(|k| (k.clone(), Doc::default())).collect();
                let found = changed.merge_page(DocPage { total: committed.len(), docs }, skip, limit);
                let expected: Vec<_> = seen.iter().skip(skip).take(limit).cloned().collect();
                assert_eq!(found, (seen.len(), expected), "{keys} {skip} {limit}");
            }
        }
    }

    #[test]
    fn every_window_is_that_of_the_tree_as_the_turn_sees_it() {
        for keys in ["", "cccccccccccc", "mmmm", "dddd", "rrrr", "mcccdrccmcdm", "mmmcccccccdd", "dddccccccmmm"] {
            check(keys);
        }
        for seed in 0..500_usize {
            let keys: String =
                (0..12).map(|at| char::from(b"cmdr-"[(seed * 7919 + 13) / (at + 1) * (at + 3) % 5])).collect();
            check(&keys);
        }
    }
}
