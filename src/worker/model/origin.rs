//! Stage 5: counts the turns that one request causes, over all workers.
//!
//! Turns that serve a person's request itself aren't counted: its task has a limit of its own. Turns that other turns
//! caused are counted, in one document for each origin and hour.

use crate::domain::job::ErrorCode;
use crate::domain::lineage::hour;
use crate::domain::turn::{FinalTurn, TurnInput};
use crate::store::{Doc, DocKey, EditBatcher, GroupEdit, StoreError, keys};
use crate::worker::Worker;

/// Key of the document that counts a turn.
pub(crate) struct OriginCount(String);

/// Checks that the origin of a turn has turns left in this hour. `None`: the turn isn't counted.
pub(crate) async fn check(
    worker: &Worker,
    setting: &TurnInput,
) -> Result<Result<Option<OriginCount>, FinalTurn>, StoreError> {
    let limit = worker.options.turns_per_origin;
    let lineage = &setting.mandate.envelope.lineage;
    let Some(origin) = lineage.origin.as_ref().filter(|_| limit > 0) else { return Ok(Ok(None)) };
    let key = keys::origin(hour(worker.venue.now()), origin);
    let doc = worker.venue.store.doc(&setting.owner, &key).await?;
    if let Some(reason) = lineage.exhaustion_error(&setting.session.agent, number(&doc), limit) {
        tracing::warn!(owner = %setting.owner, session = %setting.session, reason, "turn refused");
        return Ok(Err(FinalTurn { code: ErrorCode::LimitReached, reason }));
    }
    Ok(Ok(Some(OriginCount(key))))
}

/// Counts a turn whose model was called. A paid reply is not discarded for the count: if other writers were always
/// faster, the turn is missing from it.
pub(crate) async fn count(worker: &Worker, setting: &TurnInput, OriginCount(key): OriginCount) {
    let venue = &worker.venue;
    let once = CountIncrement([key.clone()]);
    if let Err(error) = worker.origin_counts.apply(&venue.store, venue.now(), &setting.owner, &key, once).await {
        tracing::warn!(key, %error, "a turn is not counted");
    }
}

/// Increments a count by one.
#[derive(Debug)]
pub(crate) struct CountIncrement([DocKey; 1]);

/// Groups the counts of one process.
pub(crate) type OriginCounts = EditBatcher<CountIncrement>;

impl GroupEdit for CountIncrement {
    type Value = u32;
    type Answer = ();

    fn keys(&self) -> &[DocKey] {
        &self.0
    }

    fn decode(&self, _at: usize, doc: &Doc) -> Result<Option<u32>, StoreError> {
        Ok(Some(number(doc)))
    }

    fn apply(&self, sheets: &mut [Option<u32>]) {
        for number in sheets.iter_mut() {
            *number = Some(number.unwrap_or_default().saturating_add(1));
        }
    }
}

/// Parses a count; a damaged one is zero.
fn number(doc: &Doc) -> u32 {
    let text = doc.value.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
