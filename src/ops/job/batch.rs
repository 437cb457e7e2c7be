//! Many jobs at once: those that pass a filter, or are named, are cancelled, paused, resumed or redriven.
//!
//! The jobs of a filter are read newest first, a batch at a time, from the cursor of the answer before. What a batch creates is
//! newer than its cursor, so that no job is met twice and an interrupted pass can continue. Repeating a batch changes
//! nothing: a job ends once, and its redrive has one id.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::{Job, JobStatus};
use crate::domain::time::Millis;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::dead_letters;
use crate::venue::ingress::redrive::redrive;
use crate::venue::jobs::list::{self, Cursor, JobListFilter};
use crate::venue::jobs::pausing::{self, PauseOutcome};
use crate::venue::jobs::{CancelOutcome, cancel, read_named};
use crate::venue::operation::Caller;
use crate::view::job_list::{BulkFailureView, BulkView};
use crate::view::to_json;
use schemars::JsonSchema;
use serde::Deserialize;

/// Most jobs of one batch.
pub const BATCH: usize = 100;
/// Jobs that one step of a count reads.
const COUNTED: usize = 500;
/// Most jobs for which an answer says why they failed.
const REASONS: usize = 20;

/// Action on each job of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline, description = "")]
pub enum BatchAction {
    /// Open ones are cancelled.
    Cancel,
    /// Failed ones are redriven: their tasks run again as new jobs.
    Redrive,
    /// Open ones of agents are paused.
    Pause,
    /// Paused ones go on.
    Resume,
}

impl BatchAction {
    /// All actions, each with its name in a request.
    pub const ALL: [(&'static str, Self); 4] =
        [("cancel", Self::Cancel), ("redrive", Self::Redrive), ("pause", Self::Pause), ("resume", Self::Resume)];

    /// Whether the action is for jobs of this state.
    pub const fn accepts(self, status: JobStatus) -> bool {
        match self {
            Self::Cancel => !status.is_terminal(),
            Self::Redrive => matches!(status, JobStatus::Failed),
            Self::Pause => !status.is_terminal() && !matches!(status, JobStatus::Paused),
            Self::Resume => matches!(status, JobStatus::Paused),
        }
    }

    /// Returns the ability that a caller needs on each job.
    const fn ability(self) -> &'static str {
        match self {
            Self::Cancel => "job/cancel",
            Self::Redrive => "job/redrive",
            Self::Pause => "job/pause",
            Self::Resume => "job/resume",
        }
    }

    /// Returns the filter with the states of the action if it names none. Fails with the first state that it names and
    /// the action isn't for.
    pub fn narrow_filter(self, filter: JobListFilter) -> Result<JobListFilter, JobStatus> {
        if let Some(wrong) = filter.statuses.iter().find(|status| !self.accepts(**status)) {
            return Err(*wrong);
        }
        let all = JobStatus::ALL.into_iter().filter(|status| self.accepts(*status));
        let statuses = if filter.statuses.is_empty() { all.collect() } else { filter.statuses.clone() };
        Ok(JobListFilter { statuses, ..filter })
    }
}

/// Result of a batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchResult {
    /// Number of jobs that passed the filter.
    pub matched: usize,
    /// Number of jobs on which the action was done.
    pub done: usize,
    /// Number of jobs that had ended meanwhile, or had been redriven before.
    pub already: usize,
    /// Number of jobs on which the caller may not act.
    pub denied: usize,
    /// Jobs on which the action failed, each with the reason.
    pub failed: Vec<(JobId, String)>,
    /// Cursor of the next batch; `None` at the end.
    pub next: Option<Cursor>,
}

impl BatchResult {
    /// Returns the answer for callers; jobs accepted after `until` were left alone.
    pub fn to_view(&self, until: Millis) -> BulkView {
        let reasons = self.failed.iter().take(REASONS);
        let reasons = reasons.map(|(id, error)| BulkFailureView { id: id.clone(), error: error.clone() });
        BulkView {
            matched: self.matched,
            done: self.done,
            already: Some(self.already),
            denied: Some(self.denied),
            failed: Some(self.failed.len()),
            reasons: Some(reasons.collect()),
            next: Some(to_json(&self.next.as_ref().map(Cursor::as_str))),
            until,
            dry_run: None,
        }
    }
}

/// Returns the jobs of a page that the action is for: operations can only be cancelled, and a redriven job isn't
/// redriven again.
async fn eligible_jobs(
    venue: &Venue,
    owner: &Owner,
    action: BatchAction,
    jobs: Vec<Job>,
) -> Result<Vec<JobId>, StoreError> {
    let ids = |jobs: &[Job]| jobs.iter().map(|job| job.head.id.clone()).collect::<Vec<_>>();
    if action == BatchAction::Cancel {
        return Ok(ids(&jobs));
    }
    let of_agents: Vec<Job> = jobs.into_iter().filter(|job| job.head.op.is_none()).collect();
    let ids = ids(&of_agents);
    if action != BatchAction::Redrive {
        return Ok(ids);
    }
    let redriven = dead_letters::were_redriven(venue, owner, &ids).await?;
    Ok(ids.into_iter().zip(redriven).filter(|(_, redriven)| !redriven).map(|(id, _)| id).collect())
}

/// Counts the jobs that the action is for, from the newest on. Once there are more than `enough` it stops, and the result
/// says only that.
pub async fn count_jobs(
    venue: &Venue,
    owner: &Owner,
    action: BatchAction,
    filter: &JobListFilter,
    enough: usize,
) -> Result<usize, StoreError> {
    let (mut count, mut cursor) = (0, None);
    loop {
        let found = list::find(venue, owner, filter, cursor.as_ref(), COUNTED).await?;
        count += eligible_jobs(venue, owner, action, found.jobs).await?.len();
        cursor = found.next;
        if cursor.is_none() || count > enough {
            return Ok(count);
        }
    }
}

/// One batch of the jobs that pass a filter.
#[derive(Debug)]
pub struct JobBatch<'a> {
    /// Action on each job.
    pub action: BatchAction,
    /// Filter of the jobs, narrowed to states of the action.
    pub filter: &'a JobListFilter,
    /// Cursor of the batch before; `None` for the first.
    pub after: Option<&'a Cursor>,
    /// Number of jobs to read, at most [`BATCH`].
    pub limit: usize,
    /// Reason of a cancellation, for the record.
    pub reason: Option<&'a str>,
}

/// Acts on the jobs of a batch, each if the caller may. Fails at the first error of the store, after which the batch can be
/// repeated; a redrive that fails otherwise is counted in [`BatchResult::failed`].
pub async fn run_batch(venue: &Venue, caller: &Caller, asked: &JobBatch<'_>) -> Result<BatchResult, StoreError> {
    let JobBatch { action, filter, after, limit, reason } = *asked;
    let found = list::find(venue, &caller.owner, filter, after, limit.clamp(1, BATCH)).await?;
    let ids = eligible_jobs(venue, &caller.owner, action, found.jobs).await?;
    let mut batch = BatchResult { next: found.next, ..BatchResult::default() };
    act_on_each(venue, caller, action, reason, ids, &mut batch).await?;
    Ok(batch)
}

/// Named jobs, by what an action can do to them.
#[derive(Debug, Default)]
pub struct NamedJobs {
    /// Jobs that the action is for.
    eligible: Vec<JobId>,
    /// The others, each with the reason.
    refused: Vec<(JobId, String)>,
}

impl NamedJobs {
    /// Reads the named jobs as the filter's reader sees them.
    pub async fn read(
        venue: &Venue,
        owner: &Owner,
        action: BatchAction,
        ids: &[JobId],
        filter: &JobListFilter,
    ) -> Result<Self, StoreError> {
        let mut known = Self::default();
        let mut fitting = Vec::new();
        for (id, job) in ids.iter().zip(read_named(venue, owner, ids, filter).await?) {
            match job {
                None => known.refused.push((id.clone(), format!("no job `{id}`"))),
                Some(job) if !action.accepts(job.status) => {
                    known.refused.push((id.clone(), format!("job `{id}` is {}", job.status.as_str())));
                }
                Some(job) => fitting.push(job),
            }
        }
        let all: Vec<JobId> = fitting.iter().map(|job| job.head.id.clone()).collect();
        known.eligible = eligible_jobs(venue, owner, action, fitting).await?;
        let others = all.into_iter().filter(|id| !known.eligible.contains(id));
        let why = |id: JobId| {
            let reason = format!("job `{id}` is an operation's, or was driven again before");
            (id, reason)
        };
        known.refused.extend(others.map(why));
        Ok(known)
    }

    /// Returns the number of jobs that the action is for.
    pub const fn count(&self) -> usize {
        self.eligible.len()
    }
}

/// Acts on named jobs, each if the caller may; those that the action isn't for are counted as failed. Fails as
/// [`run_batch`].
pub async fn run_named(
    venue: &Venue,
    caller: &Caller,
    action: BatchAction,
    reason: Option<&str>,
    jobs: NamedJobs,
) -> Result<BatchResult, StoreError> {
    let mut batch = BatchResult { matched: jobs.refused.len(), failed: jobs.refused, ..BatchResult::default() };
    act_on_each(venue, caller, action, reason, jobs.eligible, &mut batch).await?;
    Ok(batch)
}

async fn act_on_each(
    venue: &Venue,
    caller: &Caller,
    action: BatchAction,
    reason: Option<&str>,
    ids: Vec<JobId>,
    batch: &mut BatchResult,
) -> Result<(), StoreError> {
    let owner = &caller.owner;
    batch.matched += ids.len();
    for id in ids {
        if caller.authority.permits(action.ability(), ResourcePath::job(&id)).is_err() {
            batch.denied += 1;
            continue;
        }
        let done = match action {
            BatchAction::Cancel => match cancel(venue, owner, &id, reason).await? {
                CancelOutcome::Done(_) => Ok(true),
                CancelOutcome::Already(_) | CancelOutcome::Unknown => Ok(false),
            },
            BatchAction::Redrive => match redrive(venue, owner, &id).await {
                Ok((_, already)) => Ok(!already),
                Err(error) => match error.into_store() {
                    // What was done before it is told with the reasons of the rest.
                    Ok(error @ StoreError::Over(_)) if batch.done > 0 => Err(error.to_string()),
                    Ok(error) => return Err(error),
                    Err(error) => Err(error.to_string()),
                },
            },
            BatchAction::Pause => Ok(was_changed(&pausing::pause(venue, owner, &id, &caller.name).await?)),
            BatchAction::Resume => Ok(was_changed(&pausing::resume(venue, owner, &id).await?)),
        };
        match done {
            Ok(true) => batch.done += 1,
            Ok(false) => batch.already += 1,
            Err(why) => batch.failed.push((id, why)),
        }
    }
    Ok(())
}

/// Whether a job was paused or resumed; one that has ended meanwhile can't be.
fn was_changed(outcome: &PauseOutcome) -> bool {
    matches!(outcome, PauseOutcome::Done(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_for_some_states_and_no_others() {
        let of = |statuses: &[JobStatus]| JobListFilter { statuses: statuses.to_vec(), ..JobListFilter::default() };
        for (action, said, expected) in [
            (BatchAction::Redrive, &[][..], Ok(1)),
            (BatchAction::Redrive, &[JobStatus::Failed], Ok(1)),
            (BatchAction::Redrive, &[JobStatus::Complete], Err(JobStatus::Complete)),
            (BatchAction::Cancel, &[], Ok(5)),
            (BatchAction::Pause, &[], Ok(4)),
            (BatchAction::Pause, &[JobStatus::Paused], Err(JobStatus::Paused)),
            (BatchAction::Resume, &[], Ok(1)),
            (BatchAction::Resume, &[JobStatus::Pending], Err(JobStatus::Pending)),
            (BatchAction::Cancel, &[JobStatus::Pending, JobStatus::Paused], Ok(2)),
            (BatchAction::Cancel, &[JobStatus::Pending, JobStatus::Failed], Err(JobStatus::Failed)),
        ] {
            let narrowed = action.narrow_filter(of(said)).map(|filter| filter.statuses.len());
            assert_eq!(narrowed, expected, "{action:?} {said:?}");
        }
    }
}
