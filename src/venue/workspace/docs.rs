//! Changes of documents outside the tree, with the same guarantees: they are buffered until the turn's commit, and made
//! again if the documents have changed.

use super::overlay::Overlay;
use super::{PendingOperation, Workspace, WorkspaceError};
use crate::domain::resource::NamespaceUse;
use crate::store::{DocKey, StoreError, decode};
use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change of documents. It may be made several times: the last answer counts.
#[async_trait]
pub trait DocChange: Send + Sync {
    /// Makes the change by the current documents. If it fails, nothing of it counts.
    async fn make(&self, docs: &mut Docs<'_>) -> Result<Value, WorkspaceError>;
}

/// Documents as a turn sees them.
pub struct Docs<'a> {
    pub(super) tree: &'a Workspace,
    pub(super) overlay: &'a mut Overlay,
}

impl Docs<'_> {
    /// Returns the value of a document; the commit checks that it is unchanged.
    pub async fn get<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, StoreError> {
        let (version, bytes) = self.overlay.fetch(self.tree, key).await?;
        self.overlay.check(key.to_owned(), version);
        bytes.map(|bytes| decode(key, &bytes)).transpose()
    }

    /// Puts a document, whatever its state is.
    pub async fn put<T: Serialize>(&mut self, key: &str, value: &T) -> Result<(), StoreError> {
        let (version, _) = self.overlay.fetch(self.tree, key).await?;
        let bytes = serde_json::to_vec(value).expect("documents serialise");
        self.overlay.put(key.to_owned(), version, Bytes::from(bytes));
        Ok(())
    }

    /// Deletes a document, if it exists.
    pub async fn delete(&mut self, key: &str) -> Result<(), StoreError> {
        let (version, bytes) = self.overlay.fetch(self.tree, key).await?;
        if bytes.is_some() {
            self.overlay.delete(key.to_owned(), version);
        }
        Ok(())
    }

    /// Returns the number of documents under a prefix, and the key of the first.
    pub async fn count(&self, prefix: &str) -> Result<(usize, Option<DocKey>), StoreError> {
        let (count, first) = self.overlay.page(self.tree, prefix, 0, 1).await?;
        Ok((count, first.into_iter().next()))
    }
}

impl Workspace {
    /// Makes a change on top of what this turn has done; durable with its commit.
    pub async fn change(&self, call: u32, change: Arc<dyn DocChange>) -> Result<Value, WorkspaceError> {
        self.add_operation(call, PendingOperation::Docs(change)).await
    }

    /// Returns the value of a document as this turn sees it.
    pub async fn document<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let state = self.state.lock().await;
        let (_, bytes) = state.overlay.fetch(self, key).await?;
        bytes.map(|bytes| decode(key, &bytes)).transpose()
    }

    /// Returns the values of the documents under a prefix as this turn sees them, in the order of their keys; about
    /// `limit` of them.
    pub async fn documents<T: DeserializeOwned>(&self, prefix: &str, limit: usize) -> Result<Vec<T>, StoreError> {
        let state = self.state.lock().await;
        let found: BTreeMap<DocKey, Bytes> = state.overlay.scan(self, prefix, limit).await?;
        found.iter().map(|(key, bytes)| decode(key, bytes)).collect()
    }

    /// Notes that a call depends on the use of a resource, which must still be permitted when the turn commits.
    pub async fn note_use(&self, call: u32, used: NamespaceUse) {
        self.state.lock().await.uses.push((call, used));
    }

    /// Returns the uses that the calls of this turn depend on.
    pub async fn all_uses(&self) -> Vec<(u32, NamespaceUse)> {
        self.state.lock().await.uses.clone()
    }
}
