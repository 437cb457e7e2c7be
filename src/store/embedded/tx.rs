//! One request's reads and writes: reads see the writes before them, and all are applied at once.

use super::index::Index;
use super::layout::{self, Space};
use crate::store::StoreError;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, Readable, Slice, Snapshot};
use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The database.
    #[error("{0}")]
    Database(#[from] fjall::Error),
    /// A record that can't be read, or a request that can't be meant.
    #[error("{0}")]
    Record(String),
}

impl Fault {
    /// As the caller sees it.
    pub(crate) fn at(self, store: &str) -> StoreError {
        let store = store.to_owned();
        match self {
            Self::Database(e) => StoreError::Unavailable { store, reason: e.to_string() },
            Self::Record(reason) => StoreError::Corrupt { store, reason },
        }
    }
}

/// Bytes in memory before a keyspace writes a table: what lies there is replayed after a kill.
const MEMTABLE: u64 = 16 * 1024 * 1024;
/// Bytes of full journals before the keyspaces they wait for write theirs; fjall's least.
const JOURNALS: u64 = 64 * 1024 * 1024;

/// The open database.
#[derive(Clone)]
pub(crate) struct Db {
    /// All of it.
    pub(crate) database: Database,
    docs: Keyspace,
    mail: Keyspace,
    core: Keyspace,
    queue: Keyspace,
}

impl Db {
    /// Opens or makes the database in `dir`.
    pub(super) fn open(dir: &Path) -> Result<Self, fjall::Error> {
        let database = Database::builder(dir).max_journaling_size(JOURNALS).open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE);
        let open = |name: &str| database.keyspace(name, options);
        let (docs, mail, core, queue) = (open("docs")?, open("mail")?, open("core")?, open("queue")?);
        Ok(Self { database, docs, mail, core, queue })
    }

    /// The keyspace itself.
    pub(crate) const fn keyspace(&self, space: Space) -> &Keyspace {
        match space {
            Space::Docs => &self.docs,
            Space::Mail => &self.mail,
            Space::Core => &self.core,
            Space::Queue => &self.queue,
        }
    }
}

/// Visits `key, value`; `Break` ends the walk.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Fault>;

/// One consistent state to read from.
pub(crate) trait View {
    /// The value at `key`.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, Fault>;

    /// Visits keys of `from..to` in order.
    fn walk(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), Fault>;
}

/// A durable state, for readers that bypass the writer.
pub(crate) struct Durable {
    /// The keyspaces.
    pub(crate) db: Db,
    /// The state after the last group.
    pub(crate) snapshot: Snapshot,
}

impl Durable {
    /// Visits keys of `from..to` in reverse order.
    pub(super) fn walk_back(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), Fault> {
        if from >= to {
            return Ok(());
        }
        for item in self.snapshot.range(self.db.keyspace(space), from..to).rev() {
            let (key, value) = item.into_inner()?;
            if visit(&key, &value)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl View for Durable {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, Fault> {
        Ok(self.snapshot.get(self.db.keyspace(space), key)?)
    }

    fn walk(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), Fault> {
        if from >= to {
            return Ok(());
        }
        for item in self.snapshot.range(self.db.keyspace(space), from..to) {
            let (key, value) = item.into_inner()?;
            if visit(&key, &value)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// One request on the writer thread.
pub(crate) struct Tx<'a> {
    db: &'a Db,
    index: &'a mut Index,
    touched: bool,
    writes: BTreeMap<(Space, Vec<u8>), Option<Slice>>,
}

impl<'a> Tx<'a> {
    /// An empty one.
    pub(super) const fn new(db: &'a Db, index: &'a mut Index) -> Self {
        Self { db, index, touched: false, writes: BTreeMap::new() }
    }

    /// The index to read.
    pub(super) const fn index(&self) -> &Index {
        self.index
    }

    /// The index to change; should this request fail, it is read from the database again.
    pub(super) const fn index_mut(&mut self) -> &mut Index {
        self.touched = true;
        self.index
    }

    /// Whether the index was changed.
    pub(super) const fn touched(&self) -> bool {
        self.touched
    }

    /// Writes `value` at `key`.
    pub(crate) fn put(&mut self, space: Space, key: Vec<u8>, value: impl Into<Slice>) {
        self.writes.insert((space, key), Some(value.into()));
    }

    /// Removes what is at `key`.
    pub(crate) fn remove(&mut self, space: Space, key: Vec<u8>) {
        self.writes.insert((space, key), None);
    }

    /// Puts the owner on the list, so that sweeps find what it has.
    pub(super) fn register(&mut self, owner: &str) -> Result<(), Fault> {
        let key = layout::owner(owner);
        if self.get(Space::Core, &key)?.is_none() {
            self.put(Space::Core, key, Vec::new());
        }
        Ok(())
    }

    /// Applies everything, atomically; not yet durable. Whether there was anything.
    pub(super) fn apply(self) -> Result<bool, Fault> {
        if self.writes.is_empty() {
            return Ok(false);
        }
        let mut batch = self.db.database.batch();
        for ((space, key), value) in self.writes {
            let keyspace = self.db.keyspace(space);
            match value {
                Some(value) => batch.insert(keyspace, key, value),
                None => batch.remove(keyspace, key),
            }
        }
        batch.commit()?;
        Ok(true)
    }
}

impl View for Tx<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, Fault> {
        if !self.writes.is_empty()
            && let Some(written) = self.writes.get(&(space, key.to_vec()))
        {
            return Ok(written.clone());
        }
        Ok(self.db.keyspace(space).get(key)?)
    }

    fn walk(&self, space: Space, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), Fault> {
        if from >= to {
            return Ok(());
        }
        let mut own = self.writes.range((space, from.to_vec())..(space, to.to_vec())).peekable();
        for item in self.db.keyspace(space).range(from..to) {
            let (key, value) = item.into_inner()?;
            while let Some(((_, mine), written)) = own.next_if(|((_, mine), _)| mine.as_slice() < &*key) {
                if let Some(written) = written
                    && visit(mine, written)?.is_break()
                {
                    return Ok(());
                }
            }
            let seen = match own.next_if(|((_, mine), _)| mine.as_slice() == &*key) {
                Some((_, written)) => written.clone(),
                None => Some(value),
            };
            if let Some(seen) = seen
                && visit(&key, &seen)?.is_break()
            {
                return Ok(());
            }
        }
        for ((_, mine), written) in own {
            if let Some(written) = written
                && visit(mine, written)?.is_break()
            {
                return Ok(());
            }
        }
        Ok(())
    }
}
