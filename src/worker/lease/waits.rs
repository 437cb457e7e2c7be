//! Turns that can't go on now: the lease is given back, and who looks is told why.

use super::{Leased, Stop};
use crate::domain::agent::{AgentRecord, Retry};
use crate::domain::decode;
use crate::domain::ids::{JobId, SessionKey};
use crate::domain::job::Waiting;
use crate::domain::rate::Wait;
use crate::domain::spend::Today;
use crate::domain::time::Millis;
use crate::domain::turn::Turn;
use crate::domain::turn::fallback::ModelCalls;
use crate::domain::wait::WaitCause;
use crate::process::retry::RetryPolicy;
use crate::store::{After, Checkpoint, DocWrite, LeaseCheck, keys};
use crate::venue::agents;
use crate::worker::Worker;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Call index under which the failures of the model are remembered until the next commit.
const FAILURES: u32 = u32::MAX;

/// Failures of the model in a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Failures {
    count: u32,
    since: Millis,
    /// What the turn's models have used in vain so far.
    #[serde(default, skip_serializing_if = "ModelCalls::is_free")]
    calls: ModelCalls,
    /// The task that the turn serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    /// What the session has used today, these calls included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    today: Option<Today>,
}

/// What earlier leases have left of the turn that is next.
fn waiting_note(leased: &Leased) -> Option<Failures> {
    let (_, bytes) = leased.calls.iter().find(|(index, _)| *index == FAILURES)?;
    decode::stored(bytes).ok()
}

/// The provider's failures so far, in this turn and in the leases before. Those of a task that has ended count no more; an
/// older build didn't say of which task they are.
fn failures(leased: &Leased, job: Option<&JobId>) -> Option<Failures> {
    waiting_note(leased).filter(|note| note.today.is_none() && note.job.is_none() || note.job.as_ref() == job)
}

/// What a turn's models have used in earlier tries, so that its commit counts it.
pub(crate) fn calls_before(leased: &Leased, job: Option<&JobId>) -> ModelCalls {
    failures(leased, job).map(|failures| failures.calls).unwrap_or_default()
}

/// What the session had used when its next turn waited last, and which calls of a turn for this task it includes.
pub(crate) fn counted_before(leased: &Leased, job: Option<&JobId>) -> Option<(Today, ModelCalls)> {
    let today = waiting_note(leased)?.today?;
    Some((today, calls_before(leased, job)))
}

/// Remembers what the models of a turn that waits have used, where they have; the number of its failures stays.
pub(crate) async fn remember_calls(worker: &Worker, leased: &Leased, turn: &Turn) -> Result<(), Stop> {
    if turn.model_calls().is_free() {
        return Ok(());
    }
    let before = failures(leased, turn.setting().plan.job()).map(|before| (before.count, before.since));
    remember(worker, leased, turn, before.unwrap_or((0, worker.venue.now()))).await
}

/// With what its session and its task have used: a task that is cancelled while its turn waits has no commit.
async fn remember(worker: &Worker, leased: &Leased, turn: &Turn, (count, since): (u32, Millis)) -> Result<(), Stop> {
    let (today, tally) = turn.used_so_far(worker.venue.now());
    let mut writes: Vec<_> = today.iter().map(|today| session_day(&leased.lease.session, today)).collect();
    writes.extend(tally.map(|(job, tally)| DocWrite::json(keys::job_spend(&job), &tally)));
    let today = today.or_else(|| waiting_note(leased)?.today);
    let (calls, job) = (turn.model_calls().clone(), turn.setting().plan.job().cloned());
    let note = Failures { count, since, calls, job, today };
    let note = Bytes::from(serde_json::to_vec(&note).expect("counts serialise"));
    let calls = vec![(FAILURES, note)];
    let write = Checkpoint { turn: leased.run.version + 1, calls, writes, ..Checkpoint::default() };
    if worker.venue.store.checkpoint(worker.venue.now(), &leased.lease, &write).await? == LeaseCheck::Fenced {
        return Err(Stop::Lost);
    }
    Ok(())
}

/// The write of what a session has used on a day.
pub(crate) fn session_day(session: &SessionKey, today: &Today) -> DocWrite {
    DocWrite::json(keys::session_day(&today.date, session, today.since), &today.models)
}

/// How long to wait after the failure that just happened, `asked` at least; `None` when the tries are used up, or when
/// the wait would end after the total time of all tries.
pub(crate) fn next_wait(
    worker: &Worker,
    leased: &Leased,
    (retry, job): (&Retry, Option<&JobId>),
    asked: Option<Duration>,
) -> Option<Duration> {
    let policy = policy_of(retry, worker.options.retry);
    let before = failures(leased, job);
    let tried = before.as_ref().map_or(1, |before| before.count + 1);
    if retry.attempts.is_some_and(|attempts| tried >= attempts) {
        return None;
    }
    let before = before.filter(|before| before.count > 0);
    let elapsed = before.as_ref().map_or(Duration::ZERO, |before| worker.venue.now().since(before.since));
    let mut waits = RetryPolicy { total: None, ..policy }.waits();
    let skip = before.map_or(0, |failures| failures.count);
    let wait = std::iter::from_fn(|| waits.next_wait()).nth(usize::try_from(skip).unwrap_or(usize::MAX))?;
    let wait = asked.map_or(wait, |asked| wait.max(asked));
    let is_within = policy.total.is_none_or(|total| elapsed.saturating_add(wait) <= total);
    is_within.then_some(wait)
}

/// Gives the lease back until the provider may answer again: a waiting session holds no slot.
pub(crate) async fn unavailable(
    worker: &Worker,
    leased: &mut Leased,
    reason: &str,
    (deadline, turn): (Option<Millis>, &Turn),
) -> Result<bool, Stop> {
    let now = worker.venue.now();
    let before = failures(leased, turn.setting().plan.job()).filter(|before| before.count > 0);
    let (count, since) = before.map_or((1, now), |before| (before.count + 1, before.since));
    let pause = leased.pause.take().unwrap_or(worker.options.retry.max);
    tracing::info!(session = %leased.lease.session, reason, failures = count, "model unavailable; waiting {pause:?}");
    remember(worker, leased, turn, (count, since)).await?;
    let wait = Wait {
        until: now.plus(pause),
        reason: format!("{reason} (try {count})"),
        told: false,
        cause: WaitCause::BackingOff { tries: count },
    };
    give_back_until(worker, leased, wait, deadline).await
}

/// Gives the lease back until the end of the wait, or until the time of the task is over, and notes why for those who
/// look at the job or the session. Nothing but what the wait is told makes it come sooner.
pub(crate) async fn give_back_until(
    worker: &Worker,
    leased: &mut Leased,
    wait: Wait,
    deadline: Option<Millis>,
) -> Result<bool, Stop> {
    let until = deadline.map_or(wait.until, |deadline| wait.until.min(deadline));
    let (venue, now) = (&worker.venue, worker.venue.now());
    let note = Waiting { reason: wait.reason, until: Some(until), cause: wait.cause };
    let key = leased.run.plan().job().map_or_else(|| keys::session_wait(&leased.lease.session), keys::job_wait);
    venue.store.write(now, &leased.lease.owner, &[DocWrite::json(key, &note)]).await?;
    let then = After::Release { arrivals: u64::MAX, due: Some(until), backoff: !wait.told };
    leased.release(worker, now, then).await?;
    Ok(false)
}

/// The venue's policy with what the agent says of its own.
fn policy_of(retry: &Retry, venue: RetryPolicy) -> RetryPolicy {
    let seconds = Duration::from_secs;
    RetryPolicy {
        first: retry.first.map_or(venue.first, seconds),
        max: retry.max.map_or(venue.max, seconds),
        total: retry.total.map(seconds).or(venue.total),
        jitter: venue.jitter,
    }
}

/// No request of the agent's will be answered: it rests with everything that it has to do, until
/// somebody has mended it.
pub(crate) async fn suspend(
    worker: &Worker,
    leased: &mut Leased,
    agent: &AgentRecord,
    reason: &str,
) -> Result<bool, Stop> {
    let owner = &leased.lease.owner;
    let text = format!("{reason}; mend it, then `trellis agent resume {}`", agent.id);
    tracing::warn!(%owner, agent = %agent.id, reason, "agent suspended");
    agents::lifecycle::suspend_unusable(&worker.venue, owner, agent, &text).await?;
    let now = worker.venue.now();
    let then = After::Release { arrivals: u64::MAX, due: Some(now), backoff: false };
    leased.release(worker, now, then).await?;
    Ok(false)
}
