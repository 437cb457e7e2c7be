//! A leased session: runs turn after turn until nothing is left to do.

mod expiry;

use super::lease::{Leased, Stop, keeper, known, outage, quarantine};
use crate::bus::Settle;
use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::ids::JobId;
use crate::domain::job::JobResult;
use crate::domain::time::Millis;
use crate::domain::turn::run::{Next, Pending};
use crate::store::{After, Grant, StoreError};
use crate::venue::jobs;
use crate::worker::stage::Stage;
use crate::worker::tools::answers;
use crate::worker::turn::{self, Start};
use crate::worker::{Worker, commit};
use std::time::Duration;

/// Crashes from which on an event runs in the quarantine slot, one at a time.
const QUARANTINE: u32 = 2;

/// End of a session's run.
#[derive(Debug)]
pub(crate) enum End {
    /// The lease is released; what is left has a due time.
    Idle,
    /// Another worker has the lease, or it must expire.
    Lost,
    /// A store error: the lease is released when the store answers, or expires; another run goes on.
    Failed(StoreError),
}

/// Runs a granted session to its end. `asked`: when the grant was requested, on the steady clock.
pub(crate) async fn run(worker: &Worker, grant: Grant, asked: Duration, settle: &dyn Settle) -> End {
    let past = worker.memory.take(&grant, worker.venue.history.changes(), asked);
    let (lease, version) = (grant.lease.clone(), grant.version);
    let mut leased = match Leased::open(grant, past, asked) {
        Ok(leased) => leased,
        Err(error) => {
            outage::give_back(worker, &lease, worker.failing.again(&lease, version, outage::pause(&error)));
            return End::Failed(error);
        }
    };
    Stage::Lease.enter(&leased.lease.session);
    let stops = leased.stops.clone();
    let ended = tokio::select! {
        biased;
        () = keeper::keep(worker, &lease, settle, &stops) => End::Lost,
        ended = turns(worker, &mut leased) => ended,
        () = worker.shutdown.cancelling().cancelled() => give_back(worker, &leased).await,
    };
    // Pause before the lease is released after a store error, an outage, or a stored value that can't be read.
    let pause = match &ended {
        End::Failed(error) => Some(outage::pause(error)),
        End::Lost if stops.is_away(worker.venue.clock.steady(), keeper::patience(worker)) => Some(outage::SHORT),
        End::Lost | End::Idle => None,
    };
    call_next(worker).await;
    if let Some(first) = pause {
        outage::give_back(worker, &lease, worker.failing.again(&lease, leased.run.version, first));
    }
    if matches!(ended, End::Idle) {
        worker.failing.is_well(&lease);
    }
    // An expired session is not cached: its state is empty and its old turns stay in the store until the commit.
    if matches!(ended, End::Idle) && !leased.expired {
        worker.memory.keep(leased, worker.venue.history.changes());
    }
    ended
}

/// Wakes the next session that waits for the quarantine slot.
async fn call_next(worker: &Worker) {
    if let Some((owner, next)) = worker.quarantine.next() {
        worker.venue.wake(&owner, &next).await;
    }
}

/// Releases the lease at once, so that another worker takes the session.
async fn give_back(worker: &Worker, leased: &Leased) -> End {
    let now = worker.venue.now();
    let then = After::Release { arrivals: u64::MAX, due: Some(now), backoff: false };
    match leased.release(worker, now, then).await {
        Ok(_) | Err(Stop::Lost) => End::Lost,
        Err(Stop::Store(error)) => End::Failed(error),
    }
}

async fn turns(worker: &Worker, leased: &mut Leased) -> End {
    let suspect = leased.run.inbox.iter().any(|pending| pending.crashes >= QUARANTINE);
    let place = if suspect { worker.quarantine.enter(&leased.lease.owner, &leased.lease.session) } else { None };
    if suspect && place.is_none() {
        return wait_outside(worker, leased).await;
    }
    loop {
        if !worker.takes_work() {
            return give_back(worker, leased).await;
        }
        match step(worker, leased).await {
            Ok(true) => {}
            Ok(false) => return End::Idle,
            Err(Stop::Lost) => return End::Lost,
            Err(Stop::Store(error)) => return End::Failed(error),
        }
    }
}

/// Releases the lease, and with it every slot, until the quarantine slot is free. If it expired instead, that would
/// count as another crash.
async fn wait_outside(worker: &Worker, leased: &Leased) -> End {
    let now = worker.venue.now();
    let then = After::Release { arrivals: u64::MAX, due: Some(now.plus(quarantine::AGAIN)), backoff: false };
    match leased.release(worker, now, then).await {
        Ok(_) => End::Idle,
        Err(Stop::Lost) => End::Lost,
        Err(Stop::Store(error)) => End::Failed(error),
    }
}

/// Takes one step of the session. Returns whether the lease is still held.
async fn step(worker: &Worker, leased: &mut Leased) -> Result<bool, Stop> {
    let owner = leased.lease.owner.clone();
    let agent = leased.lease.session.agent.clone();
    let Some(record) = known::agent(worker, &owner, &agent, leased.ground.gate).await? else {
        tracing::warn!(%owner, %agent, "agent is gone; its session waits");
        return rest(worker, leased, None).await;
    };
    let limits = record.config.limits.budget();
    if let Some((job, result)) = leased.run.too_late(&limits, worker.venue.now()) {
        return Box::pin(end_too_late(worker, leased, &job, &result)).await;
    }
    let start = match &leased.checkpoint {
        Some(recorded) if leased.run.is_paused(recorded.job.as_ref()) => {
            let due = leased.run.look_at(&limits);
            return rest(worker, leased, due).await;
        }
        Some(_) => Start::Mailbox,
        None => match next_start(worker, leased, &record).await? {
            Begin::Turn(start) => start,
            Begin::Settle(settled) => return Box::pin(commit::settle(worker, leased, &settled)).await,
            Begin::Rest(due) => return rest(worker, leased, due).await,
        },
    };
    if matches!(start, Start::Mailbox) {
        expiry::begin_anew(worker, leased, &record.config).await?;
    }
    run_turn(worker, leased, &record, start).await
}

/// Next step of a session without a checkpoint.
enum Begin {
    Turn(Start),
    Settle(Vec<Pending>),
    /// Nothing is due before this time.
    Rest(Option<Millis>),
}

async fn next_start(worker: &Worker, leased: &Leased, agent: &AgentRecord) -> Result<Begin, Stop> {
    let active = agent.status == AgentStatus::Active;
    let now = worker.venue.now();
    let run = &leased.run;
    // Due at once: the session joins those that wait until the agent is resumed.
    let suspended = Begin::Rest(Some(now));
    if run.has_answers(now) {
        if !active {
            return Ok(suspended);
        }
        let decided = answers::decided(worker, leased).await?;
        if !decided.is_empty() {
            return Ok(Begin::Turn(Start::Answers(decided)));
        }
    }
    let overdue = run.deadline().is_some_and(|deadline| now >= deadline);
    let due = run.look_at(&agent.config.limits.budget());
    let first = |until: Millis| Some(due.map_or(until, |due| due.min(until)));
    Ok(match run.next(worker.options.crash_limit) {
        Next::Settle(settled) => Begin::Settle(settled),
        Next::Rest if !overdue => Begin::Rest(due),
        Next::Await { until, .. } if !overdue => Begin::Rest(first(until)),
        Next::Rest | Next::Await { .. } | Next::Turn(_) | Next::GiveUp(_) if !active => suspended,
        Next::Rest | Next::Await { .. } | Next::Turn(_) | Next::GiveUp(_) => Begin::Turn(Start::Mailbox),
    })
}

async fn run_turn(worker: &Worker, leased: &mut Leased, agent: &AgentRecord, start: Start) -> Result<bool, Stop> {
    let clock = &worker.venue.clock;
    let started = clock.steady();
    let held = Box::pin(turn::run(worker, leased, agent, start)).await;
    worker.venue.metrics.turn_seconds.observe(clock.steady().saturating_sub(started).as_secs_f64());
    held
}

/// Releases the lease until `due`, unless events arrived meanwhile.
async fn rest(worker: &Worker, leased: &mut Leased, due: Option<Millis>) -> Result<bool, Stop> {
    let then = After::Release { arrivals: leased.arrivals, due, backoff: false };
    let next = leased.release(worker, worker.venue.now(), then).await?;
    Ok(leased.take_over(next)?)
}

/// Ends a task that is past its deadline and that no turn can end; keeps the lease to see what is left.
async fn end_too_late(worker: &Worker, leased: &mut Leased, job: &JobId, result: &JobResult) -> Result<bool, Stop> {
    jobs::hold::over(&worker.venue, &leased.lease.owner, job, result).await?;
    let next = leased.release(worker, worker.venue.now(), After::Keep).await?;
    Ok(leased.take_over(next)?)
}
