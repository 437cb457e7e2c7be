//! A store whose answers a test sees, and may hold up, before the worker that asked gets them.

use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::ids::Owner;
use trellis::domain::time::Millis;
use trellis::store::{
    Checkpoint, Commit, CommitOutcome, Doc, DocKey, DocWrite, Layer, Lease, LeaseCheck, Store, StoreError, WriteOutcome,
};

/// What happens between an answer of the store and its arrival, or before it is asked.
#[async_trait]
pub trait Watch: Send + Sync + 'static {
    fn read(&self, _keys: &[DocKey]) {}
    async fn renewed(&self, _held: &LeaseCheck) {}
    /// Before the store is asked.
    async fn writing(&self, _writes: &[DocWrite]) {}
    /// The same.
    async fn checkpointing(&self, _write: &Checkpoint) {}
    async fn checkpointed(&self, _lease: &Lease, _write: &Checkpoint, _held: &LeaseCheck) {}
    async fn committed(&self, _commit: &Commit, _committed: &CommitOutcome) {}
}

/// The watched store.
pub struct Watched<W> {
    pub inner: Arc<dyn Store>,
    pub watch: W,
}

impl<W: Watch> Layer for Watched<W> {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
        self.watch.read(keys);
        self.inner.read(owner, keys).await
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        self.watch.writing(writes).await;
        self.inner.write(now, owner, writes).await
    }

    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, StoreError> {
        let held = self.inner.renew(now, lease, ttl).await?;
        self.watch.renewed(&held).await;
        Ok(held)
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError> {
        self.watch.checkpointing(write).await;
        let held = self.inner.checkpoint(now, lease, write).await?;
        self.watch.checkpointed(lease, write, &held).await;
        Ok(held)
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let committed = self.inner.commit(now, lease, commit).await?;
        self.watch.committed(commit, &committed).await;
        Ok(committed)
    }
}
