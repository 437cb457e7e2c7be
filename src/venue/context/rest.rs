//! A session as the store has it between two turns: what it remembers, its mailbox, its `c/`.

use crate::domain::decode;
use crate::domain::ids::{Owner, decode_token};
use crate::domain::lattice::layout::{self, Scope};
use crate::domain::lattice::{Namespace, Path};
use crate::domain::session::SessionState;
use crate::domain::turn::run::Pending;
use crate::store::{MailboxEntry, Store, StoreError};
use crate::venue::workspace::{Workspace, WorkspaceError, WriteOp};
use bytes::Bytes;
use serde::de::DeserializeOwned;

/// Place of what no call of a reply has done.
const NO_CALL: u32 = u32::MAX;
/// What a commit left for the next turn; before the first, nothing.
pub(crate) fn state(bytes: Option<&Bytes>) -> Result<SessionState, StoreError> {
    bytes.map_or_else(|| Ok(SessionState::default()), |bytes| stored("state", bytes))
}

/// Mailbox entries as the core takes them.
pub(crate) fn inbox(entries: &[MailboxEntry]) -> Result<Vec<Pending>, StoreError> {
    let pending = entries.iter().map(|entry| {
        Ok(Pending {
            key: entry.key.clone(),
            event: stored(&entry.key, &entry.body)?,
            crashes: entry.crashes,
            status: entry.job_status,
        })
    });
    pending.collect()
}

/// `what` of a session as it was stored.
pub(crate) fn stored<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, StoreError> {
    let corrupt = |error| StoreError::Corrupt { store: "session".into(), reason: format!("{what}: {error}") };
    decode::stored(bytes).map_err(corrupt)
}

/// Empties the session's `c/`, durable with the turn's commit.
pub(crate) async fn clear(workspace: &Workspace, store: &dyn Store) -> Result<(), StoreError> {
    for name in names(store, workspace.owner(), workspace.scope()).await? {
        let Ok(path) = Path::from_segments(vec![Namespace::Session.prefix().to_owned(), name]) else { continue };
        match workspace.apply(NO_CALL, WriteOp::Delete { path }).await {
            Ok(_) => {}
            Err(WorkspaceError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%error, "what an expired session kept can't be deleted"),
        }
    }
    Ok(())
}

/// Names of what lies in a session's `c/`.
async fn names(store: &dyn Store, owner: &Owner, scope: &Scope) -> Result<Vec<String>, StoreError> {
    let Some(base) = layout::base(Namespace::Session, scope) else { return Ok(Vec::new()) };
    let (prefix, mut names) = (format!("{base}/"), Vec::new());
    let mut documents = store.docs(owner, prefix.as_str());
    while let Some(page) = documents.keys().await? {
        names.extend(page.iter().filter_map(|key| decode_token(&key[prefix.len()..])));
    }
    Ok(names)
}
