//! Sessions whose time to live is over: new and empty in the turn that begins, and in the store with its commit.

use super::Worker;
use super::gather;
use super::session::{Leased, Stop};
use crate::domain::agent::AgentConfig;
use crate::domain::ids::{Owner, decode_token};
use crate::domain::lattice::layout::{self, Scope};
use crate::domain::lattice::{Namespace, Path};
use crate::store::{Store, StoreError};
use crate::venue::workspace::{Workspace, WorkspaceError, WriteOp};

/// Place of what no call of a reply has done.
const NO_CALL: u32 = u32::MAX;
/// Documents that one step reads.
const PAGE: usize = 100;

/// Looks whether the session's time was over when what it is to serve arrived.
pub(super) async fn look(worker: &Worker, leased: &mut Leased, config: &AgentConfig) -> Result<(), Stop> {
    let (Some(ttl), Some(at)) = (&config.session.ttl, leased.run.arrived()) else { return Ok(()) };
    if leased.expired || leased.run.version == 0 || !leased.run.state.rests() {
        return Ok(());
    }
    let last = gather::transcript(worker, leased).await?.last().map(|record| record.end);
    if last.is_some_and(|last| leased.run.expire(ttl, last, at)) {
        tracing::debug!(session = %leased.lease.session, "its time to live is over; it begins anew");
        leased.transcript = Some(Vec::new());
        leased.expired = true;
    }
    Ok(())
}

/// Empties the session's `c/`, durable with the turn's commit.
pub(super) async fn empty(workspace: &Workspace, store: &dyn Store) -> Result<(), StoreError> {
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
    let (prefix, mut names, mut after) = (format!("{base}/"), Vec::new(), None::<String>);
    loop {
        let page = store.scan(owner, &prefix, after.as_deref(), false, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(names) };
        after = Some(last.clone());
        names.extend(page.iter().filter_map(|(key, _)| decode_token(&key[prefix.len()..])));
    }
}
