//! The right to run a session: the grant, crash counts, the release.

use super::layout::{self, Space};
use super::mailbox::{Mail, Slot, floor};
use super::tx::{Fault, Tx, View};
use super::{capacity, docs};
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::job::{ErrorCode, JobResult, JobStatus};
use crate::domain::lease::{Availability, Handout, LeaseRecord, Onward, Serving, TaskStart};
use crate::domain::time::Millis;
use crate::store::keys::{self, Gate};
use crate::store::{
    After, Continuation, EventKind, Grant, JobFinish, LOST_CALLS, Lease, LeaseOutcome, LeaseRequest, MailboxEntry,
    Versions,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// Returns the agent's gate; `None` if there is no such agent.
pub(super) fn gate(view: &impl View, owner: &str, agent: &AgentId) -> Result<Option<Gate>, Fault> {
    let Some(bytes) = docs::get(view, owner, &keys::agent_gate(agent))?.value else { return Ok(None) };
    let gate = Gate::decode(&bytes).ok_or_else(|| Fault::Record(format!("gate of agent `{agent}` is damaged")))?;
    Ok(Some(gate))
}

/// Returns the versions that the session's next turn depends on.
fn ground(view: &impl View, slot: &Slot) -> Result<Versions, Fault> {
    let version = |key: &str| Ok::<_, Fault>(docs::get(view, &slot.owner, key)?.version);
    let gate = docs::get(view, &slot.owner, &keys::agent_gate(&slot.key.agent))?;
    let gate = if gate.value.is_some() { gate.version } else { 0 };
    Ok(Versions { gate, policy: docs::policy_version(view, &slot.owner)?, erasures: version(keys::ERASURES)? })
}

/// Tries to acquire the lease. Nothing runs for an agent that is absent or terminated.
pub(super) fn ask(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut Slot,
    gate: Option<Gate>,
    ask: &LeaseRequest,
) -> Result<LeaseOutcome, Fault> {
    let until = now.plus(ask.ttl);
    match slot.now.ask(now, &ask.token, until, gate.map(|gate| gate.status)) {
        Availability::Yours => {
            return Ok(LeaseOutcome::Run(Box::new(hand_out(tx, now, slot, None)?)));
        }
        Availability::Held(until) => return Ok(LeaseOutcome::Busy(until)),
        Availability::BackingOff(until) => return Ok(LeaseOutcome::Backoff(until)),
        Availability::Suspended => {
            capacity::wait(tx, slot)?;
            return Ok(LeaseOutcome::Suspended);
        }
        Availability::Empty { waited } => {
            slot.save(tx)?;
            if waited {
                // The session was woken for a slot that it doesn't need; another session may take it.
                capacity::wake_waiting(tx, now, &slot.owner_id, &slot.key.agent.token(), capacity::AGAIN)?;
            }
            return Ok(LeaseOutcome::Empty);
        }
        Availability::Free => {}
    }
    capacity::set_cap(tx, &slot.owner, ask.owner_cap);
    let concurrency = gate.map_or(0, |gate| gate.concurrency);
    if !capacity::admits(tx, now, slot, concurrency)? {
        return Ok(LeaseOutcome::Waiting);
    }
    Ok(LeaseOutcome::Run(Box::new(grant(tx, now, slot, ask)?)))
}

/// Extends leases that were held at `before` by `by`.
pub(super) fn postpone(tx: &mut Tx<'_>, before: Millis, by: Duration) -> Result<(), Fault> {
    for (owner, session) in tx.index().leased(before.0) {
        let (Ok(owner), Ok(session)) = (Owner::from_token(&owner), SessionKey::from_token(&session)) else { continue };
        let mut slot = Slot::load(tx, &owner, &session)?;
        let Some(lease) = &mut slot.now.lease else { continue };
        let until = lease.until.plus(by);
        if slot.now.due == Some(lease.until) {
            slot.now.due = Some(until);
        }
        lease.until = until;
        slot.save(tx)?;
    }
    Ok(())
}

fn grant(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, ask: &LeaseRequest) -> Result<Grant, Fault> {
    let floor = if slot.now.epoch > 0 { 0 } else { floor(tx, &slot.owner)? };
    let lease = LeaseRecord {
        until: now.plus(ask.ttl),
        token: ask.token.clone(),
        worker: ask.worker.clone(),
        limit: ask.mailbox_limit,
        serving: Serving::default(),
    };
    if let Some(served) = slot.now.grant(now, lease, floor) {
        count_crash(tx, slot, &served)?;
    }
    hand_out(tx, now, slot, Some(ask.crash_limit))
}

/// Returns a grant with everything that the holder needs.
fn hand_out(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, crash_limit: Option<u32>) -> Result<Grant, Fault> {
    let mailbox = serve(tx, now, slot, crash_limit)?;
    slot.save(tx)?;
    let until = slot.now.lease.as_ref().map_or(Millis(0), |lease| lease.until);
    let (checkpoint, calls) = recorded(tx, slot)?;
    let state = match slot.now.version {
        0 => None,
        _ => tx.get(Space::Core, &slot.part(layout::STATE))?.map(|b| Bytes::copy_from_slice(&b)),
    };
    let lease = Lease { owner: slot.owner_id.clone(), session: slot.key.clone(), epoch: slot.now.epoch };
    let (version, last) = (slot.now.version, slot.now.last);
    let (arrivals, attempts) = (slot.now.arrivals, slot.now.attempts.clone());
    let ground = ground(tx, slot)?;
    Ok(Grant { lease, until, ground, version, last, state, checkpoint, calls, mailbox, arrivals, attempts })
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
    if calls.len() < usize::try_from(slot.now.calls).unwrap_or(usize::MAX) {
        calls.push((LOST_CALLS, Bytes::new()));
    }
    Ok((reply, calls))
}

/// Counts a crash for each event that the lapsed lease served.
fn count_crash(tx: &mut Tx<'_>, slot: &mut Slot, served: &Serving) -> Result<(), Fault> {
    let mut crashes = slot.crashes(tx)?;
    for mail in slot.places(tx)?.0 {
        if served.covers(&mail.place, mail.entry.kind == EventKind::Task, mail.arrival) {
            *crashes.entry(mail.place).or_insert(0) += 1;
        }
    }
    put_crashes(tx, slot, &crashes)
}

/// Takes back the crash that was counted for the holder of `epoch`, which is alive.
pub(super) fn acquit(tx: &mut Tx<'_>, slot: &mut Slot, epoch: u64) -> Result<(), Fault> {
    let Some(served) = slot.now.acquit(epoch) else { return Ok(()) };
    let mut crashes = slot.crashes(tx)?;
    for mail in slot.places(tx)?.0 {
        if served.covers(&mail.place, mail.entry.kind == EventKind::Task, mail.arrival)
            && let Some(count) = crashes.get_mut(&mail.place)
        {
            *count = count.saturating_sub(1);
        }
    }
    put_crashes(tx, slot, &crashes)?;
    slot.save(tx)
}

fn put_crashes(tx: &mut Tx<'_>, slot: &mut Slot, crashes: &BTreeMap<String, u32>) -> Result<(), Fault> {
    if !crashes.is_empty() {
        let bytes = serde_json::to_vec(crashes).map_err(|e| Fault::Record(e.to_string()))?;
        tx.put(Space::Core, slot.part(b"x"), bytes);
        slot.now.crashed = true;
    }
    Ok(())
}

/// Returns the mailbox for the holder, and records which events the lease serves. With a crash limit, a first task that
/// has reached it is dead-lettered.
pub(super) fn serve(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut Slot,
    crash_limit: Option<u32>,
) -> Result<Vec<MailboxEntry>, Fault> {
    let limit = slot.now.lease.as_ref().map_or(0, |l| l.limit);
    let mut mail = slot.mail(tx, usize::try_from(limit).unwrap_or(usize::MAX))?;
    let handouts = mail.iter().map(|Mail { place, entry, .. }| Handout {
        place,
        kind: entry.kind,
        job: entry.job.as_ref(),
        status: entry.job_status,
    });
    if let Some(task) = slot.now.serve(handouts).and_then(|at| mail.get_mut(at)) {
        start(tx, now, slot, task, crash_limit)?;
    }
    Ok(mail.into_iter().map(|m| m.entry).collect())
}

fn start(tx: &mut Tx<'_>, now: Millis, slot: &Slot, task: &mut Mail, crash_limit: Option<u32>) -> Result<(), Fault> {
    let Some(job) = task.entry.job.clone() else { return Ok(()) };
    match slot.now.start(&job, task.entry.job_status, task.entry.crashes, crash_limit) {
        TaskStart::Dead(verdict) => {
            let result = JobResult::failed(ErrorCode::Dead, verdict);
            let result = serde_json::to_vec(&result).map_err(|e| Fault::Record(e.to_string()))?;
            let finish = JobFinish { job, status: JobStatus::Failed, result: result.into() };
            docs::end_job(tx, now, &slot.owner, &finish)?;
            task.entry.job_status = Some(JobStatus::Failed);
        }
        TaskStart::Starts => {
            docs::set_status(tx, now, &slot.owner, &job, JobStatus::Started, |_| true)?;
            task.entry.job_status = Some(JobStatus::Started);
        }
        TaskStart::GoesOn => {}
    }
    Ok(())
}

/// Applies `then` to the lease. The caller has checked that it is the holder; this saves the session.
pub(super) fn then(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, then: After) -> Result<Continuation, Fault> {
    match slot.now.go_on(now, then) {
        Onward::Held => held(tx, now, slot),
        Onward::Released => {
            slot.save(tx)?;
            let wakes = capacity::wake_waiting(tx, now, &slot.owner_id, &slot.key.agent.token(), capacity::AGAIN)?;
            Ok(Continuation::Released { wakes })
        }
    }
}

/// Keeps the lease, with the current mailbox.
pub(super) fn held(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot) -> Result<Continuation, Fault> {
    let mailbox = serve(tx, now, slot, None)?;
    slot.save(tx)?;
    Ok(Continuation::Held { mailbox, arrivals: slot.now.arrivals, ground: ground(tx, slot)? })
}
