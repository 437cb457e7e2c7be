//! Jobs that are paused and resumed. The turn that runs when a job is paused commits, and none begins for it until it
//! is resumed; children, timers and approvals continue, and so does the deadline.

use super::{end, get};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::{Job, JobResult, JobStatus, WaitNote};
use crate::domain::wait::WaitCause;
use crate::store::{DocWrite, FinishOutcome, ParkOutcome, StoreError, keys};
use crate::venue::Venue;

/// Result of pausing or resuming a job.
#[derive(Debug, Clone, PartialEq)]
pub enum PauseOutcome {
    /// The job has the wanted state, or had it before.
    Done(Box<Job>),
    /// The job can't get that state, for this reason.
    Refused(String),
    /// There is no such job.
    Unknown,
}

/// Pauses an open job of an agent; `by` is the name of the caller.
pub async fn pause(venue: &Venue, owner: &Owner, id: &JobId, by: &str) -> Result<PauseOutcome, StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(PauseOutcome::Unknown) };
    if job.head.op.is_some() {
        let status = job.status.as_str();
        return Ok(PauseOutcome::Refused(format!(
            "job `{id}` is {status} and its operation can't be paused; it can be cancelled"
        )));
    }
    match venue.store.set_job_paused(venue.now(), owner, &session_key(&job), id, true).await? {
        ParkOutcome::Unknown => Ok(PauseOutcome::Unknown),
        ParkOutcome::Done => {
            note_pause(venue, owner, id, by).await?;
            paused_job(venue, owner, id).await
        }
        ParkOutcome::Already(JobStatus::Paused) => paused_job(venue, owner, id).await,
        ParkOutcome::Already(status) => {
            Ok(PauseOutcome::Refused(format!("job `{id}` is {} and can't be paused any more", status.as_str())))
        }
    }
}

/// Records who has paused a job, for those who read it.
async fn note_pause(venue: &Venue, owner: &Owner, job: &JobId, by: &str) -> Result<(), StoreError> {
    let note = WaitNote { reason: by.to_owned(), until: None, cause: WaitCause::Paused };
    venue.store.write(venue.now(), owner, &[DocWrite::json(keys::job_wait(job), &note)]).await.map(|_| ())
}

/// Resumes a paused job.
pub async fn resume(venue: &Venue, owner: &Owner, id: &JobId) -> Result<PauseOutcome, StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(PauseOutcome::Unknown) };
    let session = session_key(&job);
    match venue.store.set_job_paused(venue.now(), owner, &session, id, false).await? {
        ParkOutcome::Unknown => Ok(PauseOutcome::Unknown),
        ParkOutcome::Done => {
            venue.wake(owner, &session).await;
            paused_job(venue, owner, id).await
        }
        ParkOutcome::Already(status) => {
            Ok(PauseOutcome::Refused(format!("job `{id}` is {}, expected PAUSED", status.as_str())))
        }
    }
}

/// Ends a job whose time is over while none of its turns can begin.
pub async fn fail_overdue(venue: &Venue, owner: &Owner, id: &JobId, result: &JobResult) -> Result<(), StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(()) };
    match end(venue, owner, &job, result, Vec::new()).await? {
        FinishOutcome::Done => {
            tracing::info!(%owner, job = %id, reason = result.error.as_deref().unwrap_or_default(), "its time was over");
        }
        FinishOutcome::Already(_) | FinishOutcome::Unknown => {}
    }
    Ok(())
}

fn session_key(job: &Job) -> SessionKey {
    SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() }
}

async fn paused_job(venue: &Venue, owner: &Owner, id: &JobId) -> Result<PauseOutcome, StoreError> {
    Ok(super::read_for_people(venue, owner, id)
        .await?
        .map_or(PauseOutcome::Unknown, |job| PauseOutcome::Done(Box::new(job))))
}
