//! Reads and writes of one request: reads see the writes before them, and all are applied at once.

use super::index::Index;
use super::keyspace_maps::KeyspaceMaps;
use super::layout::{self, Space};
use super::view::{Db, Item, StoreFault, View, Visit, read_items};
use super::writes::Writes;
use crate::domain::quota::QuotaCounts;
use fjall::Slice;
use std::collections::BTreeMap;

/// The change of usage by a request.
pub(crate) type UsageChange = QuotaCounts<i64>;

/// What requests are applied to.
#[derive(Clone, Copy)]
pub(crate) enum TxBase<'a> {
    /// The database in a folder.
    Folder(&'a Db),
    /// The records in memory.
    Memory(&'a KeyspaceMaps),
}

/// One request on the writer thread: reads see its own writes, then those of earlier requests that the database doesn't
/// contain yet, then the database.
pub(crate) struct Tx<'a> {
    below: TxBase<'a>,
    index: &'a mut Index,
    touched: bool,
    growth: BTreeMap<String, UsageChange>,
    own: Writes,
    /// Writes of earlier requests, newest first.
    before: [Option<&'a Writes>; 2],
}

impl<'a> Tx<'a> {
    /// Returns an empty request over the writes `before` it, newest first.
    pub(super) fn new(below: TxBase<'a>, index: &'a mut Index, before: [Option<&'a Writes>; 2]) -> Self {
        Self { below, index, touched: false, growth: BTreeMap::new(), own: Writes::default(), before }
    }

    /// Returns the index for reading.
    pub(super) const fn index(&self) -> &Index {
        self.index
    }

    /// Returns the index for changes; if this request fails, the index is rebuilt.
    pub(super) const fn index_mut(&mut self) -> &mut Index {
        self.touched = true;
        self.index
    }

    /// Whether the index was changed.
    pub(super) const fn is_index_touched(&self) -> bool {
        self.touched
    }

    /// Writes `value` at `key`.
    pub(crate) fn put(&mut self, space: Space, key: Vec<u8>, value: impl Into<Slice>) {
        self.own.set(space, key, Some(value.into()));
    }

    /// Removes the value at `key`.
    pub(crate) fn remove(&mut self, space: Space, key: Vec<u8>) {
        self.own.set(space, key, None);
    }

    /// Adds the owner to the list of owners, so that sweeps find it.
    pub(super) fn register(&mut self, owner: &str) -> Result<(), StoreFault> {
        if self.index.is_registered(owner) {
            return Ok(());
        }
        let key = layout::owner(owner);
        if self.get(Space::Core, &key)?.is_none() {
            self.put(Space::Core, key, Vec::new());
        }
        self.index_mut().owner_mut(owner).registered = true;
        Ok(())
    }

    /// Adds to the usage of an owner.
    pub(super) fn add_usage(&mut self, owner: &str, more: UsageChange) {
        match self.growth.get_mut(owner) {
            Some(growth) => *growth = *growth + more,
            None => drop(self.growth.insert(owner.to_owned(), more)),
        }
    }

    /// Adds bytes to the usage of an owner.
    pub(super) fn add_bytes(&mut self, owner: &str, bytes: i64) {
        self.add_usage(owner, UsageChange { bytes, ..UsageChange::default() });
    }

    /// Takes the changes of usage of the request, by owner.
    pub(super) fn take_growth(&mut self) -> BTreeMap<String, UsageChange> {
        std::mem::take(&mut self.growth)
    }

    /// Returns the writes of the request.
    pub(super) fn into_writes(self) -> Writes {
        self.own
    }

    /// Returns the layers of writes, newest first.
    fn layers(&self) -> impl DoubleEndedIterator<Item = &Writes> {
        std::iter::once(&self.own).chain(self.before.into_iter().flatten())
    }
}

impl View for Tx<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreFault> {
        if let Some(written) = self.layers().find_map(|layer| layer.get(space, key)) {
            return Ok(written.clone());
        }
        match self.below {
            TxBase::Folder(db) => Ok(db.keyspace(space).get(key)?),
            TxBase::Memory(maps) => Ok(maps.get(space, key)),
        }
    }

    fn walk(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StoreFault> {
        if from >= to {
            return Ok(());
        }
        let written: BTreeMap<&[u8], Option<&Slice>> =
            self.layers().rev().flat_map(|layer| layer.range(space, from, to)).collect();
        match self.below {
            TxBase::Folder(db) => merge(read_items(db.keyspace(space).range(from..to)), written, visit),
            TxBase::Memory(maps) => merge(maps.range(space, from, to), written, visit),
        }
    }
}

/// Visits stored records and the writes over them, in order.
fn merge(
    items: impl Iterator<Item = Item>,
    written: BTreeMap<&[u8], Option<&Slice>>,
    visit: Visit<'_>,
) -> Result<(), StoreFault> {
    let mut written = written.into_iter().peekable();
    for item in items {
        let (key, value) = item?;
        while let Some((mine, value)) = written.next_if(|(mine, _)| *mine < &*key) {
            if let Some(value) = value
                && visit(mine, value)?.is_break()
            {
                return Ok(());
            }
        }
        let seen = match written.next_if(|(mine, _)| *mine == &*key) {
            Some((_, value)) => value,
            None => Some(&value),
        };
        if let Some(seen) = seen
            && visit(&key, seen)?.is_break()
        {
            return Ok(());
        }
    }
    for (mine, value) in written {
        if let Some(value) = value
            && visit(mine, value)?.is_break()
        {
            return Ok(());
        }
    }
    Ok(())
}
