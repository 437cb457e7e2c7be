//! Turns of a leased session.

use super::LeasedSession;
use crate::domain::session::TurnRecord;
use crate::store::{StoreError, decode, keys};
use crate::venue::context::Transcript;
use crate::worker::state::Worker;

/// Returns the session's turns; read once, then kept up to date.
pub(crate) async fn load_transcript<'l>(
    worker: &Worker,
    leased: &'l mut LeasedSession,
) -> Result<&'l Transcript, StoreError> {
    let version = leased.run.version;
    if leased.history.transcript.is_none() && version > 0 {
        let (owner, session, since) = (&leased.lease.owner, &leased.lease.session, leased.run.state.since);
        leased.history.transcript = Some(Transcript::read(&*worker.venue.store, owner, session, version, since).await?);
    }
    Ok(leased.history.transcript.get_or_insert_default())
}

/// Returns the record of a turn of the session, from the cache or the store.
pub(crate) async fn load_turn(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn: u64,
) -> Result<Option<TurnRecord>, StoreError> {
    if let Some(known) = load_transcript(worker, leased).await?.turn(turn) {
        return Ok(Some(known.clone()));
    }
    let key = keys::turn(&leased.lease.session, turn);
    let doc = worker.venue.store.read(&leased.lease.owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    doc.value.map(|bytes| decode(&key, &bytes)).transpose()
}
