//! A session as it is stored between two turns: its state, its mailbox, its `c/`.

use crate::domain::decode;
use crate::domain::ids::{Owner, decode_token};
use crate::domain::lattice::layout::{self, Scope};
use crate::domain::lattice::{Namespace, Path};
use crate::domain::session::SessionState;
use crate::domain::turn::run::PendingEvent;
use crate::store::{DamagedRecord, MailboxEntry, Store, StoreError};
use crate::venue::workspace::{Workspace, WorkspaceError, WriteOp};
use bytes::Bytes;
use serde::de::DeserializeOwned;

/// Position of a write that no call of a reply has made.
const NO_CALL: u32 = u32::MAX;
/// Decodes the state that a commit left for the next turn; the default before the first.
pub(crate) fn decode_state(bytes: Option<&Bytes>) -> Result<SessionState, StoreError> {
    bytes.map_or_else(|| Ok(SessionState::default()), |bytes| decode_stored("state", bytes))
}

/// Decodes mailbox entries for the core.
pub(crate) fn decode_inbox(entries: &[MailboxEntry]) -> Result<Vec<PendingEvent>, StoreError> {
    let pending = entries.iter().map(|entry| {
        Ok(PendingEvent {
            key: entry.key.clone(),
            event: decode_stored(&entry.key, &entry.body)?,
            crashes: entry.crashes,
            status: entry.job_status,
        })
    });
    pending.collect()
}

/// Decodes a stored part of a session; `what` names it in an error.
pub(crate) fn decode_stored<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, StoreError> {
    decode::read_stored(bytes).map_err(|error| StoreError::Corrupt {
        store: "session".into(),
        record: Some(DamagedRecord::SessionPart(what.to_owned())),
        reason: error.to_string(),
    })
}

/// Empties the session's `c/`; durable with the turn's commit.
pub(crate) async fn clear_scratch(workspace: &Workspace, store: &dyn Store) -> Result<(), StoreError> {
    for name in scratch_names(store, workspace.owner(), workspace.scope()).await? {
        let Ok(path) = Path::from_segments(vec![Namespace::Session.prefix().to_owned(), name]) else { continue };
        match workspace.apply(NO_CALL, WriteOp::Delete { path }).await {
            Ok(_) => {}
            Err(WorkspaceError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%error, "what an expired session kept can't be deleted"),
        }
    }
    Ok(())
}

/// Returns the names of the values in a session's `c/`.
async fn scratch_names(store: &dyn Store, owner: &Owner, scope: &Scope) -> Result<Vec<String>, StoreError> {
    let Some(base) = layout::base_key(Namespace::Session, scope) else { return Ok(Vec::new()) };
    let (prefix, mut names) = (format!("{base}/"), Vec::new());
    let mut documents = store.docs(owner, prefix.as_str());
    while let Some(page) = documents.keys().await? {
        names.extend(page.iter().filter_map(|key| decode_token(&key[prefix.len()..])));
    }
    Ok(names)
}
