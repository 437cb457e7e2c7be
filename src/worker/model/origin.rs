//! Stage 5: counts the turns that one request causes, over all workers.
//!
//! Turns that serve a person's request itself aren't counted: its task has a limit of its own. Turns that other turns
//! caused are counted, in one document for each origin and hour.

use crate::domain::job::ErrorCode;
use crate::domain::lineage::hour;
use crate::domain::turn::{FinalTurn, TurnInput};
use crate::store::{StoreError, keys};
use crate::worker::state::Worker;
use crate::worker::state::origin_counts::{CountIncrement, parse_count};

/// Key of the document that counts a turn.
pub(crate) struct OriginCount(String);

/// Why the model of a turn isn't called for its origin.
#[derive(Debug)]
pub(crate) enum OriginCheckError {
    /// The origin has no turns left in this hour.
    Exhausted(FinalTurn),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for OriginCheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Checks that the origin of a turn has turns left in this hour. `None`: the turn isn't counted.
pub(crate) async fn check(worker: &Worker, turn_input: &TurnInput) -> Result<Option<OriginCount>, OriginCheckError> {
    let limit = worker.options.turns_per_origin;
    let lineage = &turn_input.mandate.envelope.lineage;
    let Some(origin) = lineage.origin.as_ref().filter(|_| limit > 0) else { return Ok(None) };
    let key = keys::origin(hour(worker.venue.now()), origin);
    let doc = worker.venue.store.doc(&turn_input.owner, &key).await?;
    if let Some(reason) = lineage.exhaustion_error(&turn_input.session.agent, parse_count(&doc), limit) {
        tracing::warn!(owner = %turn_input.owner, session = %turn_input.session, reason, "turn refused");
        return Err(OriginCheckError::Exhausted(FinalTurn { code: ErrorCode::LimitReached, reason }));
    }
    Ok(Some(OriginCount(key)))
}

/// Counts a turn whose model was called. A paid reply is not discarded for the count: if other writers were always
/// faster, the turn is missing from it.
pub(crate) async fn count(worker: &Worker, turn_input: &TurnInput, OriginCount(key): OriginCount) {
    let venue = &worker.venue;
    let once = CountIncrement::new(key.clone());
    if let Err(error) = worker.origin_counts.apply(&venue.store, venue.now(), &turn_input.owner, &key, once).await {
        tracing::warn!(key, %error, "a turn is not counted");
    }
}
