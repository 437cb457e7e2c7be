//! The queue as a journal, against a loss of the store.

use crate::domain::journal::JournalBatch;
use crate::domain::protection::ProtectionRecord;
use crate::domain::time::Millis;
use crate::store::StoreError;
use async_trait::async_trait;

/// Why the queue doesn't store or return something; a second call can help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JournalError(pub String);

impl JournalError {
    /// Returns the error of a store call that needs the queue.
    pub fn into_store_error(self) -> StoreError {
        StoreError::Unavailable { store: "journal".to_owned(), reason: self.0 }
    }
}

/// A part of the journal, oldest batch first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalPart {
    /// Batches whose seals are not verified yet.
    pub batches: Vec<JournalBatch>,
    /// Time of the oldest batch, if older ones were dropped.
    pub begins: Option<Millis>,
}

/// The queue as a place for records and the journal.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Stores a record in place of the previous one of the same thing; it then survives a kill of any process.
    async fn protect(&self, record: &ProtectionRecord) -> Result<(), JournalError>;

    /// Returns the newest record of each thing.
    async fn protections(&self) -> Result<Vec<ProtectionRecord>, JournalError>;

    /// Returns the newest record of the document with this key of each owner that has one.
    async fn document_records(&self, key: &str) -> Result<Vec<ProtectionRecord>, JournalError>;

    /// Returns the newest record of the same thing; `None` if it has expired.
    async fn newest_record(&self, of: &ProtectionRecord) -> Result<Option<ProtectionRecord>, JournalError>;

    /// Appends a batch to the journal.
    async fn append(&self, batch: &JournalBatch) -> Result<(), JournalError>;

    /// Returns the batches stored since a time.
    async fn batches_since(&self, at: Millis) -> Result<JournalPart, JournalError>;
}
