//! Many jobs at once: those that a filter takes are cancelled, paused, let go on, or driven again.
//!
//! The jobs are walked newest first, a batch at a time, from a place that the answer before has named:
//! what a batch makes is newer than its place, so that none is met twice, and a pass that broke off goes
//! on. Doing a batch again changes nothing: a job ends once, and what is driven again has one id.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::{Job, JobStatus};
use crate::ingress::redrive::redrive;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::dead;
use crate::venue::jobs::hold::{self, HoldOutcome};
use crate::venue::jobs::list::{self, Cursor, JobFilter};
use crate::venue::jobs::{Cancelled, cancel};
use crate::venue::operation::Caller;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Jobs of one batch at most.
pub const BATCH: usize = 100;
/// Jobs that one look for their number finds in one step.
const COUNTED: usize = 500;
/// Why a job was left as it is, of the first so many.
const REASONS: usize = 20;

/// What is done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline, description = "")]
pub enum BatchAction {
    /// Open ones are cancelled.
    Cancel,
    /// Failed ones are driven again.
    Redrive,
    /// Open ones of agents are paused.
    Pause,
    /// Paused ones go on.
    Resume,
}

impl BatchAction {
    /// Each with its name in a request.
    pub const ALL: [(&'static str, Self); 4] =
        [("cancel", Self::Cancel), ("redrive", Self::Redrive), ("pause", Self::Pause), ("resume", Self::Resume)];

    /// Whether it is for jobs of this state.
    pub const fn takes(self, status: JobStatus) -> bool {
        match self {
            Self::Cancel => !status.is_terminal(),
            Self::Redrive => matches!(status, JobStatus::Failed),
            Self::Pause => !status.is_terminal() && !matches!(status, JobStatus::Paused),
            Self::Resume => matches!(status, JobStatus::Paused),
        }
    }

    const fn ability(self) -> &'static str {
        match self {
            Self::Cancel => "job/cancel",
            Self::Redrive => "job/redrive",
            Self::Pause => "job/pause",
            Self::Resume => "job/resume",
        }
    }

    /// The filter with the states that this is for, when it names none; or the one that it isn't for.
    pub fn narrowed(self, filter: JobFilter) -> Result<JobFilter, JobStatus> {
        if let Some(wrong) = filter.statuses.iter().find(|status| !self.takes(**status)) {
            return Err(*wrong);
        }
        let all = JobStatus::ALL.into_iter().filter(|status| self.takes(*status));
        let statuses = if filter.statuses.is_empty() { all.collect() } else { filter.statuses.clone() };
        Ok(JobFilter { statuses, ..filter })
    }
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Jobs that the filter took.
    pub matched: usize,
    /// Those that were done.
    pub done: usize,
    /// Those that had ended meanwhile, or had been driven again before.
    pub already: usize,
    /// Those that the caller may not.
    pub denied: usize,
    /// Those that could not be, and why.
    pub failed: Vec<(JobId, String)>,
    /// Where the next one begins; `None` at the end.
    pub next: Option<Cursor>,
}

impl Batch {
    /// As callers see it.
    pub fn to_json(&self) -> Value {
        let reasons = self.failed.iter().take(REASONS);
        let reasons: Vec<_> = reasons.map(|(id, error)| json!({"id": id, "error": error})).collect();
        json!({
            "matched": self.matched, "done": self.done, "already": self.already, "denied": self.denied,
            "failed": self.failed.len(), "reasons": reasons, "next": self.next.as_ref().map(Cursor::as_str),
        })
    }
}

/// Those of a page that the action is for: runs of operations are only cancelled, and what was driven again before is
/// not driven again.
async fn wanted(venue: &Venue, owner: &Owner, action: BatchAction, jobs: Vec<Job>) -> Result<Vec<JobId>, StoreError> {
    let ids = |jobs: &[Job]| jobs.iter().map(|job| job.head.id.clone()).collect::<Vec<_>>();
    if action == BatchAction::Cancel {
        return Ok(ids(&jobs));
    }
    let of_agents: Vec<Job> = jobs.into_iter().filter(|job| job.head.op.is_none()).collect();
    let ids = ids(&of_agents);
    if action != BatchAction::Redrive {
        return Ok(ids);
    }
    let driven = dead::driven(venue, owner, &ids).await?;
    Ok(ids.into_iter().zip(driven).filter(|(_, driven)| !driven).map(|(id, _)| id).collect())
}

/// How many there are behind a place: at most one more than `enough`.
pub async fn count(
    venue: &Venue,
    owner: &Owner,
    action: BatchAction,
    filter: &JobFilter,
    enough: usize,
) -> Result<usize, StoreError> {
    let (mut many, mut place) = (0, None);
    loop {
        let found = list::find(venue, owner, filter, place.as_ref(), COUNTED).await?;
        many += wanted(venue, owner, action, found.jobs).await?.len();
        place = found.next;
        if place.is_none() || many > enough {
            return Ok(many);
        }
    }
}

/// Does the next batch behind a place.
pub async fn batch(
    venue: &Venue,
    caller: &Caller,
    action: BatchAction,
    filter: &JobFilter,
    after: Option<&Cursor>,
    limit: usize,
    reason: Option<&str>,
) -> Result<Batch, StoreError> {
    let owner = &caller.owner;
    let found = list::find(venue, owner, filter, after, limit.clamp(1, BATCH)).await?;
    let ids = wanted(venue, owner, action, found.jobs).await?;
    let mut batch = Batch { matched: ids.len(), next: found.next, ..Batch::default() };
    for id in ids {
        if caller.authority.permits(action.ability(), ResourcePath::job(&id)).is_err() {
            batch.denied += 1;
            continue;
        }
        let done = match action {
            BatchAction::Cancel => match cancel(venue, owner, &id, reason).await? {
                Cancelled::Done(_) => Ok(true),
                Cancelled::Already(_) | Cancelled::Unknown => Ok(false),
            },
            BatchAction::Redrive => match redrive(venue, owner, &id).await {
                Ok((_, already)) => Ok(!already),
                Err(error) => match error.store() {
                    Ok(error) => return Err(error),
                    Err(error) => Err(error.to_string()),
                },
            },
            BatchAction::Pause => Ok(was_held(&hold::pause(venue, owner, &id, &caller.name).await?)),
            BatchAction::Resume => Ok(was_held(&hold::resume(venue, owner, &id).await?)),
        };
        match done {
            Ok(true) => batch.done += 1,
            Ok(false) => batch.already += 1,
            Err(why) => batch.failed.push((id, why)),
        }
    }
    Ok(batch)
}

/// A job that has ended meanwhile can neither be paused nor go on.
fn was_held(outcome: &HoldOutcome) -> bool {
    matches!(outcome, HoldOutcome::Done(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_for_some_states_and_no_others() {
        let of = |statuses: &[JobStatus]| JobFilter { statuses: statuses.to_vec(), ..JobFilter::default() };
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
            let narrowed = action.narrowed(of(said)).map(|filter| filter.statuses.len());
            assert_eq!(narrowed, expected, "{action:?} {said:?}");
        }
    }
}
