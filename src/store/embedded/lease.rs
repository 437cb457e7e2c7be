//! Who may run a session: the grant, crash counts, giving back.

use super::layout::{self, Space};
use super::mailbox::{Mail, Slot, floor};
use super::session::{LeaseRecord, Serving};
use super::tx::{Fault, Tx, View};
use super::{capacity, docs};
use crate::domain::dead::verdict;
use crate::domain::ids::AgentId;
use crate::domain::job::{ErrorCode, JobResult, JobStatus};
use crate::domain::time::Millis;
use crate::store::keys::{self, Gate, GateStatus};
use crate::store::{
    After, Continuation, Doc, EventKind, Grant, JobFinish, Lease, LeaseOutcome, LeaseRequest, MailboxEntry,
};
use bytes::Bytes;
use std::ops::ControlFlow;

/// The agent's gate and the version of its document; `None` when there is no such agent.
pub(super) fn gate(view: &impl View, owner: &str, agent: &AgentId) -> Result<Option<(Gate, u64)>, Fault> {
    let Doc { version, value } = docs::get(view, owner, &keys::agent_gate(agent))?;
    let Some(bytes) = value else { return Ok(None) };
    let gate = Gate::decode(&bytes).ok_or_else(|| Fault::Record(format!("gate of agent `{agent}` is damaged")))?;
    Ok(Some((gate, version)))
}

/// Tries the lease. Without an agent, or one that has ended, there is nothing to run.
pub(super) fn ask(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut Slot,
    gate: Option<(Gate, u64)>,
    ask: &LeaseRequest,
) -> Result<LeaseOutcome, Fault> {
    if slot.now.granted_to(&ask.token) {
        let version = gate.map_or(0, |(_, version)| version);
        return Ok(LeaseOutcome::Run(Box::new(grant_again(tx, now, slot, version, ask)?)));
    }
    if let Some(until) = slot.now.live_until(now) {
        return Ok(LeaseOutcome::Busy(Millis(until)));
    }
    let runs = |(gate, _): &(Gate, u64)| gate.status != GateStatus::Terminated && slot.now.pending() > 0;
    let Some((gate, version)) = gate.filter(runs) else {
        let waited = slot.now.waiting.take().is_some();
        let session = &mut slot.now;
        // A lapsed lease is kept while there is mail: its crash still counts.
        if session.pending() == 0 {
            session.lease = None;
        }
        (session.due, session.backoff) = (None, None);
        slot.save(tx)?;
        if waited {
            // It was told to come for a slot and doesn't need it; a sweep hands this on.
            capacity::wake_waiting(tx, now, &slot.owner_id, &slot.key.agent.token(), capacity::AGAIN)?;
        }
        return Ok(LeaseOutcome::Empty);
    };
    if gate.status != GateStatus::Active {
        capacity::wait(tx, slot)?;
        return Ok(LeaseOutcome::Suspended);
    }
    if let Some(until) = slot.now.backing_off(now) {
        return Ok(LeaseOutcome::Backoff(Millis(until)));
    }
    capacity::set_cap(tx, &slot.owner, ask.owner_cap);
    if !capacity::admits(tx, now, slot, gate)? {
        return Ok(LeaseOutcome::Waiting);
    }
    Ok(LeaseOutcome::Run(Box::new(grant(tx, now, slot, version, ask)?)))
}

fn grant(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, gate: u64, ask: &LeaseRequest) -> Result<Grant, Fault> {
    if let Some(lapsed) = slot.now.lease.take() {
        count_crash(tx, slot, &lapsed.serving)?;
        slot.now.note_crash(lapsed, now);
    }
    let before = if slot.now.epoch > 0 { slot.now.epoch } else { floor(tx, &slot.owner)? };
    let session = &mut slot.now;
    session.epoch = before + 1;
    session.backoff = None;
    session.lease = Some(LeaseRecord {
        until: 0,
        token: ask.token.clone(),
        worker: ask.worker.clone(),
        limit: ask.mailbox_limit,
        serving: Serving::default(),
    });
    session.hold_until(now.plus(ask.ttl));
    hand_out(tx, now, slot, gate, Some(ask.crash_limit))
}

/// The holder asks once more: its answer was lost.
fn grant_again(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, gate: u64, ask: &LeaseRequest) -> Result<Grant, Fault> {
    slot.now.hold_until(now.plus(ask.ttl));
    hand_out(tx, now, slot, gate, None)
}

/// Everything that the holder needs to go on.
fn hand_out(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut Slot,
    gate: u64,
    crash_limit: Option<u32>,
) -> Result<Grant, Fault> {
    let mailbox = serve(tx, now, slot, crash_limit)?;
    slot.save(tx)?;
    let until = Millis(slot.now.lease.as_ref().map_or(0, |lease| lease.until));
    let (checkpoint, calls) = recorded(tx, slot)?;
    let state = match slot.now.version {
        0 => None,
        _ => tx.get(Space::Core, &slot.part(layout::STATE))?.map(|b| Bytes::copy_from_slice(&b)),
    };
    let lease = Lease { owner: slot.owner_id.clone(), session: slot.key.clone(), epoch: slot.now.epoch };
    let (version, arrivals, attempts) = (slot.now.version, slot.now.arrivals, slot.now.attempts.clone());
    Ok(Grant { lease, until, gate, version, state, checkpoint, calls, mailbox, arrivals, attempts })
}

type Recorded = (Option<Bytes>, Vec<(u32, Bytes)>);

fn recorded(tx: &Tx<'_>, slot: &Slot) -> Result<Recorded, Fault> {
    if !slot.now.checkpointed {
        return Ok((None, Vec::new()));
    }
    let reply = tx.get(Space::Core, &slot.part(b"r"))?.map(|b| Bytes::copy_from_slice(&b));
    let prefix = slot.part(b"c");
    let mut calls = Vec::new();
    tx.walk(Space::Core, &prefix, &layout::end_of(&prefix), &mut |key, value| {
        let index = key[prefix.len()..].try_into().map(u32::from_be_bytes);
        let index = index.map_err(|_| Fault::Record(format!("call key of `{}` is damaged", slot.token)))?;
        calls.push((index, Bytes::copy_from_slice(value)));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((reply, calls))
}

/// One more crash for each event that the lapsed lease served.
fn count_crash(tx: &mut Tx<'_>, slot: &mut Slot, served: &Serving) -> Result<(), Fault> {
    let mut crashes = slot.crashes(tx)?;
    for mail in slot.places(tx)? {
        if served.covers(&mail.place, mail.entry.kind == EventKind::Task, mail.arrival) {
            *crashes.entry(mail.place).or_insert(0) += 1;
        }
    }
    if !crashes.is_empty() {
        let bytes = serde_json::to_vec(&crashes).map_err(|e| Fault::Record(e.to_string()))?;
        tx.put(Space::Core, slot.part(b"x"), bytes);
        slot.now.crashed = true;
    }
    Ok(())
}

/// Hands the mailbox to the holder: what the lease serves is settled here. With a crash limit, a
/// first task that reached it is dead-lettered.
pub(super) fn serve(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut Slot,
    crash_limit: Option<u32>,
) -> Result<Vec<MailboxEntry>, Fault> {
    let limit = slot.now.lease.as_ref().map_or(0, |l| l.limit);
    let mut mail = slot.mail(tx, usize::try_from(limit).unwrap_or(usize::MAX))?;
    // A paused one is served by nobody, and so are those behind it.
    let task = mail.iter_mut().find(|m| m.entry.kind == EventKind::Task);
    let task = task.filter(|m| m.entry.job_status != Some(JobStatus::Paused));
    let task_served = task.as_ref().map(|m| (m.place.clone(), m.entry.job.clone()));
    if let Some(task) = task {
        start(tx, now, slot, task, crash_limit)?;
    }
    let others = mail.iter().filter(|m| m.entry.kind != EventKind::Task);
    let last = others.map(|m| m.place.clone()).max().unwrap_or_default();
    let arrivals = slot.now.arrivals;
    if let Some((place, _)) = &task_served {
        slot.now.task = Some(place.clone());
    }
    if let Some(lease) = &mut slot.now.lease {
        lease.serving = Serving { arrivals, last, task: task_served };
    }
    slot.now.nudged = false;
    Ok(mail.into_iter().map(|m| m.entry).collect())
}

fn start(tx: &mut Tx<'_>, now: Millis, slot: &Slot, task: &mut Mail, crash_limit: Option<u32>) -> Result<(), Fault> {
    let Some(job) = task.entry.job.clone() else { return Ok(()) };
    let ended = task.entry.job_status.is_some_and(JobStatus::is_terminal);
    let crashes = task.entry.crashes;
    if !ended && crash_limit.is_some_and(|limit| crashes > 0 && crashes >= limit) {
        let attempts: Vec<_> = slot.now.attempts.iter().filter(|attempt| attempt.job.as_ref() == Some(&job)).collect();
        let result = JobResult::failed(ErrorCode::Dead, verdict(crashes, &attempts));
        let result = serde_json::to_vec(&result).map_err(|e| Fault::Record(e.to_string()))?;
        let finish = JobFinish { job, status: JobStatus::Failed, result: result.into() };
        docs::end_job(tx, now, &slot.owner, &finish)?;
        task.entry.job_status = Some(JobStatus::Failed);
    } else if task.entry.job_status == Some(JobStatus::Pending) {
        docs::set_status(tx, now, &slot.owner, &job, JobStatus::Started, |_| true)?;
        task.entry.job_status = Some(JobStatus::Started);
    }
    Ok(())
}

/// How the holder goes on. The caller has checked that it is the holder, and saves nothing.
pub(super) fn then(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, then: After) -> Result<Continuation, Fault> {
    let After::Release { arrivals, due, backoff } = then else { return held(tx, now, slot) };
    if slot.now.arrivals > arrivals {
        return held(tx, now, slot);
    }
    let session = &mut slot.now;
    let due = due.map(|d| d.0);
    // A job ended during the lease and its entry is still here: look again at once.
    let again = session.nudged && session.pending() > 0;
    (session.lease, session.waiting) = (None, None);
    session.nudged = false;
    session.due = if again { Some(now.0) } else { due };
    session.backoff = due.filter(|_| backoff && !again);
    slot.save(tx)?;
    let wakes = capacity::wake_waiting(tx, now, &slot.owner_id, &slot.key.agent.token(), capacity::AGAIN)?;
    Ok(Continuation::Released { wakes })
}

/// The lease goes on with the mailbox of now.
pub(super) fn held(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot) -> Result<Continuation, Fault> {
    let mailbox = serve(tx, now, slot, None)?;
    slot.save(tx)?;
    Ok(Continuation::Held { mailbox, arrivals: slot.now.arrivals })
}
