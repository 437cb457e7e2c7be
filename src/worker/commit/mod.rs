//! Stage 7: turns a decision into one commit and its outbox entries (stage 8), and resolves conflicts. It changes the
//! decision only where others have revoked or cancelled something meanwhile.

mod messages;
mod output;
mod prompt_record;
mod recheck;
mod unknown_outcomes;

use crate::domain::agent::{AgentConfig, AgentRecord};
use crate::domain::authority::policy::Policy;
use crate::domain::chat::ChatMessage;
use crate::domain::context::record::manifest::BaseManifest;
use crate::domain::context::result::{self, ResultRest, ResultRoom};
use crate::domain::dead::DeadLetter;
use crate::domain::event::Payload;
use crate::domain::ids::JobId;
use crate::domain::job::{ErrorCode, Job, JobResult, JobStatus};
use crate::domain::limits::COMMIT_CONFLICTS;
use crate::domain::pipeline_run::StepFailure;
use crate::domain::resource::scratchpad::Note;
use crate::domain::session::TurnRecord;
use crate::domain::turn::decide::Decision;
use crate::domain::turn::run::{NextStep, PendingEvent};
use crate::domain::turn::{Turn, TurnInput};
use crate::domain::unknown_fields::UnknownFields;
use crate::store::{Commit, CommitOutcome, Continuation as Kept, DocWrite, JobFinish, LeaseUse, OutboxEntry, keys};
use crate::venue::agents;
use crate::venue::approvals;
use crate::venue::context::clear_scratch;
use crate::venue::dead_letters;
use crate::venue::jobs;
use crate::venue::notices;
use crate::venue::outbox::{self, Outgoing};
use crate::venue::policy;
use crate::venue::resources::scratchpad;
use crate::venue::workspace::WorkspaceError;
use crate::worker::lease::{LeasedSession, RunStop, records, waits};
use crate::worker::state::Worker;
use crate::worker::state::relay::CommitMessages;
use crate::worker::turn_base::TurnBase;
use bytes::Bytes;
use serde_json::Value;
use std::time::Duration;

/// Pause after too many consecutive conflicts.
const CONFLICT_PAUSE: Duration = Duration::from_millis(500);

fn bytes<T: serde::Serialize>(value: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("records serialise"))
}

/// Commits a turn's decision; after conflicts, what is left of it. Returns whether the lease is still held.
pub(crate) async fn commit(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn_base: &TurnBase,
    agent: &AgentRecord,
    turn: &Turn,
    mut decision: Decision,
) -> Result<bool, RunStop> {
    let clock = &worker.venue.clock;
    let started = clock.steady();
    if let Some(ledger) = &mut decision.ledger {
        worker.prompt_records.remove_stored(worker.venue.now(), ledger);
    }
    worker.options.name.clone_into(&mut decision.record.worker);
    if decision.cancelled {
        discard(worker, leased, turn_base).await?;
    }
    messages::keep_cut_messages(turn_base, turn, &decision).await?;
    let (known, _) = records::load_policy(worker, &leased.lease.owner, turn_base.policy).await?;
    refuse_if_stopped(turn_base, agent, &known, turn, &mut decision).await;
    put_notes(worker, turn_base, turn, &mut decision).await?;
    output::write_output(turn_base, turn, &mut decision).await?;
    let mut policy = turn_base.policy;
    for _ in 0..=COMMIT_CONFLICTS {
        decision.state.trace = leased.spans.as_ref().map(|spans| spans.root_place());
        let (mut commit, mut told) = build_commit(worker, leased, turn_base, agent, &decision).await?;
        commit.writes.push(policy::version_check(policy));
        let _alone = leased.stops.lock_renewal().await;
        match worker.venue.store.commit(worker.venue.now(), &leased.lease, &commit).await? {
            CommitOutcome::Done(next) => {
                worker.venue.metrics.turns_committed.inc();
                worker.venue.metrics.agents.count_turn(leased.lease.session.agent.as_str());
                worker.venue.metrics.commit_seconds.observe(clock.steady().saturating_sub(started).as_secs_f64());
                unknown_outcomes::count_outcomes(&worker.venue.metrics, &commit);
                told.entries.extend_from_slice(next.wakes());
                told.has_notifications = commit.writes.iter().any(notices::is_pending);
                if let Some(ledger) = &decision.ledger {
                    worker.prompt_records.mark_stored(ledger);
                }
                let held = take_over(leased, decision, &commit, next)?;
                worker.relay.enqueue(&leased.lease.owner, &leased.lease.session, told).await;
                return Ok(held);
            }
            CommitOutcome::Fenced => {
                worker.venue.metrics.leases_lost.inc();
                return Err(RunStop::Lost);
            }
            CommitOutcome::Cancelled => {
                decision = decision.cancel(turn.input());
                discard(worker, leased, turn_base).await?;
                messages::keep_cut_messages(turn_base, turn, &decision).await?;
            }
            CommitOutcome::Conflict(conflicts) => {
                worker.venue.metrics.commit_conflicts.inc();
                worker.venue.metrics.progress.count_retry("conflict");
                tracing::debug!(session = %leased.lease.session, ?conflicts, "documents changed; applying again");
                if conflicts.iter().any(|conflict| conflict.key == keys::POLICY) {
                    policy = recheck_authority(worker, turn_base, agent, turn, &mut decision).await?;
                }
                rebase_writes(turn_base, turn, &mut decision).await?;
            }
        }
    }
    back_off(worker, leased).await
}

/// Discards the writes of a turn; an expired session is emptied all the same.
async fn discard(worker: &Worker, leased: &LeasedSession, turn_base: &TurnBase) -> Result<(), RunStop> {
    turn_base.workspace.discard().await;
    if leased.is_expired {
        clear_scratch(&turn_base.workspace, &*worker.venue.store).await?;
    }
    Ok(())
}

/// Appends the output of a task to the buckets of its request, if the agent is configured so.
async fn put_notes(worker: &Worker, turn_base: &TurnBase, turn: &Turn, decision: &mut Decision) -> Result<(), RunStop> {
    let TurnInput { config, mandate, session, .. } = turn.input();
    let output = decision.ended_task.as_ref().and_then(|(job, result)| Some((job, result.output.as_ref()?)));
    let Some((job, output)) = output.filter(|_| config.context_write && !mandate.context_ids.is_empty()) else {
        return Ok(());
    };
    let note = Note::from_output(session.agent.to_string(), worker.venue.now(), output);
    match scratchpad::append(&turn_base.workspace, &mandate.context_ids, job, &note).await {
        Ok(()) => Ok(()),
        Err(WorkspaceError::Store(error)) => Err(RunStop::Store(error)),
        Err(error) => {
            let text = format!("its output can't be put into the buckets of its request: {error}");
            turn_base.workspace.drop_calls(&[scratchpad::NOTES]).await;
            output::fail(decision, ErrorCode::Refused, &text);
            Ok(())
        }
    }
}

/// Fails a completed task whose grants are revoked, whichever worker has its last reply.
async fn refuse_if_stopped(
    turn_base: &TurnBase,
    agent: &AgentRecord,
    policy: &Policy,
    turn: &Turn,
    decision: &mut Decision,
) {
    let envelope = &turn.input().mandate.envelope;
    if let Some(reason) = agent.stop_reason(policy, envelope, turn_base.workspace.scope()) {
        output::refuse(turn_base, decision, &reason).await;
    }
}

/// Evaluates authority again after a change of the policy, and undoes what it denies. Returns the policy's version.
async fn recheck_authority(
    worker: &Worker,
    turn_base: &TurnBase,
    agent: &AgentRecord,
    turn: &Turn,
    decision: &mut Decision,
) -> Result<u64, RunStop> {
    let turn_input = turn.input();
    let (policy, version) = policy::load_in_force(&*worker.venue.store, &turn_input.owner).await?;
    let now = agent
        .authority(&policy, &turn_input.mandate.envelope, turn_base.workspace.scope())
        .limit_to(&turn_input.authority);
    let mut denied = recheck::denied_calls(turn.calls(), decision.results_record_mut(), &now);
    denied.extend(recheck::denied_resource_uses(
        turn.calls(),
        &turn_base.workspace.all_uses().await,
        decision.results_record_mut(),
        &now,
    ));
    let calls: Vec<_> = denied.iter().map(|(call, _)| *call).collect();
    turn_base.workspace.drop_calls(&calls).await;
    recheck::show_denials(decision.results_record_mut(), &denied);
    decision.remove_approvals(&calls);
    let failure = |(call, text): &(u32, String)| (*call, StepFailure::new(ErrorCode::CapDenied, text));
    output::fail_steps(turn_base, turn, decision, denied.iter().map(failure).collect()).await;
    refuse_if_stopped(turn_base, agent, &policy, turn, decision).await;
    output::fail_if_denied(turn_base, turn, decision, &now).await;
    decision.narrow_authority(now);
    Ok(version)
}

/// Applies the writes of a turn again to the newer version. The run of a pipeline fails if its call can't be made there.
async fn rebase_writes(turn_base: &TurnBase, turn: &Turn, decision: &mut Decision) -> Result<(), RunStop> {
    let mut results = turn_base.workspace.rebase().await?;
    let failed = output::failed_writes(decision.results_record(), &results);
    if output::fail_steps(turn_base, turn, decision, failed).await {
        results = turn_base.workspace.rebase().await?;
    }
    update_results(decision.results_record_mut(), &results, &turn.input().config);
    Ok(())
}

/// Replaces the results of writes that ended otherwise on the newer version.
fn update_results(record: &mut TurnRecord, results: &[(u32, Result<Value, WorkspaceError>)], config: &AgentConfig) {
    let mut shown: Vec<&mut String> = record
        .said
        .iter_mut()
        .filter_map(|message| match message {
            ChatMessage::Tool { text, .. } => Some(text),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        })
        .collect();
    let limit = ResultRoom::for_agent(config, 0).equal_share(shown.len());
    for (call, value) in results {
        let place = usize::try_from(*call).ok().and_then(|at| shown.get_mut(at));
        if let Some(place) = place {
            **place = match value {
                Ok(value) => result::tool_result(value, limit, &ResultRest::Lost),
                Err(error) => format!("error: {error}"),
            };
        }
    }
}

async fn build_commit(
    worker: &Worker,
    leased: &LeasedSession,
    turn_base: &TurnBase,
    agent: &AgentRecord,
    decision: &Decision,
) -> Result<(Commit, CommitMessages), RunStop> {
    let session = &leased.lease.session;
    let record = &decision.record;
    let mut writes = turn_base.workspace.writes().await;
    writes.push(DocWrite::json(keys::turn(session, record.turn), record));
    writes.push(DocWrite::index_entry(keys::timeline_entry(session, record.start, record.turn)));
    if let Some(amended) = &decision.amended_record {
        writes.push(DocWrite::json(keys::turn(session, amended.turn), amended));
    }
    writes.extend(decision.today.as_ref().map(|today| waits::session_day(session, today)));
    writes.extend(decision.tally.as_ref().map(|(job, tally)| DocWrite::json(keys::job_spend(job), tally)));
    let (venue, owner) = (&worker.venue, &leased.lease.owner);
    writes.extend(decision.approvals.iter().flat_map(|asked| approvals::creation_writes(venue, owner, asked)));
    writes.extend(unknown_outcomes::outcome_listings(worker, leased, decision.results_record()).await?);
    writes.extend(agents::state_writes(&worker.venue, &leased.lease.owner, &session.agent, &decision.agent).await?);
    if let Some(ledger) = &decision.ledger {
        writes.extend(prompt_record::record_writes(worker.venue.now(), session, record.turn, ledger));
    }
    let mut told = CommitMessages::default();
    let mut finish = Vec::new();
    if let Some((job, result)) = &decision.ended_task {
        finish.push(JobFinish { job: job.clone(), status: result.status, result: bytes(result) });
        told.messages = completion(&worker.venue.key, leased, job, result);
        for told in &mut told.messages {
            told.message.trace = leased.spans.as_ref().map(|spans| spans.root_place());
        }
    }
    told.entries = cancelled_children(worker, leased, decision).await?;
    let after = leased.run.after_commit(&decision.state, &decision.consume);
    let rest = |due| LeaseUse::Release { arrivals: leased.arrivals, due, backoff: false };
    let due = after.next_deadline(&agent.config.limits.budget());
    let then = match after.next_step(worker.options.crash_limit) {
        _ if leased.has_more_events => LeaseUse::Keep,
        NextStep::Rest => rest(due),
        NextStep::Await { news: false, until } => rest(Some(due.map_or(until, |due| due.min(until)))),
        NextStep::Await { .. } | NextStep::Turn(_) | NextStep::Settle(_) | NextStep::GiveUp(_) => LeaseUse::Keep,
    };
    let serving = record.job.clone().filter(|_| !decision.cancelled);
    let commit = Commit {
        turn: record.turn,
        consume: decision.consume.clone(),
        writes,
        status: decision.status.clone(),
        finish,
        outbox: told.outbox_entries(&worker.venue),
        state: bytes(&decision.state),
        unless_cancelled: serving,
        after_commit: then,
    };
    Ok((commit, told))
}

/// Returns the messages that cancel children: those that a cancelled turn has started, and the steps that still run of a
/// pipeline that ends without them.
async fn cancelled_children(
    worker: &Worker,
    leased: &LeasedSession,
    decision: &Decision,
) -> Result<Vec<OutboxEntry>, RunStop> {
    let (venue, owner) = (&worker.venue, &leased.lease.owner);
    if let (true, Some(job)) = (decision.cancelled, &decision.record.job) {
        let ended = jobs::get(venue, owner, job).await?.map(|job| job.status).filter(|s| s.is_terminal());
        let ended = ended.unwrap_or(JobStatus::Cancelled);
        return Ok(jobs::child_cancel_messages(venue, owner, job, ended).await?);
    }
    let run = decision.state.pipeline.as_deref().filter(|run| !run.running.is_empty());
    match (&decision.ended_task, run) {
        (Some((job, result)), Some(run)) if run.job == *job => {
            Ok(jobs::child_cancel_messages(venue, owner, job, result.status).await?)
        }
        (Some(_) | None, _) => Ok(Vec::new()),
    }
}

/// Returns the messages about the end of the served task; its event has all that they need.
fn completion(venue_key: &[u8], leased: &LeasedSession, job: &JobId, result: &JobResult) -> Vec<Outgoing> {
    let served = leased.run.inbox.iter().find(|pending| pending.event.job() == Some(job));
    let head = served.and_then(|pending| pending.event.job_head(&leased.lease.session));
    head.map(|head| outbox::completions(venue_key, &leased.lease.owner, &head, result)).unwrap_or_default()
}

fn take_over(leased: &mut LeasedSession, decision: Decision, commit: &Commit, next: Kept) -> Result<bool, RunStop> {
    if let (Some(base), Some(ledger)) = (&leased.history.base, &decision.ledger) {
        // An unreadable record is read from the store next time.
        leased.history.base = BaseManifest::read(base.as_deref(), decision.record.turn, &ledger.manifest)
            .ok()
            .map(|new| Some(new.into()));
    }
    leased.apply_commit(&decision.state, commit);
    leased.recorded_calls.clear();
    leased.is_expired = false;
    if let Some(transcript) = &mut leased.history.transcript {
        if let Some(amended) = decision.amended_record {
            transcript.amend(amended);
        }
        let key = keys::turn(&leased.lease.session, decision.record.turn);
        let stored = commit.writes.iter().find(|write| write.key == key);
        transcript.push(decision.record, stored.map_or(0, DocWrite::bytes));
    }
    Ok(leased.take_over(next)?)
}

/// Releases the lease after too many conflicts; the reply is kept, and the session is due after a pause.
async fn back_off(worker: &Worker, leased: &mut LeasedSession) -> Result<bool, RunStop> {
    let now = worker.venue.now();
    tracing::warn!(session = %leased.lease.session, "{COMMIT_CONFLICTS} conflicts in a row; backing off");
    let then = LeaseUse::Release { arrivals: u64::MAX, due: Some(now.plus(CONFLICT_PAUSE)), backoff: true };
    leased.release(worker, now, then).await?;
    Ok(false)
}

/// Consumes events that need no model: tasks that ended from outside, results that no turn waits for.
pub(crate) async fn consume_settled(
    worker: &Worker,
    leased: &mut LeasedSession,
    settled: &[PendingEvent],
) -> Result<bool, RunStop> {
    let (mut told, mut writes) = (CommitMessages::default(), Vec::new());
    for pending in settled {
        if let Payload::Task { job, .. } = &pending.event.payload {
            // The process that ended the task sends the same messages under the same ids: a repetition is harmless.
            let found = jobs::get(&worker.venue, &leased.lease.owner, job).await?;
            if let Some(Job { head, result: Some(result), updated, .. }) = found {
                if result.error_code == Some(ErrorCode::Dead) {
                    let letter = DeadLetter {
                        job: job.clone(),
                        session: leased.lease.session.clone(),
                        event: pending.event.clone(),
                        crashes: leased.crashes(&pending.key),
                        attempts: leased.attempts.iter().filter(|a| a.job.as_ref() == Some(job)).cloned().collect(),
                        died: updated,
                        error: result.error.clone().unwrap_or_default(),
                        redriven: None,
                        kept: UnknownFields::default(),
                    };
                    writes.push(dead_letters::letter_write(&letter));
                    writes.push(notices::dead_task_write(&worker.venue, &leased.lease.owner, &letter));
                }
                told.messages.extend(outbox::completions(&worker.venue.key, &leased.lease.owner, &head, &result));
                if result.status == JobStatus::Cancelled {
                    let owner = &leased.lease.owner;
                    told.entries.extend(jobs::child_cancel_messages(&worker.venue, owner, job, result.status).await?);
                }
            }
        }
    }
    let consume: Vec<_> = settled.iter().map(|pending| pending.key.clone()).collect();
    let mut state = leased.run.state.clone();
    if let Some((today, _)) = waits::earlier_counts(leased, None) {
        // A turn that waited has stored it, and no turn continues it.
        state.today = Some(today);
    }
    let commit = Commit {
        turn: leased.run.version + 1,
        consume,
        writes,
        status: None,
        finish: Vec::new(),
        outbox: told.outbox_entries(&worker.venue),
        state: bytes(&state),
        unless_cancelled: None,
        after_commit: LeaseUse::Keep,
    };
    match worker.venue.store.commit(worker.venue.now(), &leased.lease, &commit).await? {
        CommitOutcome::Done(next) => {
            told.has_notifications = commit.writes.iter().any(notices::is_pending);
            leased.apply_commit(&state, &commit);
            let held = leased.take_over(next)?;
            worker.relay.enqueue(&leased.lease.owner, &leased.lease.session, told).await;
            Ok(held)
        }
        CommitOutcome::Fenced | CommitOutcome::Cancelled | CommitOutcome::Conflict(_) => Err(RunStop::Lost),
    }
}
