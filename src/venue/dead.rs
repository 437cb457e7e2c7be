//! Dead letters as operators see them: list, show. What drives them again is [`crate::ingress::redrive`].

use crate::domain::dead::DeadLetter;
use crate::domain::ids::{EventId, IdOf, JobId, Owner};
use crate::domain::job::{ErrorCode, Job};
use crate::store::{DocKey, DocWrite, StoreError, Window, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::{self, ListPage};

/// The write by which the commit that takes a dead task out of its mailbox keeps it.
pub fn kept(letter: &DeadLetter) -> DocWrite {
    DocWrite::json(keys::dead_letter(letter.died, &letter.job), letter)
}

/// A page of them, the last to die first: no more than weigh [`LIST_BYTES`](crate::domain::limits::LIST_BYTES) together.
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

/// That of a job.
pub async fn get(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<(DeadLetter, u64)>, StoreError> {
    // Its place follows from when its job failed.
    let Some(Job { updated, result: Some(result), .. }) = jobs::get(venue, owner, id).await? else { return Ok(None) };
    if result.error_code != Some(ErrorCode::Dead) {
        return Ok(None);
    }
    let (letter, version) = venue.store.versioned(owner, &keys::dead_letter(updated, id)).await?;
    Ok(letter.map(|letter| (letter, version)))
}

/// The id under which a job is driven again, however often.
pub(crate) fn id_of(venue: &Venue, job: &JobId) -> EventId {
    EventId::of_venue(&venue.key, IdOf::Redrive(job))
}

/// The job as which this one was driven again.
pub async fn driven_as(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Option<JobId>, StoreError> {
    let again = JobId::derive(&venue.key, owner, &id_of(venue, job));
    let status = venue.store.doc(owner, &keys::job_status(&again)).await?;
    Ok(status.value.is_some().then_some(again))
}

/// Which of these jobs were driven again.
pub async fn driven(venue: &Venue, owner: &Owner, jobs: &[JobId]) -> Result<Vec<bool>, StoreError> {
    let heads: Vec<DocKey> =
        jobs.iter().map(|job| keys::job_status(&JobId::derive(&venue.key, owner, &id_of(venue, job)))).collect();
    Ok(venue.store.read(owner, &heads).await?.iter().map(|doc| doc.value.is_some()).collect())
}
