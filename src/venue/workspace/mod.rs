//! The tree of an owner as one turn, or one call of an operator, sees it: as committed, plus its own writes.
//!
//! A turn's writes are kept as operations. If documents have changed meanwhile, [`Workspace::rebase`] applies them
//! again to the newer versions; no model is called again and no update is lost.

mod descent;
mod docs;
mod overlay;
mod page;
mod quota;
mod read;
mod window;
mod write;

use crate::domain::ids::Owner;
use crate::domain::lattice::layout::{Collection, Root, Scope};
use crate::domain::lattice::value::ChangeError;
use crate::domain::lattice::{Path, PathError};
use crate::domain::quota::Quota;
use crate::domain::resource::NamespaceUse;
use crate::store::{DocWrite, Edit, OwnerUsage, Store, StoreError, decode};
use overlay::Overlay;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Mutex;

pub use docs::{DocChange, Docs};
pub use page::{TreePage, page_of_value};
pub use read::TreeValue;
pub use write::WriteOp;

/// First call index of the turn's own writes, which end accepted work and are made whatever the quota.
pub const OWN_WRITES: u32 = u32::MAX - 3;

/// Why a tree operation failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The text is not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The namespace can't be written, or doesn't exist for this caller.
    #[error("`{path}` can't be {verb}: {reason}")]
    NotHere {
        /// Path of the value.
        path: String,
        /// `read` or `written`.
        verb: &'static str,
        /// Reason of the refusal.
        reason: &'static str,
    },
    /// The change isn't possible on the stored value.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The version that `expect` names isn't the current one.
    #[error("version conflict on `{path}`: expected {expected}, actual {actual}")]
    VersionConflict {
        /// Path of the value.
        path: String,
        /// Version that the request expects.
        expected: u64,
        /// Version of the stored document.
        actual: u64,
    },
    /// The change breaks a rule of the document.
    #[error("{0}")]
    Refused(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An owner's tree with pending writes.
pub struct Workspace {
    store: Arc<dyn Store>,
    owner: Owner,
    scope: Scope,
    quota: Option<Quota>,
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    overlay: Overlay,
    /// Operations by call index, which are made again on newer versions.
    operations: Vec<(u32, PendingOperation)>,
    /// Uses of resources by call index, which are checked again at the commit.
    uses: Vec<(u32, NamespaceUse)>,
    /// What the owner stored at the first write.
    standing: Option<OwnerUsage>,
}

/// An operation that is made again on newer versions.
#[derive(Clone)]
enum PendingOperation {
    /// Write to the tree.
    Tree(WriteOp),
    /// Change of other documents.
    Docs(Arc<dyn DocChange>),
}

impl Workspace {
    /// Makes the tree as committed.
    pub fn new(store: Arc<dyn Store>, owner: Owner, scope: Scope) -> Self {
        Self { store, owner, scope, quota: None, state: Mutex::default() }
    }

    /// Returns the tree with a quota for its writes; an owner's own limits take precedence.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { quota: Some(quota), ..self }
    }

    /// Returns the owner of the tree.
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the scope that `n/`, `c/` and `t/` stand for.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Makes `op` on top of what this turn has done; durable with its commit.
    pub async fn apply(&self, call: u32, op: WriteOp) -> Result<Value, WorkspaceError> {
        self.add_operation(call, PendingOperation::Tree(op)).await
    }

    async fn add_operation(&self, call: u32, operation: PendingOperation) -> Result<Value, WorkspaceError> {
        let mut state = self.state.lock().await;
        let mut next = state.overlay.clone();
        let result = self.run_operation(&mut next, &operation).await?;
        if call < OWN_WRITES {
            quota::check_quota(self, &mut state, &next).await?;
        }
        state.overlay = next;
        state.operations.push((call, operation));
        Ok(result)
    }

    async fn run_operation(
        &self,
        overlay: &mut Overlay,
        operation: &PendingOperation,
    ) -> Result<Value, WorkspaceError> {
        match operation {
            PendingOperation::Tree(op) => self.perform(overlay, op).await,
            PendingOperation::Docs(change) => change.make(&mut Docs { tree: self, overlay }).await,
        }
    }

    /// Makes `op` at once, for callers outside a turn.
    pub async fn apply_now(&self, now: crate::domain::time::Millis, op: &WriteOp) -> Result<Value, WorkspaceError> {
        let attempt = || async {
            let mut overlay = Overlay::default();
            let result = self.perform(&mut overlay, op).await?;
            Ok(Edit::write(overlay.into_writes(), result).with_quota(self.quota))
        };
        self.store.edit(now, &self.owner, "the value", op.target(), attempt).await
    }

    /// Returns the document writes of this turn so far.
    pub async fn writes(&self) -> Vec<DocWrite> {
        self.state.lock().await.overlay.clone().into_writes()
    }

    /// Applies all operations again to the current tree. Returns the new result of each call; an operation that is no
    /// longer possible yields its error, and the others are kept.
    pub async fn rebase(&self) -> Result<Vec<(u32, Result<Value, WorkspaceError>)>, StoreError> {
        let mut state = self.state.lock().await;
        let mut overlay = Overlay::default();
        let mut results = Vec::with_capacity(state.operations.len());
        for (call, op) in &state.operations {
            let mut next = overlay.clone();
            match self.run_operation(&mut next, op).await {
                Ok(result) => {
                    overlay = next;
                    results.push((*call, Ok(result)));
                }
                Err(WorkspaceError::Store(error)) => return Err(error),
                Err(refused) => results.push((*call, Err(refused))),
            }
        }
        state.overlay = overlay;
        Ok(results)
    }

    /// Removes the operations of these calls; [`Workspace::rebase`] must follow.
    pub async fn drop_calls(&self, calls: &[u32]) {
        self.state.lock().await.operations.retain(|(call, _)| !calls.contains(call));
    }

    /// Removes all pending writes.
    pub async fn discard(&self) {
        *self.state.lock().await = PendingState::default();
    }

    fn find_collection<'p>(
        &self,
        path: &'p Path,
        verb: &'static str,
    ) -> Result<(Collection, &'p [String]), WorkspaceError> {
        Collection::locate(path, &self.scope).ok_or_else(|| WorkspaceError::NotHere {
            path: path.to_string(),
            verb,
            reason: if path.segments().is_empty() {
                "expected at least two segments"
            } else if path.namespace().is_writable() {
                "it belongs to an agent, a session or a job, and this call has none"
            } else {
                "the namespace is kept by the venue"
            },
        })
    }

    async fn read_root(
        &self,
        overlay: &Overlay,
        collection: &Collection,
    ) -> Result<(u64, Option<Root>), WorkspaceError> {
        let (version, bytes) = overlay.fetch(self, &collection.root_key()).await?;
        let root = bytes.map(|b| decode::<Root>(&collection.root_key(), &b)).transpose()?;
        Ok((version, root))
    }
}
