//! Records in memory.

use super::layout::Space;
use super::view::StoreFault;
use super::writes::Writes;
use fjall::{Slice, UserKey};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Records in memory, by keyspace and key.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyspaceMaps([BTreeMap<Vec<u8>, Slice>; Space::COUNT]);

impl KeyspaceMaps {
    /// Returns the value at `key`.
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Option<Slice> {
        self.0[space as usize].get(key).cloned()
    }

    /// Returns the records of `from..to`, in order.
    pub(crate) fn range(
        &self,
        space: Space,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<(UserKey, Slice), StoreFault>> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        self.0[space as usize].range::<[u8], _>(range).map(|(key, value)| Ok((key.as_slice().into(), value.clone())))
    }

    /// Applies the writes of a request.
    pub(crate) fn apply(&mut self, writes: Writes) {
        for (space, writes) in self.0.iter_mut().zip(writes.into_spaces()) {
            for (key, value) in writes {
                match value {
                    Some(value) => drop(space.insert(key, value)),
                    None => drop(space.remove(&key)),
                }
            }
        }
    }
}
