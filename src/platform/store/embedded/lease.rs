//! The right to run a session: the grant, crash counts, the release.

use super::layout::{self, Space};
use super::mailbox::{LoadedSession, MailItem, epoch_floor};
use super::tx::Tx;
use super::view::{StoreFault, View};
use super::{capacity, docs};
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::job::{ErrorCode, JobResult, JobStatus};
use crate::domain::lease::{Availability, Handout, LeaseRecord, LeaseResult, LeasedEvents, TaskStart};
use crate::domain::time::Millis;
use crate::store::keys::{self, Gate};
use crate::store::{
    Continuation, EventKind, Grant, JobFinish, LOST_CALLS, Lease, LeaseOutcome, LeaseRequest, LeaseUse, MailboxEntry,
    Versions,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// Returns the agent's gate; `None` if there is no such agent.
pub(super) fn gate(view: &impl View, owner: &str, agent: &AgentId) -> Result<Option<Gate>, StoreFault> {
    let Some(bytes) = docs::get(view, owner, &keys::agent_gate(agent))?.value else { return Ok(None) };
    let gate = Gate::decode(&bytes).ok_or_else(|| StoreFault::Record(format!("gate of agent `{agent}` is damaged")))?;
    Ok(Some(gate))
}

/// Returns the versions that the session's next turn depends on.
fn versions(view: &impl View, slot: &LoadedSession) -> Result<Versions, StoreFault> {
    let version = |key: &str| Ok::<_, StoreFault>(docs::get(view, &slot.owner, key)?.version);
    let gate = docs::get(view, &slot.owner, &keys::agent_gate(&slot.key.agent))?;
    let gate = if gate.value.is_some() { gate.version } else { 0 };
    Ok(Versions { gate, policy: docs::policy_version(view, &slot.owner)?, erasures: version(keys::ERASURES)? })
}

/// Tries to acquire the lease. Nothing runs for an agent that is absent or terminated.
pub(super) fn request(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut LoadedSession,
    gate: Option<Gate>,
    ask: &LeaseRequest,
) -> Result<LeaseOutcome, StoreFault> {
    let until = now.plus(ask.ttl);
    match slot.record.request_lease(now, &ask.token, until, gate.map(|gate| gate.status)) {
        Availability::Yours => {
            return Ok(LeaseOutcome::Run(Box::new(build_grant(tx, now, slot, None)?)));
        }
        Availability::Held(until) => return Ok(LeaseOutcome::Busy(until)),
        Availability::BackingOff(until) => return Ok(LeaseOutcome::Backoff(until)),
        Availability::Suspended => {
            capacity::enqueue(tx, slot)?;
            return Ok(LeaseOutcome::Suspended);
        }
        Availability::Empty { waited } => {
            slot.save(tx)?;
            if waited {
                // The session was woken for a slot that it doesn't need; another session may take it.
                capacity::wake_waiting(tx, now, &slot.owner_id, &slot.key.agent.token(), capacity::WAKE_TIMEOUT)?;
            }
            return Ok(LeaseOutcome::Empty);
        }
        Availability::Free => {}
    }
    capacity::set_cap(tx, &slot.owner, ask.owner_cap);
    let concurrency = gate.map_or(0, |gate| gate.concurrency);
    if !capacity::try_slot(tx, now, slot, concurrency)? {
        return Ok(LeaseOutcome::Waiting);
    }
    Ok(LeaseOutcome::Run(Box::new(grant(tx, now, slot, ask)?)))
}

/// Extends leases that were held at `before` by `by`.
pub(super) fn extend_held(tx: &mut Tx<'_>, before: Millis, by: Duration) -> Result<(), StoreFault> {
    for (owner, session) in tx.index().live_leases(before.0) {
        let (Ok(owner), Ok(session)) = (Owner::from_token(&owner), SessionKey::from_token(&session)) else { continue };
        let mut slot = LoadedSession::load(tx, &owner, &session)?;
        let Some(lease) = &mut slot.record.lease else { continue };
        let until = lease.until.plus(by);
        if slot.record.due == Some(lease.until) {
            slot.record.due = Some(until);
        }
        lease.until = until;
        slot.save(tx)?;
    }
    Ok(())
}

fn grant(tx: &mut Tx<'_>, now: Millis, slot: &mut LoadedSession, ask: &LeaseRequest) -> Result<Grant, StoreFault> {
    let floor = if slot.record.epoch > 0 { 0 } else { epoch_floor(tx, &slot.owner)? };
    let lease = LeaseRecord {
        until: now.plus(ask.ttl),
        token: ask.token.clone(),
        worker: ask.worker.clone(),
        limit: ask.mailbox_limit,
        serving: LeasedEvents::default(),
    };
    if let Some(served) = slot.record.grant(now, lease, floor) {
        count_crash(tx, slot, &served)?;
    }
    build_grant(tx, now, slot, Some(ask.crash_limit))
}

/// Returns a grant with everything that the holder needs.
fn build_grant(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut LoadedSession,
    crash_limit: Option<u32>,
) -> Result<Grant, StoreFault> {
    let mailbox = serve_mailbox(tx, now, slot, crash_limit)?;
    slot.save(tx)?;
    let until = slot.record.lease.as_ref().map_or(Millis(0), |lease| lease.until);
    let (checkpoint, calls) = load_checkpoint(tx, slot)?;
    let state = match slot.record.version {
        0 => None,
        _ => tx.get(Space::Core, &slot.part(layout::STATE))?.map(|b| Bytes::copy_from_slice(&b)),
    };
    let lease = Lease { owner: slot.owner_id.clone(), session: slot.key.clone(), epoch: slot.record.epoch };
    let (version, last) = (slot.record.version, slot.record.last);
    let (arrivals, attempts) = (slot.record.arrivals, slot.record.attempts.clone());
    let ground = versions(tx, slot)?;
    Ok(Grant {
        lease,
        until,
        versions: ground,
        version,
        last_commit: last,
        state,
        checkpoint,
        calls,
        mailbox,
        arrivals,
        attempts,
    })
}

type CheckpointParts = (Option<Bytes>, Vec<(u32, Bytes)>);

fn load_checkpoint(tx: &Tx<'_>, slot: &LoadedSession) -> Result<CheckpointParts, StoreFault> {
    if !slot.record.checkpointed {
        return Ok((None, Vec::new()));
    }
    let reply = tx.get(Space::Core, &slot.part(b"r"))?.map(|b| Bytes::copy_from_slice(&b));
    let prefix = slot.part(b"c");
    let mut calls = Vec::new();
    tx.walk(Space::Core, &prefix, &layout::prefix_end(&prefix), &mut |key, value| {
        let index = key[prefix.len()..].try_into().map(u32::from_be_bytes);
        let index = index.map_err(|_| StoreFault::Record(format!("call key of `{}` is damaged", slot.token)))?;
        calls.push((index, Bytes::copy_from_slice(value)));
        Ok(ControlFlow::Continue(()))
    })?;
    if calls.len() < usize::try_from(slot.record.calls).unwrap_or(usize::MAX) {
        calls.push((LOST_CALLS, Bytes::new()));
    }
    Ok((reply, calls))
}

/// Counts a crash for each event that the lapsed lease served.
fn count_crash(tx: &mut Tx<'_>, slot: &mut LoadedSession, served: &LeasedEvents) -> Result<(), StoreFault> {
    let mut crashes = slot.crashes(tx)?;
    for mail in slot.all_entries(tx)?.0 {
        if served.covers(&mail.place, mail.entry.kind == EventKind::Task, mail.arrival) {
            *crashes.entry(mail.place).or_insert(0) += 1;
        }
    }
    put_crashes(tx, slot, &crashes)
}

/// Takes back the crash that was counted for the holder of `epoch`, which is alive.
pub(super) fn undo_crash(tx: &mut Tx<'_>, slot: &mut LoadedSession, epoch: u64) -> Result<(), StoreFault> {
    let Some(served) = slot.record.uncount_crash(epoch) else { return Ok(()) };
    let mut crashes = slot.crashes(tx)?;
    for mail in slot.all_entries(tx)?.0 {
        if served.covers(&mail.place, mail.entry.kind == EventKind::Task, mail.arrival)
            && let Some(count) = crashes.get_mut(&mail.place)
        {
            *count = count.saturating_sub(1);
        }
    }
    put_crashes(tx, slot, &crashes)?;
    slot.save(tx)
}

fn put_crashes(tx: &mut Tx<'_>, slot: &mut LoadedSession, crashes: &BTreeMap<String, u32>) -> Result<(), StoreFault> {
    if !crashes.is_empty() {
        let bytes = serde_json::to_vec(crashes).map_err(|e| StoreFault::Record(e.to_string()))?;
        tx.put(Space::Core, slot.part(b"x"), bytes);
        slot.record.crashed = true;
    }
    Ok(())
}

/// Returns the mailbox for the holder, and records which events the lease serves. With a crash limit, a first task that
/// has reached it is dead-lettered.
pub(super) fn serve_mailbox(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut LoadedSession,
    crash_limit: Option<u32>,
) -> Result<Vec<MailboxEntry>, StoreFault> {
    let limit = slot.record.lease.as_ref().map_or(0, |l| l.limit);
    let mut mail = slot.first_events(tx, usize::try_from(limit).unwrap_or(usize::MAX))?;
    let handouts = mail.iter().map(|MailItem { place, entry, .. }| Handout {
        place,
        kind: entry.kind,
        job: entry.job.as_ref(),
        status: entry.job_status,
    });
    if let Some(task) = slot.record.serve(handouts).and_then(|at| mail.get_mut(at)) {
        start_task(tx, now, slot, task, crash_limit)?;
    }
    Ok(mail.into_iter().map(|m| m.entry).collect())
}

fn start_task(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &LoadedSession,
    task: &mut MailItem,
    crash_limit: Option<u32>,
) -> Result<(), StoreFault> {
    let Some(job) = task.entry.job.clone() else { return Ok(()) };
    match slot.record.task_fate(&job, task.entry.job_status, task.entry.crashes, crash_limit) {
        TaskStart::Dead(verdict) => {
            let result = JobResult::failure(ErrorCode::Dead, verdict);
            let result = serde_json::to_vec(&result).map_err(|e| StoreFault::Record(e.to_string()))?;
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
pub(super) fn apply_after(
    tx: &mut Tx<'_>,
    now: Millis,
    slot: &mut LoadedSession,
    then: LeaseUse,
) -> Result<Continuation, StoreFault> {
    match slot.record.keep_or_release(now, then) {
        LeaseResult::Held => keep(tx, now, slot),
        LeaseResult::Released => {
            slot.save(tx)?;
            let wakes =
                capacity::wake_waiting(tx, now, &slot.owner_id, &slot.key.agent.token(), capacity::WAKE_TIMEOUT)?;
            Ok(Continuation::Released { wakes })
        }
    }
}

/// Keeps the lease, with the current mailbox.
pub(super) fn keep(tx: &mut Tx<'_>, now: Millis, slot: &mut LoadedSession) -> Result<Continuation, StoreFault> {
    let mailbox = serve_mailbox(tx, now, slot, None)?;
    slot.save(tx)?;
    Ok(Continuation::Held { mailbox, arrivals: slot.record.arrivals, versions: versions(tx, slot)? })
}
