//! A job as callers see it: its record, why it waits, its approvals, and what became of it.

use crate::domain::ids::{JobId, SessionKey};
use crate::domain::job::{ErrorCode, Job, JobStatus};
use crate::domain::reader::JobVisibility;
use crate::store::{StoreError, keys};
use crate::venue::agents::sessions;
use crate::venue::jobs::list::JobListFilter;
use crate::venue::jobs::read_named;
use crate::venue::jobs::spend::may_have_children;
use crate::venue::operation::Caller;
use crate::venue::{Venue, approvals, dead_letters, outcomes, waits};
use crate::view::job::{ChildJobView, JobView, RunningTurnView};
use crate::view::pipeline::PipelineRunView;

/// Advice about a task that was cancelled.
const CANCELLED_ADVICE: &str =
    "submit it again under a new id: its old id gives this job back, and only FAILED jobs are driven again";

/// Most jobs that a record lists as started by its turns.
const CHILDREN: usize = 100;

/// Returns a job's record with why it waits. A job that waits for a person has its approvals; an operation of unknown
/// outcome has its settlement.
pub async fn record_for(venue: &Venue, caller: &Caller, job: &Job) -> Result<JobView, StoreError> {
    let owner = &caller.owner;
    let mut job = job.clone();
    let reader = caller.reader();
    waits::explain(venue, owner, &reader, &mut job).await?;
    let mut record = JobView::for_reader(&job, &reader);
    // A call that goes on may ask a person, too, while its session waits for its result.
    let mut asked = job.wait.as_ref().map(|wait| wait.approvals().to_vec()).unwrap_or_default();
    if job.status == JobStatus::InputRequired {
        let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
        asked.extend(approvals::list_awaited(venue, owner, &session).await?);
        asked.sort_unstable();
        asked.dedup();
    }
    if job.status == JobStatus::InputRequired || !asked.is_empty() {
        let mut waiting = approvals::list_unanswered(venue, owner, &asked).await?;
        let is_asking = |id: &Option<JobId>| id.as_ref() == Some(&job.head.id);
        waiting.retain(|approval| is_asking(&approval.job) || is_asking(&approval.asked_by));
        waiting.sort_by_key(|approval| std::cmp::Reverse((approval.asked, approval.index)));
        record.approvals = Some(waiting.iter().map(|approval| approvals::view_for(caller, approval)).collect());
    }
    let is_whole = reader.visibility(&job.head) == JobVisibility::Whole;
    if is_whole {
        let running = waits::running_turn(venue, owner, &job).await?;
        record.running =
            running.map(|turn| RunningTurnView { turn: turn.turn, worker: turn.worker, since: turn.since });
        record.children = list_children(venue, caller, &job).await?;
    }
    let is_task = job.head.op.is_none();
    if is_task && !job.status.is_terminal() && is_whole {
        let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
        let run = sessions::find(venue, owner, &session).await?.and_then(|facts| sessions::state(&facts).pipeline);
        let run = run.filter(|run| run.job == job.head.id);
        record.pipeline = run.map(|run| PipelineRunView::for_reader(&run, &caller.reading_authority()));
    }
    if is_task && job.status == JobStatus::Failed {
        record.redriven_as = dead_letters::redriven_job(venue, owner, &job.head.id).await?;
    }
    if is_task && job.status == JobStatus::Cancelled {
        record.advice = Some(CANCELLED_ADVICE.to_owned());
    }
    let code = job.result.as_ref().and_then(|result| result.error_code);
    if code == Some(ErrorCode::OutcomeUnknown) {
        record.settled = outcomes::get(venue, owner, &job.head.id).await?.and_then(|outcome| outcome.settled);
    }
    Ok(record)
}

/// Lists the first jobs that a job's turns have started, as the caller sees them.
async fn list_children(venue: &Venue, caller: &Caller, job: &Job) -> Result<Vec<ChildJobView>, StoreError> {
    // Where the jobs under it were counted already, most have none.
    let has_none = job.tree.is_some_and(|tree| tree.jobs == 0 && !tree.partial);
    if has_none || !may_have_children(job.status, job.tally.as_ref()) {
        return Ok(Vec::new());
    }
    let (owner, prefix) = (&caller.owner, keys::job_children(&job.head.id));
    let found = venue.store.entries(owner, &prefix).page_size(CHILDREN).keys().await?.unwrap_or_default();
    let ids: Vec<JobId> = found.iter().filter_map(|key| JobId::new(key.strip_prefix(&prefix)?).ok()).collect();
    let filter = JobListFilter { reader: Some(caller.reader()), ..JobListFilter::default() };
    let jobs = read_named(venue, owner, &ids, &filter).await?;
    Ok(jobs.iter().flatten().map(ChildJobView::from).collect())
}
