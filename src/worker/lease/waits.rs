//! Turns that can't go on now: the lease is given back, and who looks is told why.

use super::{Leased, Stop};
use crate::domain::agent::{AgentRecord, Retry};
use crate::domain::decode;
use crate::domain::job::Waiting;
use crate::domain::time::Millis;
use crate::domain::turn::fallback::ModelCalls;
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
}

/// The provider's failures so far, in this turn and in the leases before.
fn failures(leased: &Leased) -> Option<Failures> {
    let (_, bytes) = leased.calls.iter().find(|(index, _)| *index == FAILURES)?;
    decode::stored(bytes).ok()
}

/// What a turn's models have used in earlier tries, so that its commit counts it.
pub(crate) fn calls_before(leased: &Leased) -> ModelCalls {
    failures(leased).map(|failures| failures.calls).unwrap_or_default()
}

/// Remembers what the models of a turn that waits have used, where they have; the number of its failures stays.
pub(crate) async fn remember_calls(worker: &Worker, leased: &Leased, calls: &ModelCalls) -> Result<(), Stop> {
    if calls.is_free() {
        return Ok(());
    }
    let before = failures(leased).unwrap_or(Failures { count: 0, since: worker.venue.now(), calls: calls.clone() });
    remember(worker, leased, &Failures { calls: calls.clone(), ..before }).await
}

async fn remember(worker: &Worker, leased: &Leased, failures: &Failures) -> Result<(), Stop> {
    let note = Bytes::from(serde_json::to_vec(failures).expect("counts serialise"));
    let write = Checkpoint { turn: leased.run.version + 1, calls: vec![(FAILURES, note)], ..Checkpoint::default() };
    if worker.venue.store.checkpoint(worker.venue.now(), &leased.lease, &write).await? == LeaseCheck::Fenced {
        return Err(Stop::Lost);
    }
    Ok(())
}

/// How long to wait after the failure that just happened, `asked` at least; `None` when the tries are used up, or when
/// the wait would end after the total time of all tries.
pub(crate) fn next_wait(worker: &Worker, leased: &Leased, retry: &Retry, asked: Option<Duration>) -> Option<Duration> {
    let policy = policy_of(retry, worker.options.retry);
    let before = failures(leased);
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
    (deadline, calls): (Option<Millis>, &ModelCalls),
) -> Result<bool, Stop> {
    let now = worker.venue.now();
    let before = failures(leased).filter(|before| before.count > 0);
    let (count, since) = before.map_or((1, now), |before| (before.count + 1, before.since));
    let next = Failures { count, since, calls: calls.clone() };
    let pause = leased.pause.take().unwrap_or(worker.options.retry.max);
    tracing::info!(session = %leased.lease.session, reason, failures = next.count, "model unavailable; waiting {pause:?}");
    remember(worker, leased, &next).await?;
    until(worker, leased, &format!("{reason} (try {})", next.count), (now.plus(pause), deadline), true).await
}

/// Gives the lease back until then, or until the time of the task is over, and says why where the job
/// is looked at. `firm`: nothing that happens meanwhile makes it come sooner.
pub(crate) async fn until(
    worker: &Worker,
    leased: &mut Leased,
    reason: &str,
    (until, deadline): (Millis, Option<Millis>),
    firm: bool,
) -> Result<bool, Stop> {
    let until = deadline.map_or(until, |deadline| until.min(deadline));
    let (venue, now) = (&worker.venue, worker.venue.now());
    if let Some(job) = leased.run.plan().job() {
        let note = Waiting { reason: reason.to_owned(), until: Some(until) };
        venue.store.write(now, &leased.lease.owner, &[DocWrite::json(keys::job_wait(job), &note)]).await?;
    }
    let then = After::Release { arrivals: u64::MAX, due: Some(until), backoff: firm };
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
