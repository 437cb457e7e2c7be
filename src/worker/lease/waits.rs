//! Turns that can't go on: the lease is released, and the reason is stored for readers of the job or the session.

use super::{LeasedSession, RunStop};
use crate::domain::agent::{AgentRecord, Retry};
use crate::domain::decode;
use crate::domain::ids::{JobId, SessionKey};
use crate::domain::job::WaitNote;
use crate::domain::rate::RateWait;
use crate::domain::spend::DayUse;
use crate::domain::time::Millis;
use crate::domain::turn::Turn;
use crate::domain::turn::fallback::ModelCalls;
use crate::domain::wait::WaitCause;
use crate::process::retry::RetryPolicy;
use crate::store::{Checkpoint, DocWrite, LeaseCheck, LeaseUse, keys};
use crate::venue::{agents, notifications};
use crate::worker::state::Worker;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Call index under which failures of the model are stored until the next commit.
const FAILURES_INDEX: u32 = u32::MAX;

/// Consecutive failures of the model.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ModelFailures {
    count: u32,
    since: Millis,
    /// Calls that the turn's models have used without a reply.
    #[serde(default, skip_serializing_if = "ModelCalls::is_free")]
    calls: ModelCalls,
    /// Task that the turn serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    /// What the session has spent today, these calls included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    today: Option<DayUse>,
}

/// Returns the note that earlier leases stored for the next turn.
fn waiting_note(leased: &LeasedSession) -> Option<ModelFailures> {
    let (_, bytes) = leased.recorded_calls.iter().find(|(index, _)| *index == FAILURES_INDEX)?;
    decode::read_stored(bytes).ok()
}

/// Returns the provider's failures in this turn and under earlier leases. Failures of another task don't count; an
/// older build didn't store the task.
fn failures(leased: &LeasedSession, job: Option<&JobId>) -> Option<ModelFailures> {
    waiting_note(leased).filter(|note| note.today.is_none() && note.job.is_none() || note.job.as_ref() == job)
}

/// Returns the model calls of earlier tries of the turn, which its commit counts.
pub(crate) fn earlier_calls(leased: &LeasedSession, job: Option<&JobId>) -> ModelCalls {
    failures(leased, job).map(|failures| failures.calls).unwrap_or_default()
}

/// Returns what the session had spent when its next turn last waited, and the calls of this task that it includes.
pub(crate) fn earlier_counts(leased: &LeasedSession, job: Option<&JobId>) -> Option<(DayUse, ModelCalls)> {
    let today = waiting_note(leased)?.today?;
    Some((today, earlier_calls(leased, job)))
}

/// Stores the calls of a turn that waits, if there are any; the number of its failures stays.
pub(crate) async fn remember_calls(worker: &Worker, leased: &LeasedSession, turn: &Turn) -> Result<(), RunStop> {
    if turn.model_calls().is_free() {
        return Ok(());
    }
    let before = failures(leased, turn.input().plan.job());
    let (count, since) = before.map_or((0, worker.venue.now()), |before| (before.count, before.since));
    record_failure(worker, leased, turn, count, since).await
}

/// Stores the calls, and what session and task have spent: if the task is cancelled meanwhile, there is no commit.
async fn record_failure(
    worker: &Worker,
    leased: &LeasedSession,
    turn: &Turn,
    count: u32,
    since: Millis,
) -> Result<(), RunStop> {
    let (today, tally) = turn.usage_so_far(worker.venue.now());
    let mut writes: Vec<_> = today.iter().map(|today| session_day(&leased.lease.session, today)).collect();
    writes.extend(tally.map(|(job, tally)| DocWrite::json(keys::job_spend(&job), &tally)));
    let today = today.or_else(|| waiting_note(leased)?.today);
    let (calls, job) = (turn.model_calls().clone(), turn.input().plan.job().cloned());
    let note = ModelFailures { count, since, calls, job, today };
    let note = Bytes::from(serde_json::to_vec(&note).expect("counts serialise"));
    let calls = vec![(FAILURES_INDEX, note)];
    let write = Checkpoint { turn: leased.run.version + 1, calls, writes, ..Checkpoint::default() };
    if worker.venue.store.checkpoint(worker.venue.now(), &leased.lease, &write).await? == LeaseCheck::Fenced {
        return Err(RunStop::Lost);
    }
    Ok(())
}

/// Returns the write of what a session has spent on a day.
pub(crate) fn session_day(session: &SessionKey, today: &DayUse) -> DocWrite {
    DocWrite::json(keys::session_day(&today.date, session, today.since), &today.models)
}

/// Returns the pause after the last failure, `asked` at least; `None` when the tries are used up, or when the pause
/// would end after the total time of all tries.
pub(crate) fn retry_pause(
    worker: &Worker,
    leased: &LeasedSession,
    retry: &Retry,
    job: Option<&JobId>,
    asked: Option<Duration>,
) -> Option<Duration> {
    let policy = retry_policy(retry, worker.options.retry);
    let before = failures(leased, job);
    let tried = before.as_ref().map_or(1, |before| before.count + 1);
    if retry.attempts.is_some_and(|attempts| tried >= attempts) {
        return None;
    }
    let before = before.filter(|before| before.count > 0);
    let elapsed = before.as_ref().map_or(Duration::ZERO, |before| worker.venue.now().elapsed_since(before.since));
    let mut waits = RetryPolicy { total: None, ..policy }.wait_times();
    let skip = before.map_or(0, |failures| failures.count);
    let wait = std::iter::from_fn(|| waits.next_wait()).nth(usize::try_from(skip).unwrap_or(usize::MAX))?;
    let wait = asked.map_or(wait, |asked| wait.max(asked));
    let is_within = policy.total.is_none_or(|total| elapsed.saturating_add(wait) <= total);
    is_within.then_some(wait)
}

/// Releases the lease until the provider may answer again, so that the session holds no slot.
pub(crate) async fn release_unavailable(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn: &Turn,
    reason: &str,
    deadline: Option<Millis>,
) -> Result<bool, RunStop> {
    let now = worker.venue.now();
    let before = failures(leased, turn.input().plan.job()).filter(|before| before.count > 0);
    let (count, since) = before.map_or((1, now), |before| (before.count + 1, before.since));
    let pause = leased.pause.take().unwrap_or(worker.options.retry.max);
    tracing::info!(session = %leased.lease.session, reason, failures = count, "model unavailable; waiting {pause:?}");
    record_failure(worker, leased, turn, count, since).await?;
    let wait = RateWait {
        until: now.plus(pause),
        reason: format!("{reason} (try {count})"),
        told: false,
        cause: WaitCause::BackingOff { tries: count },
    };
    release_until(worker, leased, wait, deadline).await
}

/// Releases the lease until the end of the wait or the deadline of the task, and stores the reason for readers of the
/// job or the session. Wakes end it sooner only where `wait.told` says that the limit sends one.
pub(crate) async fn release_until(
    worker: &Worker,
    leased: &mut LeasedSession,
    wait: RateWait,
    deadline: Option<Millis>,
) -> Result<bool, RunStop> {
    let until = deadline.map_or(wait.until, |deadline| wait.until.min(deadline));
    let (venue, now) = (&worker.venue, worker.venue.now());
    let note = WaitNote { reason: wait.reason, until: Some(until), cause: wait.cause };
    let key = leased.run.plan().job().map_or_else(|| keys::session_wait(&leased.lease.session), keys::job_wait);
    venue.store.write(now, &leased.lease.owner, &[DocWrite::json(key, &note)]).await?;
    let then = LeaseUse::Release { arrivals: u64::MAX, due: Some(until), backoff: !wait.told };
    leased.release(worker, now, then).await?;
    Ok(false)
}

/// Returns the retry policy of the venue, overridden by that of the agent.
fn retry_policy(retry: &Retry, venue: RetryPolicy) -> RetryPolicy {
    let seconds = Duration::from_secs;
    RetryPolicy {
        first: retry.first.map_or(venue.first, seconds),
        max: retry.max.map_or(venue.max, seconds),
        total: retry.total.map(seconds).or(venue.total),
        jitter: venue.jitter,
    }
}

/// Suspends an agent whose requests no model can answer, until a person has corrected and resumed it.
pub(crate) async fn suspend(
    worker: &Worker,
    leased: &mut LeasedSession,
    agent: &AgentRecord,
    reason: &str,
) -> Result<bool, RunStop> {
    let owner = &leased.lease.owner;
    let text = format!("{reason}; mend it, then `trellis agent resume {}`", agent.id);
    tracing::warn!(%owner, agent = %agent.id, reason, "agent suspended");
    agents::lifecycle::suspend_unusable(&worker.venue, owner, agent, &text).await?;
    notifications::send_soon(&worker.venue, owner).await;
    let now = worker.venue.now();
    let then = LeaseUse::Release { arrivals: u64::MAX, due: Some(now), backoff: false };
    leased.release(worker, now, then).await?;
    Ok(false)
}
