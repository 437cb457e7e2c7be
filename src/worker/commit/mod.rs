//! Stage 7: turns a decision into one commit and its outbox entries (stage 8), and resolves conflicts. It changes the
//! decision only where others have revoked or cancelled something meanwhile.

mod messages;
mod output;
mod recheck;
mod unknown;

use crate::domain::agent::{AgentConfig, AgentRecord};
use crate::domain::authority::policy::Policy;
use crate::domain::chat::ChatMessage;
use crate::domain::context::record::manifest::Base;
use crate::domain::context::result::{self, Rest, ResultRoom};
use crate::domain::dead::DeadLetter;
use crate::domain::event::Payload;
use crate::domain::ids::JobId;
use crate::domain::job::{ErrorCode, Job, JobResult, JobStatus};
use crate::domain::kept::KeptKeys;
use crate::domain::limits::COMMIT_CONFLICTS;
use crate::domain::resource::scratchpad::Note;
use crate::domain::session::TurnRecord;
use crate::domain::turn::decide::Decision;
use crate::domain::turn::run::{Next, Pending};
use crate::domain::turn::{Setting, Turn};
use crate::outbox::{self, Outgoing};
use crate::store::{After, Commit, Committed, Continuation as Kept, DocWrite, JobFinish, keys};
use crate::venue::agents;
use crate::venue::approvals;
use crate::venue::context::clear;
use crate::venue::dead;
use crate::venue::jobs;
use crate::venue::policy;
use crate::venue::resources::scratchpad;
use crate::venue::workspace::WorkspaceError;
use crate::worker::Worker;
use crate::worker::context::books;
use crate::worker::ground::Ground;
use crate::worker::lease::{Leased, Stop, known, waits};
use crate::worker::outbox::Told;
use bytes::Bytes;
use std::time::Duration;

/// Pause after too many consecutive conflicts.
const CONFLICT_PAUSE: Duration = Duration::from_millis(500);

fn bytes<T: serde::Serialize>(value: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("records serialise"))
}

/// Commits a turn's decision; after conflicts, what is left of it. Returns whether the lease is still held.
pub(crate) async fn commit(
    worker: &Worker,
    leased: &mut Leased,
    ground: &Ground,
    agent: &AgentRecord,
    turn: &Turn,
    mut decision: Decision,
) -> Result<bool, Stop> {
    let clock = &worker.venue.clock;
    let started = clock.steady();
    if let Some(ledger) = &mut decision.ledger {
        worker.books.trim(worker.venue.now(), ledger);
    }
    worker.options.name.clone_into(&mut decision.record.worker);
    if decision.cancelled {
        discard(worker, leased, ground).await?;
    }
    messages::keep(ground, turn, &decision).await?;
    let (known, _) = known::policy(worker, &leased.lease.owner, ground.policy).await?;
    refuse_if_stopped(ground, agent, &known, turn, &mut decision).await;
    put_notes(worker, ground, turn, &mut decision).await?;
    output::put(ground, turn, &mut decision).await?;
    let mut policy = ground.policy;
    for _ in 0..=COMMIT_CONFLICTS {
        let (mut commit, mut told) = build(worker, leased, (ground, agent), &decision).await?;
        commit.writes.push(policy::unchanged(policy));
        let _alone = leased.stops.alone().await;
        match worker.venue.store.commit(worker.venue.now(), &leased.lease, &commit).await? {
            Committed::Done(next) => {
                worker.venue.metrics.turns_committed.inc();
                worker.venue.metrics.commit_seconds.observe(clock.steady().saturating_sub(started).as_secs_f64());
                unknown::count_outcomes(&worker.venue.metrics, &commit);
                told.entries.extend_from_slice(next.wakes());
                if let Some(ledger) = &decision.ledger {
                    worker.books.stored(ledger);
                }
                let held = take_over(leased, decision, &commit, next)?;
                worker.relay.leave(&leased.lease.owner, &leased.lease.session, told).await;
                return Ok(held);
            }
            Committed::Fenced => {
                worker.venue.metrics.leases_lost.inc();
                return Err(Stop::Lost);
            }
            Committed::Cancelled => {
                decision = decision.cancel(turn.setting());
                discard(worker, leased, ground).await?;
                messages::keep(ground, turn, &decision).await?;
            }
            Committed::Conflict(conflicts) => {
                worker.venue.metrics.commit_conflicts.inc();
                tracing::debug!(session = %leased.lease.session, ?conflicts, "documents changed; applying again");
                if conflicts.iter().any(|conflict| conflict.key == keys::POLICY) {
                    policy = recheck_authority(worker, ground, agent, turn, &mut decision).await?;
                }
                let results = ground.workspace.rebase().await?;
                show_again(decision.shown(), &results, &turn.setting().config);
            }
        }
    }
    back_off(worker, leased).await
}

/// Discards the writes of a turn; an expired session is emptied all the same.
async fn discard(worker: &Worker, leased: &Leased, ground: &Ground) -> Result<(), Stop> {
    ground.workspace.discard().await;
    if leased.expired {
        clear(&ground.workspace, &*worker.venue.store).await?;
    }
    Ok(())
}

/// Appends the output of a task to the buckets of its request, if the agent is configured so.
async fn put_notes(worker: &Worker, ground: &Ground, turn: &Turn, decision: &mut Decision) -> Result<(), Stop> {
    let Setting { config, mandate, session, .. } = turn.setting();
    let output = decision.ended.as_ref().and_then(|(job, result)| Some((job, result.output.as_ref()?)));
    let Some((job, output)) = output.filter(|_| config.context_write && !mandate.context_ids.is_empty()) else {
        return Ok(());
    };
    let note = Note::of(session.agent.to_string(), worker.venue.now(), output);
    match scratchpad::append(&ground.workspace, &mandate.context_ids, job, &note).await {
        Ok(()) => Ok(()),
        Err(WorkspaceError::Store(error)) => Err(Stop::Store(error)),
        Err(error) => {
            let text = format!("its output can't be put into the buckets of its request: {error}");
            ground.workspace.take_back(&[scratchpad::NOTES]).await;
            output::fail(decision, ErrorCode::Refused, &text);
            Ok(())
        }
    }
}

/// Fails a completed task whose grants are revoked, whichever worker has its last reply.
async fn refuse_if_stopped(
    ground: &Ground,
    agent: &AgentRecord,
    policy: &Policy,
    turn: &Turn,
    decision: &mut Decision,
) {
    let envelope = &turn.setting().mandate.envelope;
    if let Some(reason) = agent.stopped(policy, envelope, ground.workspace.scope()) {
        output::refuse(ground, decision, &reason).await;
    }
}

/// Evaluates authority again after a change of the policy, and undoes what it denies. Returns the policy's version.
async fn recheck_authority(
    worker: &Worker,
    ground: &Ground,
    agent: &AgentRecord,
    turn: &Turn,
    decision: &mut Decision,
) -> Result<u64, Stop> {
    let setting = turn.setting();
    let (policy, version) = policy::load_in_force(&*worker.venue.store, &setting.owner).await?;
    let now = agent.authority(&policy, &setting.mandate.envelope, ground.workspace.scope()).within(&setting.authority);
    let mut denied = recheck::denied(turn.calls(), decision.shown(), &now);
    denied.extend(recheck::lost(turn.calls(), &ground.workspace.used().await, decision.shown(), &now));
    let calls: Vec<_> = denied.iter().map(|(call, _)| *call).collect();
    ground.workspace.take_back(&calls).await;
    recheck::show(decision.shown(), &denied);
    decision.unask(&calls);
    refuse_if_stopped(ground, agent, &policy, turn, decision).await;
    output::check(ground, turn, decision, &now).await;
    decision.narrowed(now);
    Ok(version)
}

/// Replaces the results of writes that ended otherwise on the newer version.
fn show_again(record: &mut TurnRecord, results: &[(u32, Result<serde_json::Value, String>)], config: &AgentConfig) {
    let mut shown: Vec<&mut String> = record
        .said
        .iter_mut()
        .filter_map(|message| match message {
            ChatMessage::Tool { text, .. } => Some(text),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        })
        .collect();
    let limit = ResultRoom::of(config, 0).equal(shown.len());
    for (call, value) in results {
        let place = usize::try_from(*call).ok().and_then(|at| shown.get_mut(at));
        if let Some(place) = place {
            **place = match value {
                Ok(value) => result::tool_result(value, limit, &Rest::Lost),
                Err(error) => format!("error: {error}"),
            };
        }
    }
}

async fn build(
    worker: &Worker,
    leased: &Leased,
    (ground, agent): (&Ground, &AgentRecord),
    decision: &Decision,
) -> Result<(Commit, Told), Stop> {
    let session = &leased.lease.session;
    let record = &decision.record;
    let mut writes = ground.workspace.writes().await;
    writes.push(DocWrite::json(keys::turn(session, record.turn), record));
    writes.push(DocWrite::mark(keys::timeline_entry(session, record.start, record.turn)));
    if let Some(amended) = &decision.amended {
        writes.push(DocWrite::json(keys::turn(session, amended.turn), amended));
    }
    writes.extend(decision.today.as_ref().map(|today| waits::session_day(session, today)));
    writes.extend(decision.tally.as_ref().map(|(job, tally)| DocWrite::json(keys::job_spend(job), tally)));
    writes.extend(decision.asked.iter().flat_map(approvals::asking_writes));
    writes.extend(unknown::outcome_listings(worker, leased, decision.exchange()).await?);
    writes.extend(agents::change(&worker.venue, &leased.lease.owner, &session.agent, &decision.agent).await?);
    if let Some(ledger) = &decision.ledger {
        writes.extend(books::writes(worker.venue.now(), session, record.turn, ledger));
    }
    let mut told = Told::default();
    let mut finish = Vec::new();
    if let Some((job, result)) = &decision.ended {
        finish.push(JobFinish { job: job.clone(), status: result.status, result: bytes(result) });
        told.messages = completion(&worker.venue.key, leased, job, result);
    }
    if let (true, Some(job)) = (decision.cancelled, &record.job) {
        // Children that the turn started after its cancellation are cancelled too.
        let owner = &leased.lease.owner;
        let ended = jobs::get(&worker.venue, owner, job).await?.map(|job| job.status).filter(|s| s.is_terminal());
        let ended = ended.unwrap_or(JobStatus::Cancelled);
        told.entries = jobs::cancel_children(&worker.venue, owner, job, ended).await?;
    }
    let after = leased.run.after(&decision.state, &decision.consume);
    let rest = |due| After::Release { arrivals: leased.arrivals, due, backoff: false };
    let due = after.look_at(&agent.config.limits.budget());
    let then = match after.next(worker.options.crash_limit) {
        _ if leased.more => After::Keep,
        Next::Rest => rest(due),
        Next::Await { news: false, until } => rest(Some(due.map_or(until, |due| due.min(until)))),
        Next::Await { .. } | Next::Turn(_) | Next::Settle(_) | Next::GiveUp(_) => After::Keep,
    };
    let serving = record.job.clone().filter(|_| !decision.cancelled);
    let commit = Commit {
        turn: record.turn,
        consume: decision.consume.clone(),
        writes,
        status: decision.status.clone(),
        finish,
        outbox: told.stored(&worker.venue),
        state: bytes(&decision.state),
        unless_cancelled: serving,
        then,
    };
    Ok((commit, told))
}

/// Returns the messages about the end of the served task; its event has all that they need.
fn completion(venue_key: &[u8], leased: &Leased, job: &JobId, result: &JobResult) -> Vec<Outgoing> {
    let served = leased.run.inbox.iter().find(|pending| pending.event.job() == Some(job));
    let head = served.and_then(|pending| pending.event.head(&leased.lease.session));
    head.map(|head| outbox::completions(venue_key, &leased.lease.owner, &head, result)).unwrap_or_default()
}

fn take_over(leased: &mut Leased, decision: Decision, commit: &Commit, next: Kept) -> Result<bool, Stop> {
    if let (Some(base), Some(ledger)) = (&leased.past.base, &decision.ledger) {
        // An unreadable record is read from the store next time.
        leased.past.base =
            Base::read(base.as_deref(), decision.record.turn, &ledger.manifest).ok().map(|new| Some(new.into()));
    }
    leased.committed(&decision.state, commit);
    leased.calls.clear();
    leased.expired = false;
    if let Some(transcript) = &mut leased.past.transcript {
        if let Some(amended) = decision.amended {
            transcript.amend(amended);
        }
        let key = keys::turn(&leased.lease.session, decision.record.turn);
        let stored = commit.writes.iter().find(|write| write.key == key);
        transcript.push(decision.record, stored.map_or(0, DocWrite::bytes));
    }
    Ok(leased.take_over(next)?)
}

/// Releases the lease after too many conflicts; the reply is kept, and the session is due after a pause.
async fn back_off(worker: &Worker, leased: &mut Leased) -> Result<bool, Stop> {
    let now = worker.venue.now();
    tracing::warn!(session = %leased.lease.session, "{COMMIT_CONFLICTS} conflicts in a row; backing off");
    let then = After::Release { arrivals: u64::MAX, due: Some(now.plus(CONFLICT_PAUSE)), backoff: true };
    leased.release(worker, now, then).await?;
    Ok(false)
}

/// Consumes events that need no model: tasks that ended from outside, results that no turn waits for.
pub(crate) async fn settle(worker: &Worker, leased: &mut Leased, settled: &[Pending]) -> Result<bool, Stop> {
    let (mut told, mut writes) = (Told::default(), Vec::new());
    for pending in settled {
        if let Payload::Task { job, .. } = &pending.event.payload {
            // The process that ended the task sends the same messages under the same ids: a repetition is harmless.
            let found = jobs::get(&worker.venue, &leased.lease.owner, job).await?;
            if let Some(Job { head, result: Some(result), updated, .. }) = found {
                if result.error_code == Some(ErrorCode::Dead) {
                    writes.push(dead::kept(&DeadLetter {
                        job: job.clone(),
                        session: leased.lease.session.clone(),
                        event: pending.event.clone(),
                        crashes: leased.crashes(&pending.key),
                        attempts: leased.attempts.iter().filter(|a| a.job.as_ref() == Some(job)).cloned().collect(),
                        died: updated,
                        error: result.error.clone().unwrap_or_default(),
                        redriven: None,
                        kept: KeptKeys::default(),
                    }));
                }
                told.messages.extend(outbox::completions(&worker.venue.key, &leased.lease.owner, &head, &result));
                if result.status == JobStatus::Cancelled {
                    let owner = &leased.lease.owner;
                    told.entries.extend(jobs::cancel_children(&worker.venue, owner, job, result.status).await?);
                }
            }
        }
    }
    let consume: Vec<_> = settled.iter().map(|pending| pending.key.clone()).collect();
    let mut state = leased.run.state.clone();
    if let Some((today, _)) = waits::counted_before(leased, None) {
        // A turn that waited has stored it, and no turn continues it.
        state.today = Some(today);
    }
    let commit = Commit {
        turn: leased.run.version + 1,
        consume,
        writes,
        status: None,
        finish: Vec::new(),
        outbox: told.stored(&worker.venue),
        state: bytes(&state),
        unless_cancelled: None,
        then: After::Keep,
    };
    match worker.venue.store.commit(worker.venue.now(), &leased.lease, &commit).await? {
        Committed::Done(next) => {
            leased.committed(&state, &commit);
            let held = leased.take_over(next)?;
            worker.relay.leave(&leased.lease.owner, &leased.lease.session, told).await;
            Ok(held)
        }
        Committed::Fenced | Committed::Cancelled | Committed::Conflict(_) => Err(Stop::Lost),
    }
}
