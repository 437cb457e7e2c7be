//! The tree of an owner as one turn, or one call of an operator, sees it: as committed, plus its
//! own writes.
//!
//! A turn's writes are kept as operations. When documents changed under it, [`Workspace::rebase`]
//! applies them again to the newer versions; no model is called again and no update is lost.

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
use crate::domain::resource::Use;
use crate::store::{DocWrite, Edit, Standing, Store, StoreError, decode};
use overlay::Overlay;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Mutex;

pub use docs::{DocChange, Docs};
pub use page::{TreePage, page};
pub use write::WriteOp;

/// From this place on writes are the turn's own: what was accepted ends, whatever its owner's quota.
pub const OWN: u32 = u32::MAX - 3;

/// Why a tree operation failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The namespace can't be written, or isn't there for this caller.
    #[error("`{path}` can't be {verb}: {reason}")]
    NotHere {
        /// The path.
        path: String,
        /// `read` or `written`.
        verb: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// Not possible on the value that is there.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// `expect` didn't hold.
    #[error("version conflict on `{path}`: expected {expected}, actual {actual}")]
    VersionConflict {
        /// The path.
        path: String,
        /// As asked.
        expected: u64,
        /// As it is.
        actual: u64,
    },
    /// Against a rule of what is kept there.
    #[error("{0}")]
    Refused(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An owner's tree with pending writes.
pub struct Workspace {
    store: Arc<dyn Store>,
    owner: Owner,
    scope: Scope,
    quota: Option<Quota>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    overlay: Overlay,
    /// What was done, by call index: to be done again on a newer version.
    operations: Vec<(u32, Operation)>,
    /// Uses of resources, by call index: to be allowed again at the commit.
    uses: Vec<(u32, Use)>,
    /// What the owner kept at the first write.
    standing: Option<Standing>,
}

/// What is done again on a newer version.
#[derive(Clone)]
enum Operation {
    /// On the tree.
    Tree(WriteOp),
    /// On other documents.
    Docs(Arc<dyn DocChange>),
}

impl Workspace {
    /// The tree as committed.
    pub fn new(store: Arc<dyn Store>, owner: Owner, scope: Scope) -> Self {
        Self { store, owner, scope, quota: None, state: Mutex::default() }
    }

    /// With a quota for what is written: what operators have said of the owner counts before it.
    #[must_use]
    pub fn within(self, quota: Quota) -> Self {
        Self { quota: Some(quota), ..self }
    }

    /// Whose tree it is.
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whose `n/`, `c/` and `t/` it shows.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Does `op` on top of what this turn has done; durable with its commit.
    pub async fn apply(&self, call: u32, op: WriteOp) -> Result<Value, WorkspaceError> {
        self.add(call, Operation::Tree(op)).await
    }

    async fn add(&self, call: u32, operation: Operation) -> Result<Value, WorkspaceError> {
        let mut state = self.state.lock().await;
        let mut next = state.overlay.clone();
        let result = self.repeat(&mut next, &operation).await?;
        if call < OWN {
            quota::admits(self, &mut state, &next).await?;
        }
        state.overlay = next;
        state.operations.push((call, operation));
        Ok(result)
    }

    async fn repeat(&self, overlay: &mut Overlay, operation: &Operation) -> Result<Value, WorkspaceError> {
        match operation {
            Operation::Tree(op) => self.perform(overlay, op).await,
            Operation::Docs(change) => change.make(&mut Docs { tree: self, overlay }).await,
        }
    }

    /// Does `op` at once, for callers outside a turn.
    pub async fn apply_now(&self, now: crate::domain::time::Millis, op: &WriteOp) -> Result<Value, WorkspaceError> {
        let attempt = || async {
            let mut overlay = Overlay::default();
            let result = self.perform(&mut overlay, op).await?;
            Ok(Edit::write(overlay.into_writes(), result).within(self.quota))
        };
        self.store.edit(now, &self.owner, ("the value", op.target()), attempt).await
    }

    /// The document writes of this turn so far.
    pub async fn writes(&self) -> Vec<DocWrite> {
        self.state.lock().await.overlay.clone().into_writes()
    }

    /// Applies all operations again to the tree as it is now. Returns what each call's result is
    /// now; an operation that is no longer possible yields its error, and the others stand.
    pub async fn rebase(&self) -> Result<Vec<(u32, Result<Value, String>)>, StoreError> {
        let mut state = self.state.lock().await;
        let mut overlay = Overlay::default();
        let mut results = Vec::with_capacity(state.operations.len());
        for (call, op) in &state.operations {
            let mut next = overlay.clone();
            match self.repeat(&mut next, op).await {
                Ok(result) => {
                    overlay = next;
                    results.push((*call, Ok(result)));
                }
                Err(WorkspaceError::Store(error)) => return Err(error),
                Err(refused) => results.push((*call, Err(refused.to_string()))),
            }
        }
        state.overlay = overlay;
        Ok(results)
    }

    /// Forgets the writes of these calls; what remains is right after [`Workspace::rebase`].
    pub async fn take_back(&self, calls: &[u32]) {
        self.state.lock().await.operations.retain(|(call, _)| !calls.contains(call));
    }

    /// Forgets all pending writes.
    pub async fn discard(&self) {
        *self.state.lock().await = State::default();
    }

    fn collection<'p>(&self, path: &'p Path, verb: &'static str) -> Result<(Collection, &'p [String]), WorkspaceError> {
        Collection::of(path, &self.scope).ok_or_else(|| WorkspaceError::NotHere {
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

    async fn root(&self, overlay: &Overlay, collection: &Collection) -> Result<(u64, Option<Root>), WorkspaceError> {
        let (version, bytes) = overlay.fetch(self, &collection.root()).await?;
        let root = bytes.map(|b| decode::<Root>(&collection.root(), &b)).transpose()?;
        Ok((version, root))
    }
}
