//! Jobs that are paused and resumed. The turn that runs when a job is paused commits, and none begins for it until it
//! is resumed; children, timers and approvals continue, and so does the deadline.

use super::{end, get};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::{Job, JobResult, JobStatus, Waiting};
use crate::domain::wait::WaitCause;
use crate::store::{DocWrite, Finished, Parked, StoreError, keys};
use crate::venue::Venue;

/// Result of pausing or resuming a job.
#[derive(Debug, Clone, PartialEq)]
pub enum HoldOutcome {
    /// The job has the wanted state, or had it before.
    Done(Box<Job>),
    /// The job can't get that state, for this reason.
    Not(String),
    /// There is no such job.
    Unknown,
}

/// Pauses an open job of an agent; `by` is the name of the caller.
pub async fn pause(venue: &Venue, owner: &Owner, id: &JobId, by: &str) -> Result<HoldOutcome, StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(HoldOutcome::Unknown) };
    if job.head.op.is_some() {
        let status = job.status.as_str();
        return Ok(HoldOutcome::Not(format!(
            "job `{id}` is {status} and its operation can't be paused; it can be cancelled"
        )));
    }
    match venue.store.park(venue.now(), owner, &session(&job), id, true).await? {
        Parked::Unknown => Ok(HoldOutcome::Unknown),
        Parked::Done => {
            note_pause(venue, owner, id, by).await?;
            shown(venue, owner, id).await
        }
        Parked::Already(JobStatus::Paused) => shown(venue, owner, id).await,
        Parked::Already(status) => {
            Ok(HoldOutcome::Not(format!("job `{id}` is {} and can't be paused any more", status.as_str())))
        }
    }
}

/// Records who has paused a job, for those who read it.
async fn note_pause(venue: &Venue, owner: &Owner, job: &JobId, by: &str) -> Result<(), StoreError> {
    let note = Waiting { reason: by.to_owned(), until: None, cause: WaitCause::Paused };
    venue.store.write(venue.now(), owner, &[DocWrite::json(keys::job_wait(job), &note)]).await.map(|_| ())
}

/// Resumes a paused job.
pub async fn resume(venue: &Venue, owner: &Owner, id: &JobId) -> Result<HoldOutcome, StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(HoldOutcome::Unknown) };
    let session = session(&job);
    match venue.store.park(venue.now(), owner, &session, id, false).await? {
        Parked::Unknown => Ok(HoldOutcome::Unknown),
        Parked::Done => {
            venue.wake(owner, &session).await;
            shown(venue, owner, id).await
        }
        Parked::Already(status) => Ok(HoldOutcome::Not(format!("job `{id}` is {}, expected PAUSED", status.as_str()))),
    }
}

/// Ends a job whose time is over while none of its turns can begin.
pub async fn over(venue: &Venue, owner: &Owner, id: &JobId, result: &JobResult) -> Result<(), StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(()) };
    match end(venue, owner, &job, result, Vec::new()).await? {
        Finished::Done => {
            tracing::info!(%owner, job = %id, reason = result.error.as_deref().unwrap_or_default(), "its time was over");
        }
        Finished::Already(_) | Finished::Unknown => {}
    }
    Ok(())
}

fn session(job: &Job) -> SessionKey {
    SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() }
}

async fn shown(venue: &Venue, owner: &Owner, id: &JobId) -> Result<HoldOutcome, StoreError> {
    Ok(super::shown(venue, owner, id).await?.map_or(HoldOutcome::Unknown, |job| HoldOutcome::Done(Box::new(job))))
}
