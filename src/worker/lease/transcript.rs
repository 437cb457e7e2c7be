//! The turns of a leased session: read once, then kept up.

use super::Leased;
use crate::domain::session::TurnRecord;
use crate::store::{StoreError, decode, keys};
use crate::venue::context::turns;
use crate::worker::Worker;

/// The session's turn records, oldest first.
pub(crate) async fn all<'l>(worker: &Worker, leased: &'l mut Leased) -> Result<&'l Vec<TurnRecord>, StoreError> {
    let version = leased.run.version;
    if leased.transcript.is_none() && version > 0 {
        let since = leased.run.state.since;
        let found = turns(&*worker.venue.store, &leased.lease.owner, &leased.lease.session, version, since).await?;
        leased.transcript = Some(found);
    }
    Ok(leased.transcript.get_or_insert_default())
}

/// The record of a turn of the session.
pub(crate) async fn record(worker: &Worker, leased: &mut Leased, turn: u64) -> Result<Option<TurnRecord>, StoreError> {
    if let Some(known) = all(worker, leased).await?.iter().rev().find(|record| record.turn == turn) {
        return Ok(Some(known.clone()));
    }
    let key = keys::turn(&leased.lease.session, turn);
    let doc = worker.venue.store.read(&leased.lease.owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    doc.value.map(|bytes| decode(&key, &bytes)).transpose()
}
