//! Dead letters as operators see them: list, show. [`crate::venue::ingress::redrive`] runs them again.

use crate::domain::dead::DeadLetter;
use crate::domain::ids::{EventId, JobId, Owner, VenueIdSubject};
use crate::domain::job::{ErrorCode, Job};
use crate::store::{DocKey, DocWrite, StoreError, Window, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::{self, ListPage};

/// Returns the write that keeps a dead letter, in the commit that removes its task from the mailbox.
pub fn letter_write(letter: &DeadLetter) -> DocWrite {
    DocWrite::json(keys::dead_letter(letter.died, &letter.job), letter)
}

/// Lists a page of dead letters, the latest first, with at most [`LIST_BYTES`](crate::domain::limits::LIST_BYTES)
/// together.
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    offset: usize,
    limit: usize,
) -> Result<ListPage<DeadLetter>, StoreError> {
    let window = Window { reverse: true, skip: offset, limit, values: false };
    let page = venue.store.page(owner, keys::DEAD_LETTERS, window).await?;
    let places: Vec<[DocKey; 1]> = page.docs.into_iter().map(|(key, _)| [key]).collect();
    let (items, read) = steps::page(&*venue.store, owner, &places, 0, limit).await?;
    Ok(ListPage { items, total: page.total, next: offset + read })
}

/// Returns the dead letter of a job, with the version of its document.
pub async fn get(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<(DeadLetter, u64)>, StoreError> {
    // The key of the letter follows from the time at which its job failed.
    let Some(Job { updated, result: Some(result), .. }) = jobs::get(venue, owner, id).await? else { return Ok(None) };
    if result.error_code != Some(ErrorCode::Dead) {
        return Ok(None);
    }
    let (letter, version) = venue.store.get_versioned(owner, &keys::dead_letter(updated, id)).await?;
    Ok(letter.map(|letter| (letter, version)))
}

/// Returns the event id under which a job is redriven: one for each job, however often it is redriven.
pub(crate) fn redrive_id(venue: &Venue, job: &JobId) -> EventId {
    EventId::of_venue(&venue.key, VenueIdSubject::Redrive(job))
}

/// Returns the job as which this one was redriven, if it was.
pub async fn redriven_job(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Option<JobId>, StoreError> {
    let again = JobId::derive(&venue.key, owner, &redrive_id(venue, job));
    let status = venue.store.doc(owner, &keys::job_status(&again)).await?;
    Ok(status.value.is_some().then_some(again))
}

/// Returns for each of these jobs whether it was redriven.
pub async fn were_redriven(venue: &Venue, owner: &Owner, jobs: &[JobId]) -> Result<Vec<bool>, StoreError> {
    let heads: Vec<DocKey> =
        jobs.iter().map(|job| keys::job_status(&JobId::derive(&venue.key, owner, &redrive_id(venue, job)))).collect();
    Ok(venue.store.read(owner, &heads).await?.iter().map(|doc| doc.value.is_some()).collect())
}
