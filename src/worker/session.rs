//! A leased session: turn after turn until nothing is left to do.

use super::commit::{self, Outcome};
use super::keeper::{self, Stops};
use super::stage::Stage;
use super::turn::Start;
use super::{Worker, answers, expiry, known, quarantine, turn};
use crate::bus::Settle;
use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::context::record::manifest::Base;
use crate::domain::dead::Attempt;
use crate::domain::ids::JobId;
use crate::domain::job::JobResult;
use crate::domain::limits::{GRANT_BYTES, GRANT_EVENTS};
use crate::domain::message::Message;
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::domain::turn::Recorded;
use crate::domain::turn::run::{Next, Pending, Run};
use crate::store::{After, Grant, Lease, MailboxEntry, Next as Held, Released, StoreError};
use crate::venue::context::{inbox, state, stored};
use crate::venue::jobs;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Events that killed so many workers run one at a time.
const QUARANTINE: u32 = 2;

/// How a session's run ended.
#[derive(Debug)]
pub(super) enum End {
    /// The lease is given back; what is left has a due time.
    Idle,
    /// Another has the lease, or it must lapse.
    Lost,
    /// An error; the lease lapses and another goes on.
    Failed(StoreError),
}

/// A session with its lease.
pub(super) struct Leased {
    pub(super) lease: Lease,
    pub(super) run: Run,
    /// Events ever appended, as far as seen.
    pub(super) arrivals: u64,
    /// Version of the agent's gate, until a turn has begun with it.
    pub(super) gate: Option<u64>,
    /// Workers that died while they served it, before this one.
    pub(super) attempts: Vec<Attempt>,
    /// The mailbox may have more than was handed out.
    pub(super) more: bool,
    /// What a predecessor left of the next turn.
    pub(super) checkpoint: Option<Recorded>,
    pub(super) calls: Vec<(u32, Bytes)>,
    /// Turn records of this session, oldest first; read once, then kept up.
    pub(super) transcript: Option<Vec<TurnRecord>>,
    /// Its time to live was over: what it remembers is new, and the commit makes it so.
    pub(super) expired: bool,
    /// The newest record of a prompt, once it was looked for.
    #[expect(clippy::option_option, reason = "not looked for yet, looked for in vain, found")]
    pub(super) base: Option<Option<Arc<Base>>>,
    /// How long to wait after the failure of the model.
    pub(super) pause: Option<std::time::Duration>,
    pub(super) stops: Stops,
    /// The task of the running turn was cancelled.
    pub(super) cancelled: CancellationToken,
}

/// Runs a granted session to its end. The grant was asked for at `asked`.
pub(super) async fn run(worker: &Worker, grant: Grant, asked: Duration, settle: &dyn Settle) -> End {
    let mut leased = match open(grant, asked) {
        Ok(leased) => leased,
        Err(error) => return End::Failed(error),
    };
    Stage::Lease.enter(&leased.lease.session);
    let (lease, stops) = (leased.lease.clone(), leased.stops.clone());
    let ended = tokio::select! {
        () = keeper::keep(worker, &lease, settle, &stops) => End::Lost,
        ended = turns(worker, &mut leased) => ended,
        () = worker.shutdown.cancelling().cancelled() => give_back(worker, &leased).await,
    };
    call_next(worker).await;
    ended
}

/// The place for events that may have killed workers is free: the session that waits for it is called.
async fn call_next(worker: &Worker) {
    let Some((owner, next)) = worker.quarantine.next() else { return };
    if let Err(error) = worker.venue.bus.publish(&Message::wake(&owner, &next)).await {
        tracing::debug!(session = %next, %error, "wake not published; the sweep will");
    }
}

/// Shutting down: another worker takes the session at once.
async fn give_back(worker: &Worker, leased: &Leased) -> End {
    let now = worker.venue.now();
    let then = After::Release { arrivals: u64::MAX, due: Some(now), backoff: false };
    match release(worker, leased, now, then).await {
        Ok(_) | Err(Stop::Lost) => End::Lost,
        Err(Stop::Store(error)) => End::Failed(error),
    }
}

/// Releases without a commit, and wakes those who waited for the slot.
pub(super) async fn release(worker: &Worker, leased: &Leased, now: Millis, then: After) -> Result<Held, Stop> {
    let lease = &leased.lease;
    let _alone = leased.stops.alone().await;
    match worker.venue.store.release(now, lease, then).await? {
        Released::Fenced => Err(Stop::Lost),
        Released::Done(next) => {
            worker.relay.leave(&lease.owner, &lease.session, next.wakes().to_vec()).await;
            Ok(next)
        }
    }
}

fn open(grant: Grant, asked: Duration) -> Result<Leased, StoreError> {
    let state = state(grant.state.as_ref())?;
    let checkpoint = match &grant.checkpoint {
        None => None,
        Some(bytes) => Some(stored("checkpoint", bytes)?),
    };
    let more = has_more(&grant.mailbox);
    Ok(Leased {
        lease: grant.lease,
        more,
        run: Run::new(grant.version, state, inbox(&grant.mailbox)?, more),
        arrivals: grant.arrivals,
        gate: Some(grant.gate).filter(|version| *version > 0),
        attempts: grant.attempts,
        checkpoint,
        calls: grant.calls,
        transcript: None,
        expired: false,
        base: None,
        pause: None,
        stops: Stops::since(asked),
        cancelled: CancellationToken::new(),
    })
}

/// Whether there may be more behind what a lease hands out.
fn has_more(mailbox: &[MailboxEntry]) -> bool {
    let size: usize = mailbox.iter().map(|entry| entry.body.len()).sum();
    mailbox.len() >= GRANT_EVENTS as usize || size >= GRANT_BYTES
}

impl Leased {
    /// Takes over what a commit or a release said.
    pub(super) fn held(&mut self, next: Held) -> Result<bool, StoreError> {
        match next {
            Held::Released { wakes: _ } => Ok(false),
            Held::Held { mailbox, arrivals } => {
                self.more = has_more(&mailbox);
                self.run.refresh(inbox(&mailbox)?, self.more);
                self.arrivals = arrivals;
                Ok(true)
            }
        }
    }
}

async fn turns(worker: &Worker, leased: &mut Leased) -> End {
    let suspect = leased.run.inbox.iter().any(|pending| pending.crashes >= QUARANTINE);
    let place = if suspect { worker.quarantine.enter(&leased.lease.owner, &leased.lease.session) } else { None };
    if suspect && place.is_none() {
        return wait_outside(worker, leased).await;
    }
    loop {
        if worker.shutdown.stopping().is_cancelled() {
            return give_back(worker, leased).await;
        }
        match one(worker, leased).await {
            Ok(true) => {}
            Ok(false) => return End::Idle,
            Err(Stop::Lost) => return End::Lost,
            Err(Stop::Store(error)) => return End::Failed(error),
        }
    }
}

/// The place is taken: the lease is given back, whatever has arrived, and with it every slot. A lease that lapses
/// would count as another crash.
async fn wait_outside(worker: &Worker, leased: &Leased) -> End {
    let now = worker.venue.now();
    let then = After::Release { arrivals: u64::MAX, due: Some(now.plus(quarantine::AGAIN)), backoff: false };
    match release(worker, leased, now, then).await {
        Ok(_) => End::Idle,
        Err(Stop::Lost) => End::Lost,
        Err(Stop::Store(error)) => End::Failed(error),
    }
}

/// Why a session's run can't go on.
pub(super) enum Stop {
    /// Fenced.
    Lost,
    /// No answer, or nonsense.
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// One step of the session. Returns whether the lease is still held.
async fn one(worker: &Worker, leased: &mut Leased) -> Result<bool, Stop> {
    let owner = leased.lease.owner.clone();
    let agent = leased.lease.session.agent.clone();
    let Some(record) = known::agent(worker, &owner, &agent, leased.gate.take()).await? else {
        tracing::warn!(%owner, %agent, "agent is gone; its session waits");
        return rest(worker, leased, None).await;
    };
    let limits = record.config.limits.budget();
    if let Some((job, result)) = leased.run.too_late(&limits, worker.venue.now()) {
        return over(worker, leased, &job, &result).await;
    }
    let start = match &leased.checkpoint {
        Some(recorded) if leased.run.is_paused(recorded.job.as_ref()) => {
            let due = leased.run.look_at(&limits);
            return rest(worker, leased, due).await;
        }
        Some(_) => Start::Mailbox,
        None => match begin(worker, leased, &record).await? {
            Begin::Turn(start) => start,
            Begin::Settle(settled) => return commit::settle(worker, leased, &settled).await,
            Begin::Rest(due) => return rest(worker, leased, due).await,
        },
    };
    if matches!(start, Start::Mailbox) {
        expiry::look(worker, leased, &record.config).await?;
    }
    let outcome = attempt(worker, leased, &record, start).await?;
    match outcome {
        Outcome::Committed { held } => Ok(held),
        Outcome::Waiting => Ok(false),
    }
}

/// What a session without a recorded reply does.
enum Begin {
    Turn(Start),
    Settle(Vec<Pending>),
    /// Nothing before then.
    Rest(Option<Millis>),
}

async fn begin(worker: &Worker, leased: &Leased, agent: &AgentRecord) -> Result<Begin, Stop> {
    let active = agent.status == AgentStatus::Active;
    let now = worker.venue.now();
    let run = &leased.run;
    // Due at once: it takes its place among those that wait for the agent's resumption.
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

async fn attempt(worker: &Worker, leased: &mut Leased, agent: &AgentRecord, start: Start) -> Result<Outcome, Stop> {
    let clock = &worker.venue.clock;
    let started = clock.steady();
    let outcome = Box::pin(turn::run(worker, leased, agent, start)).await;
    worker.venue.metrics.turn_seconds.observe(clock.steady().saturating_sub(started).as_secs_f64());
    outcome
}

/// Nothing to do before `due`: gives the lease back, unless something arrived meanwhile.
async fn rest(worker: &Worker, leased: &mut Leased, due: Option<Millis>) -> Result<bool, Stop> {
    let then = After::Release { arrivals: leased.arrivals, due, backoff: false };
    let next = release(worker, leased, worker.venue.now(), then).await?;
    Ok(leased.held(next)?)
}

/// The time of a task is over that no turn ends: it ends as from outside, and the lease is held on to see what is left.
async fn over(worker: &Worker, leased: &mut Leased, job: &JobId, result: &JobResult) -> Result<bool, Stop> {
    jobs::hold::over(&worker.venue, &leased.lease.owner, job, result).await?;
    let next = release(worker, leased, worker.venue.now(), After::Keep).await?;
    Ok(leased.held(next)?)
}
