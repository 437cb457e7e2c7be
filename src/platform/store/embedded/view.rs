//! One consistent state of the store: the database in a folder or the records in memory, and how it is read.

use super::keyspace_maps::KeyspaceMaps;
use super::layout::Space;
use crate::domain::quota::QuotaExceeded;
use crate::store::StoreError;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, Readable, Slice, Snapshot, UserKey};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, atomic::AtomicU64};

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
            Self::Record(reason) => StoreError::Corrupt { store, record: None, reason },
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
    pub(crate) fsyncs: Arc<AtomicU64>,
}

impl Db {
    /// Opens or creates the database in `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self, fjall::Error> {
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
pub(crate) type Item = Result<(UserKey, Slice), StoreFault>;

impl DurableState {
    /// Returns the state after the last group of `db`.
    pub(crate) fn snapshot(db: &Db) -> Self {
        Self::Folder(db.clone(), db.database.snapshot())
    }

    /// Visits keys of `from..to` in reverse order.
    pub(crate) fn walk_back(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StoreFault> {
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

/// Converts what the database returns.
pub(crate) fn read_items<I: DoubleEndedIterator<Item = Guard>>(items: I) -> impl DoubleEndedIterator<Item = Item> {
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
