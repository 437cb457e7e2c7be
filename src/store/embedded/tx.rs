//! Reads and writes of one request: reads see the writes before them, and all are applied at once.

use super::counts::UsageChange;
use super::index::Index;
use super::layout::{self, Space};
use super::memory::KeyspaceMaps;
use super::writes::Writes;
use crate::domain::quota::QuotaExceeded;
use crate::store::StoreError;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, Readable, Slice, Snapshot, UserKey};
use std::sync::{Arc, atomic::AtomicU64};
use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreFault {
    /// The database failed.
    #[error("{0}")]
    Database(#[from] fjall::Error),
    /// A record that can't be decoded, or an invalid request.
    #[error("{0}")]
    Record(String),
    /// The owner's quota has no room for the request.
    #[error("{0}")]
    Over(QuotaExceeded),
}

impl StoreFault {
    /// Converts the fault to the caller's error.
    pub(crate) fn into_store_error(self, store: &str) -> StoreError {
        let store = store.to_owned();
        match self {
            Self::Database(e) => StoreError::Unavailable { store, reason: e.to_string() },
            Self::Record(reason) => StoreError::Corrupt { store, reason },
            Self::Over(over) => StoreError::Over(over),
        }
    }
}

/// Bytes in memory before a keyspace writes a table; after a kill they are replayed.
const MEMTABLE: u64 = 16 * 1024 * 1024;
/// Bytes of full journals before the keyspaces in them write their tables; fjall's minimum.
const JOURNALS: u64 = 64 * 1024 * 1024;

/// The open database, with its keyspaces.
#[derive(Clone)]
pub(crate) struct Db {
    /// The database itself.
    pub(crate) database: Database,
    docs: Keyspace,
    mail: Keyspace,
    core: Keyspace,
    queue: Keyspace,
    /// Number of groups made durable, each by one fsync.
    pub(super) fsyncs: Arc<AtomicU64>,
}

impl Db {
    /// Opens or creates the database in `dir`.
    pub(super) fn open(dir: &Path) -> Result<Self, fjall::Error> {
        let database = Database::builder(dir).max_journaling_size(JOURNALS).open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE);
        let open = |name: &str| database.keyspace(name, options);
        let (docs, mail, core, queue) = (open("docs")?, open("mail")?, open("core")?, open("queue")?);
        Ok(Self { database, docs, mail, core, queue, fsyncs: Arc::default() })
    }

    /// Returns the keyspace of `space`.
    pub(crate) const fn keyspace(&self, space: Space) -> &Keyspace {
        match space {
            Space::Docs => &self.docs,
            Space::Mail => &self.mail,
            Space::Core => &self.core,
            Space::Queue => &self.queue,
        }
    }
}

/// Visits key and value; `Break` ends the walk.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreFault>;

/// One consistent state to read from.
pub(crate) trait View {
    /// Returns the value at `key`.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreFault>;

    /// Visits keys of `from..to` in order.
    fn walk(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StoreFault>;
}

/// A durable state, for readers that bypass the writer.
pub(crate) enum DurableState {
    /// The state after the last group.
    Folder(Db, Snapshot),
    /// The records in memory, under their lock.
    Memory(KeyspaceMaps),
}

/// A record with its key.
type Item = Result<(UserKey, Slice), StoreFault>;

impl DurableState {
    /// Returns the state after the last group of `db`.
    pub(super) fn snapshot(db: &Db) -> Self {
        Self::Folder(db.clone(), db.database.snapshot())
    }

    /// Visits keys of `from..to` in reverse order.
    pub(super) fn walk_back(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StoreFault> {
        if from >= to {
            return Ok(());
        }
        match self {
            Self::Folder(db, snapshot) => {
                visit_each(read_items(snapshot.range(db.keyspace(space), from..to).rev()), visit)
            }
            Self::Memory(maps) => visit_each(maps.range(space, from, to).rev(), visit),
        }
    }
}

impl View for DurableState {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreFault> {
        match self {
            Self::Folder(db, snapshot) => Ok(snapshot.get(db.keyspace(space), key)?),
            Self::Memory(maps) => Ok(maps.get(space, key)),
        }
    }

    fn walk(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StoreFault> {
        if from >= to {
            return Ok(());
        }
        match self {
            Self::Folder(db, snapshot) => visit_each(read_items(snapshot.range(db.keyspace(space), from..to)), visit),
            Self::Memory(maps) => visit_each(maps.range(space, from, to), visit),
        }
    }
}

fn read_items<I: DoubleEndedIterator<Item = Guard>>(items: I) -> impl DoubleEndedIterator<Item = Item> {
    items.map(|item| Ok(item.into_inner()?))
}

fn visit_each(items: impl Iterator<Item = Item>, visit: Visit<'_>) -> Result<(), StoreFault> {
    for item in items {
        let (key, value) = item?;
        if visit(&key, &value)?.is_break() {
            break;
        }
    }
    Ok(())
}

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
