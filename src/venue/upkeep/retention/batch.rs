//! Limits of one step, and the batch of documents and events that it deletes.

use crate::domain::decode;
use crate::domain::ids::{EventId, Owner};
use crate::store::{Doc, DocKey, ForgetRequest, StoreError};
use crate::venue::Venue;

/// Entries of the job list, and approvals, that one step reads.
pub(crate) const PAGE: usize = 200;
/// Documents that one call deletes.
pub(crate) const DOCUMENTS: usize = 500;

/// Documents and events of one owner that one call deletes.
pub(crate) struct ForgetBatch<'v> {
    pub(crate) venue: &'v Venue,
    pub(crate) owner: &'v Owner,
    pub(crate) documents: Vec<DocKey>,
    pub(crate) events: Vec<EventId>,
}

impl<'v> ForgetBatch<'v> {
    /// Makes an empty batch.
    pub(crate) const fn new(venue: &'v Venue, owner: &'v Owner) -> Self {
        Self { venue, owner, documents: Vec::new(), events: Vec::new() }
    }

    /// Deletes the batch once it is large.
    pub(crate) async fn flush_if_full(&mut self) -> Result<(), StoreError> {
        if self.documents.len() >= DOCUMENTS { self.flush().await } else { Ok(()) }
    }

    /// Deletes the batch.
    pub(crate) async fn flush(&mut self) -> Result<(), StoreError> {
        if self.documents.is_empty() && self.events.is_empty() {
            return Ok(());
        }
        let forget = ForgetRequest {
            documents: std::mem::take(&mut self.documents),
            events: std::mem::take(&mut self.events),
            ..ForgetRequest::default()
        };
        // A call without sessions can't fail because of their changes.
        self.venue.store.forget(self.venue.now(), self.owner, &forget).await.map(drop)
    }
}

/// Decodes a document; `None` if it is damaged: it stays for inspection and blocks nothing.
pub(crate) fn decode_readable<T: serde::de::DeserializeOwned>(key: &str, doc: &Doc) -> Option<T> {
    let bytes = doc.value.as_ref()?;
    match decode::read_stored(bytes) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::debug!(key, %error, "a damaged document is kept");
            None
        }
    }
}
