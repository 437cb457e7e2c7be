//! Retention of unknown outcomes: as long as that of jobs, from the settlement, or if unsettled from the record.

use super::batch::{ForgetBatch, PAGE, decode_readable};
use crate::domain::ids::Owner;
use crate::domain::outcome::UnknownOutcome;
use crate::domain::retention::{RetentionRules, job_horizon};
use crate::store::{DocKey, StoreError, keys};
use crate::venue::Venue;

/// Checks one page. Returns where the next page begins, and how many were deleted.
pub(super) async fn tidy_page(
    venue: &Venue,
    owner: &Owner,
    rules: RetentionRules,
    after: Option<DocKey>,
) -> Result<(Option<DocKey>, u64), StoreError> {
    let Some(horizon) = job_horizon(rules, venue.now()) else { return Ok((None, 0)) };
    let mut pages = venue.store.docs(owner, keys::OUTCOMES).start_after(after).page_size(PAGE);
    let mut batch = ForgetBatch::new(venue, owner);
    for (key, doc) in pages.next().await?.unwrap_or_default() {
        let Some(outcome) = decode_readable::<UnknownOutcome>(&key, &doc) else { continue };
        if outcome.settled.as_ref().map_or(outcome.at, |settled| settled.at) < horizon {
            if outcome.settled.is_none() {
                tracing::warn!(%owner, outcome = %outcome.id, operation = outcome.operation, "forgotten unsettled");
            }
            batch.documents.push(key);
        }
    }
    let gone = batch.documents.len() as u64;
    batch.flush().await?;
    Ok((pages.last_place(), gone))
}
