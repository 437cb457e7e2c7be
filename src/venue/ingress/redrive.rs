//! Redrive of failed tasks: the same task, as a new job.

use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::trail::Trail;
use crate::domain::dead::DeadLetter;
use crate::domain::event::{Event, Payload, Submission};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::{Job, JobStatus};
use crate::domain::principal::Principal;
use crate::store::{Refusal, StoreError};
use crate::venue::Venue;
use crate::venue::dead_letters::{get, letter_write, redrive_id};
use crate::venue::ingress::{self, Arrival, SubmitError};
use crate::venue::jobs;

/// Why a task isn't redriven.
#[derive(Debug, thiserror::Error)]
pub enum RedriveError {
    /// There is no failed job of this id.
    #[error("no job `{0}` that failed: `trellis job list --state failed` and `trellis dead list` show which did")]
    Unknown(JobId),
    /// The task can't be sent again.
    #[error("job `{job}` can't be driven again: {why}")]
    Refused {
        /// Id of the job.
        job: JobId,
        /// Reason of the refusal.
        why: &'static str,
    },
    /// The new submission was not accepted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RedriveError {
    /// Returns the error of the store, if it is one; otherwise the error itself. An exceeded quota counts as the
    /// store's, as in any other write.
    pub(crate) fn into_store(self) -> Result<StoreError, Self> {
        match self {
            Self::Submit(SubmitError::Refused { refusal: Refusal::Quota(over), .. }) => Ok(StoreError::Over(over)),
            Self::Store(error) | Self::Submit(SubmitError::Store(error)) => Ok(error),
            other => Err(other),
        }
    }
}

/// Returns the task of a failed job.
fn task_of(job: &Job) -> Result<Event, RedriveError> {
    let not = |why| RedriveError::Refused { job: job.head.id.clone(), why };
    match job.status {
        JobStatus::Failed => {}
        JobStatus::Cancelled => {
            return Err(not("it was cancelled and has not FAILED; submit its task again under a new id"));
        }
        JobStatus::Pending
        | JobStatus::Started
        | JobStatus::Complete
        | JobStatus::Rejected
        | JobStatus::Paused
        | JobStatus::InputRequired
        | JobStatus::AuthRequired => return Err(not("it has not FAILED")),
    }
    if job.head.op.is_some() {
        return Err(not("it is the run of an operation; run that again"));
    }
    let task = Event::from_job(&job.head).map(|(event, _)| event);
    task.ok_or_else(|| not("its values (`sessionContext`) were kept with its task and are gone; submit it again"))
}

/// Redrives a failed task as a new job in the same session, under the authority that it had, without what was revoked
/// since. Returns the job, and whether it was redriven before: a second redrive is the same job.
pub async fn redrive(venue: &Venue, owner: &Owner, id: &JobId) -> Result<(JobId, bool), RedriveError> {
    let Some((letter, version)) = get(venue, owner, id).await? else {
        let Some(job) = jobs::get(venue, owner, id).await? else { return Err(RedriveError::Unknown(id.clone())) };
        let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
        let submitted = ingress::submit(venue, &redrive_arrival(venue, owner, id, &session, &task_of(&job)?)).await?;
        let next = submitted.job.unwrap_or_else(|| JobId::derive(&venue.key, owner, &submitted.id));
        return Ok((next, submitted.duplicate));
    };
    let arrival = redrive_arrival(venue, owner, id, &letter.session, &letter.event);
    let submitted = ingress::submit(venue, &arrival).await?;
    let job = submitted.job.unwrap_or_else(|| JobId::derive(&venue.key, owner, &arrival.id));
    if letter.redriven.is_none() {
        let noted = DeadLetter { redriven: Some(job.clone()), ..letter };
        // On a conflict another process redrives it at the same time, as the same job.
        venue.store.write(venue.now(), owner, &[letter_write(&noted).at_version(version)]).await?;
    }
    Ok((job, submitted.duplicate))
}

/// Returns the submission that redrives a task. A caller that waited for it has its answer already.
fn redrive_arrival(venue: &Venue, owner: &Owner, job: &JobId, session: &SessionKey, event: &Event) -> Arrival {
    let Event { caller, reply_to, session_context, context_ids, envelope, budget, handed, response_schema, .. } = event;
    // What was revoked from the failed job is revoked from the new one.
    let failed = Trail { grants: vec![job.to_string()], ..Trail::default() };
    let (loads, output_path) = (event.loads.clone(), event.output_path.clone());
    let input = match &event.payload {
        Payload::Task { input, .. } => input.clone(),
        Payload::Message { .. } | Payload::Result { .. } | Payload::Decision { .. } => serde_json::Value::Null,
    };
    Arrival {
        owner: owner.clone(),
        agent: session.agent.clone(),
        task: true,
        id: redrive_id(venue, job),
        submission: Submission {
            input,
            session_id: Some(session.session.clone()),
            reply_to: reply_to.clone(),
            session_context: session_context.clone(),
            context_ids: context_ids.clone(),
            caller: caller.clone(),
            // The deadline of the request is over; authority and budget stay as they were.
            envelope: Envelope { deadline: None, ..envelope.clone() }.with_trail(&failed),
            handed: handed.clone(),
            budget: *budget,
            loads,
            output_path,
            response_schema: response_schema.clone(),
            priority: event.priority,
            redrive_of: Some(job.clone()),
            ..Submission::default()
        },
        received: venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: true,
        trace: event.trace,
    }
}
