//! Messages to a job: they go to the job's session, and become a part of its request.

use super::{Arrival, PreparationError, SubmissionError};
use crate::domain::event::Submission;
use crate::domain::ids::JobId;
use crate::domain::job::Job;
use crate::venue::Venue;
use crate::venue::jobs;

/// Checks that a job takes messages.
pub fn check_accepts_message(job: &Job) -> Result<(), SubmissionError> {
    let why = if job.head.op.is_some() {
        "is no agent's and takes no message".to_owned()
    } else if job.status.is_terminal() {
        format!(
            "is {} and waits for no input; send a message to its agent `{}` instead",
            job.status.as_str(),
            job.head.agent
        )
    } else {
        return Ok(());
    };
    Err(SubmissionError::NotOpen { job: job.head.id.clone(), why })
}

/// Returns a message to a job as one to the job's session.
pub(super) async fn as_job_message(venue: &Venue, arrival: &Arrival, to: &JobId) -> Result<Arrival, PreparationError> {
    let not = |why: &str| Err(SubmissionError::NotOpen { job: to.clone(), why: why.to_owned() }.into());
    if arrival.task {
        return not("can be named by a message, not by a task");
    }
    let Some(job) = jobs::get(venue, &arrival.owner, to).await? else {
        return Err(SubmissionError::NoJob(to.clone()).into());
    };
    if job.head.op.is_none() && job.head.agent != arrival.agent {
        return not("is another agent's");
    }
    if arrival.submission.session_id.as_ref().is_some_and(|session| *session != job.head.session) {
        return not("has another session: leave `sessionId` out");
    }
    let submission = Submission { session_id: Some(job.head.session.clone()), ..arrival.submission.clone() };
    check_accepts_message(&job)?;
    Ok(Arrival { submission, ..arrival.clone() })
}
