//! Waits for a job, and tells the client meanwhile that it is waited for.

use super::call::McpCall;
use crate::domain::ids::JobId;
use crate::domain::job::Job;
use crate::http::jobs::{unknown_job, wait_for_end_or_question};
use crate::http::problem::Problem;
use crate::venue::{job_view, jobs};
use crate::view::job::JobView;
use std::time::Duration;

/// Pause between two messages about the progress of a request.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// Waits until a job has ended or waits for a person, or until the time or the venue ends, and returns its record.
pub(super) async fn wait_for_end(call: &McpCall, id: &JobId, limit: Duration) -> Result<JobView, Problem> {
    let clock = &call.api.venue.clock;
    let begin = clock.steady();
    loop {
        let passed = clock.steady().saturating_sub(begin);
        let step = limit.saturating_sub(passed).min(PROGRESS_PAUSE);
        let job = wait_for_end_or_question(&call.api, &call.who, id, step).await?.ok_or_else(|| unknown_job(id))?;
        let passed = clock.steady().saturating_sub(begin);
        if is_over(&job) || call.api.closing.is_cancelled() || passed >= limit {
            return record_of(call, &job).await;
        }
        call.send_progress(passed.as_secs(), format!("job {id} is {}", job.status.as_str())).await;
    }
}

/// Whether a wait for the job has nothing more to wait for.
fn is_over(job: &Job) -> bool {
    job.status.is_terminal() || job.status.is_interrupted()
}

/// Reads a job as the caller may see it.
pub(super) async fn read_record(call: &McpCall, id: &JobId) -> Result<JobView, Problem> {
    let job = jobs::read_for_people(&call.api.venue, call.owner(), id).await?;
    record_of(call, &job.ok_or_else(|| unknown_job(id))?).await
}

async fn record_of(call: &McpCall, job: &Job) -> Result<JobView, Problem> {
    Ok(job_view::record_for(&call.api.venue, &call.who.caller, job).await?)
}
