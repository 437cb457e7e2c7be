//! Jobs that are paused and let go on. The turn that runs when a job is paused commits, and none begins
//! for it until it goes on; children, timers and approvals go on, and so does its time.

use super::{end, get};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::{Job, JobResult, JobStatus, Waiting};
use crate::domain::wait::WaitCause;
use crate::store::{DocWrite, Finished, Parked, StoreError, keys};
use crate::venue::Venue;

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub enum HoldOutcome {
    /// It is so now, or was.
    Done(Box<Job>),
    /// It can't be, for this reason.
    Not(String),
    /// No such job.
    Unknown,
}

/// Pauses an open job of an agent, in the name of this caller.
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

/// Records who has paused a job, for those who look at it.
async fn note_pause(venue: &Venue, owner: &Owner, job: &JobId, by: &str) -> Result<(), StoreError> {
    let note = Waiting { reason: by.to_owned(), until: None, cause: WaitCause::Paused };
    venue.store.write(venue.now(), owner, &[DocWrite::json(keys::job_wait(job), &note)]).await.map(|_| ())
}

/// Lets a paused job go on.
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

/// Ends a job whose time is over while no turn of it can begin.
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
