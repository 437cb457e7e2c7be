//! What a queue keeps against a loss of the store.

use crate::domain::journal::JournalBatch;
use crate::domain::protection::ProtectionRecord;
use crate::domain::time::Millis;
use crate::store::StoreError;
use async_trait::async_trait;

/// Why the queue doesn't keep, or tell, something: calling again can help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JournalError(pub String);

impl JournalError {
    /// The error of a call of the store that needs the queue.
    pub fn into_store_error(self) -> StoreError {
        StoreError::Unavailable { store: "journal".to_owned(), reason: self.0 }
    }
}

/// A part of the journal, the oldest batch first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalPart {
    /// Batches whose makers are not checked yet.
    pub batches: Vec<JournalBatch>,
    /// When the oldest batch was kept, where older ones are gone.
    pub begins: Option<Millis>,
}

/// The queue as it keeps records and the journal.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Keeps a record in place of the one before it of the same thing; after it the record survives a kill of any
    /// process.
    async fn protect(&self, record: &ProtectionRecord) -> Result<(), JournalError>;

    /// All records, of each thing the newest.
    async fn protections(&self) -> Result<Vec<ProtectionRecord>, JournalError>;

    /// The newest record of the same thing; `None` when it has expired.
    async fn newest(&self, of: &ProtectionRecord) -> Result<Option<ProtectionRecord>, JournalError>;

    /// Keeps a batch of the journal behind those before it.
    async fn append(&self, batch: &JournalBatch) -> Result<(), JournalError>;

    /// The batches that were kept since a time.
    async fn since(&self, at: Millis) -> Result<JournalPart, JournalError>;
}
