//! Writes of requests that the database doesn't contain yet.

use super::layout::Space;
use super::view::Db;
use fjall::Slice;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The last value by key; `None` = removed.
#[derive(Debug, Default)]
pub(crate) struct Writes([BTreeMap<Vec<u8>, Option<Slice>>; Space::COUNT]);

impl Writes {
    /// Whether there are no writes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }

    /// Returns the write of `key`, `None` inside = removed; `None` if there is none.
    pub(super) fn get(&self, space: Space, key: &[u8]) -> Option<&Option<Slice>> {
        self.0[space as usize].get(key)
    }

    /// Sets the value of `key`; `None` removes it.
    pub(super) fn set(&mut self, space: Space, key: Vec<u8>, value: Option<Slice>) {
        self.0[space as usize].insert(key, value);
    }

    /// Returns the writes of the keys in `from..to`, in order.
    pub(super) fn range(&self, space: Space, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&[u8], Option<&Slice>)> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        self.0[space as usize].range::<[u8], _>(range).map(|(key, value)| (key.as_slice(), value.as_ref()))
    }

    /// Adds newer writes, which replace older ones.
    pub(super) fn extend(&mut self, newer: Self) {
        for (mine, newer) in self.0.iter_mut().zip(newer.0) {
            mine.extend(newer);
        }
    }

    /// Returns the last value of every key, keyspace by keyspace.
    pub(super) fn into_spaces(self) -> [BTreeMap<Vec<u8>, Option<Slice>>; Space::COUNT] {
        self.0
    }

    /// Converts the writes to one atomic batch of the database.
    pub(super) fn batch(&self, db: &Db) -> fjall::OwnedWriteBatch {
        let mut batch = db.database.batch();
        for (space, writes) in Space::ALL.into_iter().zip(&self.0) {
            let keyspace = db.keyspace(space);
            for (key, value) in writes {
                match value {
                    Some(value) => batch.insert(keyspace, key.as_slice(), value.clone()),
                    None => batch.remove(keyspace, key.as_slice()),
                }
            }
        }
        batch
    }
}
