//! A job as callers see it: its record, why it waits, its approvals, and what became of it.

use crate::domain::ids::SessionKey;
use crate::domain::job::{ErrorCode, Job, JobStatus};
use crate::domain::reader::JobVisibility;
use crate::store::StoreError;
use crate::venue::operation::Caller;
use crate::venue::{Venue, approvals, dead_letters, outcomes, waits};
use serde_json::{Value, json};

/// Advice about a task that was cancelled.
const CANCELLED_ADVICE: &str =
    "submit it again under a new id: its old id gives this job back, and only FAILED jobs are driven again";

/// Returns a job's record with why it waits. A job that waits for a person has its approvals; an operation of unknown
/// outcome has its settlement.
pub async fn record_for(venue: &Venue, caller: &Caller, job: &Job) -> Result<Value, StoreError> {
    let owner = &caller.owner;
    let mut job = job.clone();
    let reader = caller.reader();
    waits::explain(venue, owner, &reader, &mut job).await?;
    let mut record = reader.record(&job);
    if job.status == JobStatus::InputRequired {
        let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
        let mut waiting =
            approvals::list_unanswered(venue, owner, &approvals::list_awaited(venue, owner, &session).await?).await?;
        waiting.retain(|approval| approval.job.as_ref() == Some(&job.head.id));
        waiting.sort_by_key(|approval| std::cmp::Reverse((approval.asked, approval.index)));
        record["approvals"] = waiting.iter().map(|approval| approvals::view_for(caller, approval)).collect();
    }
    if caller.reader().visibility(&job.head) == JobVisibility::Whole
        && let Some(running) = waits::running_turn(venue, owner, &job).await?
    {
        record["running"] = json!({"turn": running.turn, "worker": running.worker, "since": running.since});
    }
    let is_task = job.head.op.is_none();
    if is_task
        && job.status == JobStatus::Failed
        && let Some(again) = dead_letters::redriven_job(venue, owner, &job.head.id).await?
    {
        record["redrivenAs"] = json!(again);
    }
    if is_task && job.status == JobStatus::Cancelled {
        record["advice"] = CANCELLED_ADVICE.into();
    }
    let code = job.result.as_ref().and_then(|result| result.error_code);
    if code == Some(ErrorCode::OutcomeUnknown)
        && let Some(settled) = outcomes::get(venue, owner, &job.head.id).await?.and_then(|outcome| outcome.settled)
    {
        record["settled"] = json!(settled);
    }
    Ok(record)
}
