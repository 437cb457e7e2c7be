//! The store in memory: the same requests, applied one after the other on the caller's thread.

use super::counts;
use super::index::Index;
use super::keyspace_maps::KeyspaceMaps;
use super::tx::{Tx, TxBase};
use super::view::{DurableState, StoreFault};
use parking_lot::RwLock;

/// A copy of all records in memory at one moment.
#[derive(Debug, Clone)]
pub struct MemorySnapshot(KeyspaceMaps);

/// The store in memory, under one lock.
pub(super) struct MemoryStore(RwLock<IndexedRecords>);

/// All records with their index.
struct IndexedRecords {
    /// All records; the variant is always [`DurableState::Memory`].
    records: DurableState,
    index: Index,
}

impl Default for MemoryStore {
    fn default() -> Self {
        let records = DurableState::Memory(KeyspaceMaps::default());
        Self(RwLock::new(IndexedRecords { records, index: Index::default() }))
    }
}

impl MemoryStore {
    /// Applies a request, all or nothing.
    pub(super) fn apply<T>(&self, request: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreFault>) -> Result<T, StoreFault> {
        let mut held = self.0.write();
        let IndexedRecords { records: DurableState::Memory(maps), index } = &mut *held else {
            unreachable!("it is in memory")
        };
        let mut tx = Tx::new(TxBase::Memory(maps), index, [None, None]);
        let done = request(&mut tx).and_then(|value| counts::store_changes(&mut tx).map(|()| value));
        let touched = tx.is_index_touched();
        match done {
            Ok(value) => {
                let writes = tx.into_writes();
                maps.apply(writes);
                Ok(value)
            }
            Err(error) => {
                if touched {
                    rebuild_index(&mut held)?;
                }
                Err(error)
            }
        }
    }

    /// Reads one consistent state.
    pub(super) fn query<T>(&self, read: impl FnOnce(&DurableState) -> Result<T, StoreFault>) -> Result<T, StoreFault> {
        read(&self.0.read().records)
    }

    /// Returns a copy of all records.
    pub(super) fn snapshot(&self) -> MemorySnapshot {
        match &self.0.read().records {
            DurableState::Memory(maps) => MemorySnapshot(maps.clone()),
            DurableState::Folder(..) => unreachable!("it is in memory"),
        }
    }

    /// Replaces all records by those of a snapshot.
    pub(super) fn restore(&self, snapshot: &MemorySnapshot) -> Result<(), StoreFault> {
        let mut held = self.0.write();
        held.records = DurableState::Memory(snapshot.0.clone());
        rebuild_index(&mut held)
    }
}

/// Rebuilds the index from the records.
fn rebuild_index(held: &mut IndexedRecords) -> Result<(), StoreFault> {
    let mut fresh = Index::load(&held.records)?;
    fresh.copy_sweep_times(&held.index);
    held.index = fresh;
    Ok(())
}
