//! A leased session: runs turn after turn until nothing is left to do.

mod expiry;

use super::lease::{LeasedSession, RunStop, keeper, outage, records};
use crate::bus::Acknowledge;
use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::ids::JobId;
use crate::domain::job::JobResult;
use crate::domain::time::Millis;
use crate::domain::turn::run::{NextStep, PendingEvent};
use crate::store::{Grant, Lease, LeaseUse, StoreError};
use crate::venue::jobs;
use crate::worker::commit;
use crate::worker::stage::Stage;
use crate::worker::state::Worker;
use crate::worker::state::quarantine::QUARANTINE_DELAY;
use crate::worker::tools::answers;
use crate::worker::turn::{self, TurnStart};
use std::time::Duration;

/// Crashes from which on an event runs in the quarantine slot, one at a time.
const QUARANTINE_CRASHES: u32 = 2;

/// End of a session's run.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// The lease is released; what is left has a due time.
    Idle,
    /// Another worker has the lease, or it must expire.
    LeaseLost,
    /// A store error: the lease is released when the store answers, or expires; another run goes on.
    Failed(StoreError),
}

/// Runs a granted session until its lease ends. `asked` is when the grant was requested, on the steady clock; `settle`
/// belongs to the message that led to the grant.
pub(crate) async fn run(worker: &Worker, grant: Grant, asked: Duration, settle: &dyn Acknowledge) -> SessionEnd {
    let cached = worker.session_cache.take(&grant, worker.venue.history.changes(), asked);
    let (lease, version) = (grant.lease.clone(), grant.version);
    // Attempts stay until a commit: only the lease before this one is new.
    if grant.attempts.last().is_some_and(|lapsed| lapsed.epoch.saturating_add(1) == lease.epoch) {
        worker.venue.metrics.progress.crashes.inc();
    }
    let mut leased = match LeasedSession::open(grant, cached, asked) {
        Ok(leased) => leased,
        Err(error) => {
            outage::release_in_background(
                worker,
                &lease,
                worker.store_failures.record_failure(&lease, version, outage::pause(&error)),
                Some(&error),
            );
            log_failure(&lease, &error);
            return SessionEnd::Failed(error);
        }
    };
    Stage::Lease.enter(&leased.lease.session);
    let stops = leased.stops.clone();
    let ended = tokio::select! {
        biased;
        () = keeper::renew_until_lost(worker, &lease, settle, &stops) => SessionEnd::LeaseLost,
        ended = turns(worker, &mut leased) => ended,
        () = worker.shutdown.cancel_token().cancelled() => release_now(worker, &leased).await,
    };
    if let SessionEnd::Failed(error) = &ended {
        log_failure(&lease, error);
    }
    // Pause before the lease is released after a store error, an outage, or a stored value that can't be read.
    let pause = match &ended {
        SessionEnd::Failed(error) => Some(outage::pause(error)),
        SessionEnd::LeaseLost if stops.is_unreachable(worker.venue.clock.steady(), keeper::patience(worker)) => {
            Some(outage::FIRST_PAUSE)
        }
        SessionEnd::LeaseLost | SessionEnd::Idle => None,
    };
    wake_next_quarantined(worker).await;
    if let Some(first) = pause {
        let error = if let SessionEnd::Failed(error) = &ended { Some(error) } else { None };
        outage::release_in_background(
            worker,
            &lease,
            worker.store_failures.record_failure(&lease, leased.run.version, first),
            error,
        );
    }
    if matches!(ended, SessionEnd::Idle) {
        worker.store_failures.clear(&lease);
    }
    // An expired session is not cached: its state is empty and its old turns stay in the store until the commit.
    if matches!(ended, SessionEnd::Idle) && !leased.is_expired {
        let (owner, session, cached) = leased.into_cached(worker.venue.history.changes());
        worker.session_cache.insert(owner, session, cached);
    }
    ended
}

fn log_failure(lease: &Lease, error: &StoreError) {
    tracing::warn!(owner = %lease.owner, session = %lease.session, %error, "session given up for now");
}

/// Wakes the next session that waits for the quarantine slot.
async fn wake_next_quarantined(worker: &Worker) {
    if let Some((owner, next)) = worker.quarantine.take_next() {
        worker.venue.wake(&owner, &next).await;
    }
}

/// Releases the lease at once, so that another worker takes the session.
async fn release_now(worker: &Worker, leased: &LeasedSession) -> SessionEnd {
    let now = worker.venue.now();
    let then = LeaseUse::Release { arrivals: u64::MAX, due: Some(now), backoff: false };
    match leased.release(worker, now, then).await {
        Ok(_) | Err(RunStop::Lost) => SessionEnd::LeaseLost,
        Err(RunStop::Store(error)) => SessionEnd::Failed(error),
    }
}

/// Runs steps of the session until nothing is due. A session with an event that crashed repeatedly first enters the
/// quarantine slot, or waits for it without a lease.
async fn turns(worker: &Worker, leased: &mut LeasedSession) -> SessionEnd {
    let is_suspect = leased.run.inbox.iter().any(|pending| pending.crashes >= QUARANTINE_CRASHES);
    let quarantine =
        if is_suspect { worker.quarantine.enter(&leased.lease.owner, &leased.lease.session) } else { None };
    if is_suspect && quarantine.is_none() {
        return wait_without_lease(worker, leased).await;
    }
    loop {
        if !worker.takes_work() {
            return release_now(worker, leased).await;
        }
        match step(worker, leased).await {
            Ok(true) => {}
            Ok(false) => return SessionEnd::Idle,
            Err(RunStop::Lost) => return SessionEnd::LeaseLost,
            Err(RunStop::Store(error)) => return SessionEnd::Failed(error),
        }
    }
}

/// Releases the lease, and with it every slot, until the quarantine slot is free. If it expired instead, that would
/// count as another crash.
async fn wait_without_lease(worker: &Worker, leased: &LeasedSession) -> SessionEnd {
    let now = worker.venue.now();
    let then = LeaseUse::Release { arrivals: u64::MAX, due: Some(now.plus(QUARANTINE_DELAY)), backoff: false };
    match leased.release(worker, now, then).await {
        Ok(_) => SessionEnd::Idle,
        Err(RunStop::Lost) => SessionEnd::LeaseLost,
        Err(RunStop::Store(error)) => SessionEnd::Failed(error),
    }
}

/// Takes one step of the session. Returns whether the lease is still held.
async fn step(worker: &Worker, leased: &mut LeasedSession) -> Result<bool, RunStop> {
    let owner = leased.lease.owner.clone();
    let agent = leased.lease.session.agent.clone();
    let Some(record) = records::load_agent(worker, &owner, &agent, leased.versions.gate).await? else {
        tracing::warn!(%owner, %agent, "agent is gone; its session waits");
        return release_until(worker, leased, None).await;
    };
    let limits = record.config.limits.budget();
    if let Some((job, result)) = leased.run.find_overdue_task(&limits, worker.venue.now()) {
        return Box::pin(end_overdue_task(worker, leased, &job, &result)).await;
    }
    let start = match &leased.checkpoint {
        Some(recorded) if leased.run.is_paused(recorded.job.as_ref()) => {
            let due = leased.run.next_deadline(&limits);
            return release_until(worker, leased, due).await;
        }
        Some(_) => TurnStart::Mailbox,
        None => match next_start(worker, leased, &record).await? {
            SessionStep::Turn(start) => start,
            SessionStep::Settle(settled) => return Box::pin(commit::consume_settled(worker, leased, &settled)).await,
            SessionStep::WaitUntil(due) => return release_until(worker, leased, due).await,
        },
    };
    if matches!(start, TurnStart::Mailbox) {
        expiry::empty_expired(worker, leased, &record.config).await?;
    }
    run_turn(worker, leased, &record, start).await
}

/// Next step of a session without a checkpoint.
enum SessionStep {
    Turn(TurnStart),
    /// These events need no turn: they are only consumed.
    Settle(Vec<PendingEvent>),
    /// Nothing is due before this time; `None`: before the next event.
    WaitUntil(Option<Millis>),
}

/// Returns the next step of a session without a checkpoint: a turn for answered approvals first, then one for its events.
/// A session of a suspended agent waits.
async fn next_start(worker: &Worker, leased: &LeasedSession, agent: &AgentRecord) -> Result<SessionStep, RunStop> {
    let is_active = agent.status == AgentStatus::Active;
    let now = worker.venue.now();
    let run = &leased.run;
    // Due at once: the session joins those that wait until the agent is resumed.
    let suspended = SessionStep::WaitUntil(Some(now));
    if run.has_answers(now) {
        if !is_active {
            return Ok(suspended);
        }
        let decided = answers::decided_calls(worker, leased).await?;
        if !decided.is_empty() {
            return Ok(SessionStep::Turn(TurnStart::Answers(decided)));
        }
    }
    let overdue = run.deadline().is_some_and(|deadline| now >= deadline);
    let due = run.next_deadline(&agent.config.limits.budget());
    let first = |until: Millis| Some(due.map_or(until, |due| due.min(until)));
    Ok(match run.next_step(worker.options.crash_limit) {
        NextStep::Settle(settled) => SessionStep::Settle(settled),
        NextStep::Rest if !overdue => SessionStep::WaitUntil(due),
        NextStep::Await { until, .. } if !overdue => SessionStep::WaitUntil(first(until)),
        NextStep::Rest | NextStep::Await { .. } | NextStep::Turn(_) | NextStep::GiveUp(_) if !is_active => suspended,
        NextStep::Rest | NextStep::Await { .. } | NextStep::Turn(_) | NextStep::GiveUp(_) => {
            SessionStep::Turn(TurnStart::Mailbox)
        }
    })
}

/// Runs one turn and measures its time. Returns whether the lease is still held.
async fn run_turn(
    worker: &Worker,
    leased: &mut LeasedSession,
    agent: &AgentRecord,
    start: TurnStart,
) -> Result<bool, RunStop> {
    let clock = &worker.venue.clock;
    let started = clock.steady();
    let held = Box::pin(turn::run(worker, leased, agent, start)).await;
    if let Some(spans) = leased.spans.take() {
        spans.set_error(match &held {
            Ok(_) => None,
            Err(RunStop::Lost) => Some("lease_lost"),
            Err(RunStop::Store(_)) => Some("store"),
        });
    }
    worker.venue.metrics.turn_seconds.observe(clock.steady().saturating_sub(started).as_secs_f64());
    held
}

/// Releases the lease until `due`, `None`: until the next event. Returns whether the lease is still held, which it is if
/// events arrived meanwhile.
async fn release_until(worker: &Worker, leased: &mut LeasedSession, due: Option<Millis>) -> Result<bool, RunStop> {
    let then = LeaseUse::Release { arrivals: leased.arrivals, due, backoff: false };
    let next = leased.release(worker, worker.venue.now(), then).await?;
    Ok(leased.take_over(next)?)
}

/// Ends a task that is past its deadline and that no turn can end; keeps the lease to see what is left. Returns whether the
/// lease is still held.
async fn end_overdue_task(
    worker: &Worker,
    leased: &mut LeasedSession,
    job: &JobId,
    result: &JobResult,
) -> Result<bool, RunStop> {
    jobs::pausing::fail_overdue(&worker.venue, &leased.lease.owner, job, result).await?;
    let next = leased.release(worker, worker.venue.now(), LeaseUse::Keep).await?;
    Ok(leased.take_over(next)?)
}
