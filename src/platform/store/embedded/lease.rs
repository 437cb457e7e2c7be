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
fn versions(view: &impl View, loaded: &LoadedSession) -> Result<Versions, StoreFault> {
    let version = |key: &str| Ok::<_, StoreFault>(docs::get(view, &loaded.owner, key)?.version);
    let gate = docs::get(view, &loaded.owner, &keys::agent_gate(&loaded.key.agent))?;
    let gate = if gate.value.is_some() { gate.version } else { 0 };
    Ok(Versions { gate, policy: docs::policy_version(view, &loaded.owner)?, erasures: version(keys::ERASURES)? })
}

/// Tries to acquire the lease. Nothing runs for an agent that is absent or terminated.
pub(super) fn request(
    tx: &mut Tx<'_>,
    now: Millis,
    loaded: &mut LoadedSession,
    gate: Option<Gate>,
    ask: &LeaseRequest,
) -> Result<LeaseOutcome, StoreFault> {
    let until = now.plus(ask.ttl);
    match loaded.record.request_lease(now, &ask.token, until, gate.map(|gate| gate.status)) {
        Availability::Yours => {
            return Ok(LeaseOutcome::Run(Box::new(build_grant(tx, now, loaded, None)?)));
        }
        Availability::Held(until) => return Ok(LeaseOutcome::Busy(until)),
        Availability::BackingOff(until) => return Ok(LeaseOutcome::Backoff(until)),
        Availability::Suspended => {
            capacity::enqueue(tx, loaded)?;
            return Ok(LeaseOutcome::Suspended);
        }
        Availability::Empty { waited } => {
            loaded.save(tx)?;
            if waited {
                // The session was woken for a slot that it doesn't need; another session may take it.
                capacity::wake_waiting(tx, now, &loaded.owner_id, &loaded.key.agent.token(), capacity::WAKE_TIMEOUT)?;
            }
            return Ok(LeaseOutcome::Empty);
        }
        Availability::Free => {}
    }
    capacity::set_cap(tx, &loaded.owner, ask.owner_cap);
    let concurrency = gate.map_or(0, |gate| gate.concurrency);
    if !capacity::try_slot(tx, now, loaded, concurrency)? {
        return Ok(LeaseOutcome::Waiting);
    }
    Ok(LeaseOutcome::Run(Box::new(grant(tx, now, loaded, ask)?)))
}

/// Extends leases that were held at `before` by `by`.
pub(super) fn extend_held(tx: &mut Tx<'_>, before: Millis, by: Duration) -> Result<(), StoreFault> {
    for (owner, session) in tx.index().live_leases(before.0) {
        let (Ok(owner), Ok(session)) = (Owner::from_token(&owner), SessionKey::from_token(&session)) else { continue };
        let mut loaded = LoadedSession::load(tx, &owner, &session)?;
        let Some(lease) = &mut loaded.record.lease else { continue };
        let until = lease.until.plus(by);
        if loaded.record.due == Some(lease.until) {
            loaded.record.due = Some(until);
        }
        lease.until = until;
        loaded.save(tx)?;
    }
    Ok(())
}

fn grant(tx: &mut Tx<'_>, now: Millis, loaded: &mut LoadedSession, ask: &LeaseRequest) -> Result<Grant, StoreFault> {
    let floor = if loaded.record.epoch > 0 { 0 } else { epoch_floor(tx, &loaded.owner)? };
    let lease = LeaseRecord {
        until: now.plus(ask.ttl),
        token: ask.token.clone(),
        worker: ask.worker.clone(),
        limit: ask.mailbox_limit,
        serving: LeasedEvents::default(),
    };
    if let Some(served) = loaded.record.grant(now, lease, floor) {
        count_crash(tx, loaded, &served)?;
    }
    build_grant(tx, now, loaded, Some(ask.crash_limit))
}

/// Returns a grant with everything that the holder needs.
fn build_grant(
    tx: &mut Tx<'_>,
    now: Millis,
    loaded: &mut LoadedSession,
    crash_limit: Option<u32>,
) -> Result<Grant, StoreFault> {
    let mailbox = serve_mailbox(tx, now, loaded, crash_limit)?;
    loaded.save(tx)?;
    let until = loaded.record.lease.as_ref().map_or(Millis(0), |lease| lease.until);
    let (checkpoint, calls) = load_checkpoint(tx, loaded)?;
    let state = match loaded.record.version {
        0 => None,
        _ => tx.get(Space::Core, &loaded.part(layout::STATE))?.map(|b| Bytes::copy_from_slice(&b)),
    };
    let lease = Lease { owner: loaded.owner_id.clone(), session: loaded.key.clone(), epoch: loaded.record.epoch };
    let (version, last) = (loaded.record.version, loaded.record.last);
    let (arrivals, attempts) = (loaded.record.arrivals, loaded.record.attempts.clone());
    let versions = versions(tx, loaded)?;
    Ok(Grant {
        lease,
        until,
        versions,
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

fn load_checkpoint(tx: &Tx<'_>, loaded: &LoadedSession) -> Result<CheckpointParts, StoreFault> {
    if !loaded.record.checkpointed {
        return Ok((None, Vec::new()));
    }
    let reply = tx.get(Space::Core, &loaded.part(b"r"))?.map(|b| Bytes::copy_from_slice(&b));
    let prefix = loaded.part(b"c");
    let mut calls = Vec::new();
    tx.walk(Space::Core, &prefix, &layout::prefix_end(&prefix), &mut |key, value| {
        let index = key[prefix.len()..].try_into().map(u32::from_be_bytes);
        let index = index.map_err(|_| StoreFault::Record(format!("call key of `{}` is damaged", loaded.token)))?;
        calls.push((index, Bytes::copy_from_slice(value)));
        Ok(ControlFlow::Continue(()))
    })?;
    if calls.len() < usize::try_from(loaded.record.calls).unwrap_or(usize::MAX) {
        calls.push((LOST_CALLS, Bytes::new()));
    }
    Ok((reply, calls))
}

/// Counts a crash for each event that the lapsed lease served.
fn count_crash(tx: &mut Tx<'_>, loaded: &mut LoadedSession, served: &LeasedEvents) -> Result<(), StoreFault> {
    let mut crashes = loaded.crashes(tx)?;
    for mail in loaded.all_entries(tx)?.0 {
        if served.covers(&mail.place, mail.entry.kind == EventKind::Task, mail.arrival) {
            *crashes.entry(mail.place).or_insert(0) += 1;
        }
    }
    put_crashes(tx, loaded, &crashes)
}

/// Takes back the crash that was counted for the holder of `epoch`, which is alive.
pub(super) fn undo_crash(tx: &mut Tx<'_>, loaded: &mut LoadedSession, epoch: u64) -> Result<(), StoreFault> {
    let Some(served) = loaded.record.uncount_crash(epoch) else { return Ok(()) };
    let mut crashes = loaded.crashes(tx)?;
    for mail in loaded.all_entries(tx)?.0 {
        if served.covers(&mail.place, mail.entry.kind == EventKind::Task, mail.arrival)
            && let Some(count) = crashes.get_mut(&mail.place)
        {
            *count = count.saturating_sub(1);
        }
    }
    put_crashes(tx, loaded, &crashes)?;
    loaded.save(tx)
}

fn put_crashes(tx: &mut Tx<'_>, loaded: &mut LoadedSession, crashes: &BTreeMap<String, u32>) -> Result<(), StoreFault> {
    if !crashes.is_empty() {
        let bytes = serde_json::to_vec(crashes).map_err(|e| StoreFault::Record(e.to_string()))?;
        tx.put(Space::Core, loaded.part(b"x"), bytes);
        loaded.record.crashed = true;
    }
    Ok(())
}

/// Returns the mailbox for the holder, and records which events the lease serves. With a crash limit, a first task that
/// has reached it is dead-lettered.
pub(super) fn serve_mailbox(
    tx: &mut Tx<'_>,
    now: Millis,
    loaded: &mut LoadedSession,
    crash_limit: Option<u32>,
) -> Result<Vec<MailboxEntry>, StoreFault> {
    let limit = loaded.record.lease.as_ref().map_or(0, |l| l.limit);
    let mut mail = loaded.first_events(tx, usize::try_from(limit).unwrap_or(usize::MAX))?;
    let handouts = mail.iter().map(|MailItem { place, entry, .. }| Handout {
        place,
        kind: entry.kind,
        job: entry.job.as_ref(),
        status: entry.job_status,
    });
    if let Some(task) = loaded.record.serve(handouts).and_then(|at| mail.get_mut(at)) {
        start_task(tx, now, loaded, task, crash_limit)?;
    }
    Ok(mail.into_iter().map(|m| m.entry).collect())
}

fn start_task(
    tx: &mut Tx<'_>,
    now: Millis,
    loaded: &LoadedSession,
    task: &mut MailItem,
    crash_limit: Option<u32>,
) -> Result<(), StoreFault> {
    let Some(job) = task.entry.job.clone() else { return Ok(()) };
    match loaded.record.task_fate(&job, task.entry.job_status, task.entry.crashes, crash_limit) {
        TaskStart::Dead(verdict) => {
            let result = JobResult::failure(ErrorCode::Dead, verdict);
            let result = serde_json::to_vec(&result).map_err(|e| StoreFault::Record(e.to_string()))?;
            let finish = JobFinish { job, status: JobStatus::Failed, result: result.into() };
            docs::end_job(tx, now, &loaded.owner, &finish)?;
            task.entry.job_status = Some(JobStatus::Failed);
        }
        TaskStart::Starts => {
            docs::set_status(tx, now, &loaded.owner, &job, JobStatus::Started, |_| true)?;
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
    loaded: &mut LoadedSession,
    then: LeaseUse,
) -> Result<Continuation, StoreFault> {
    match loaded.record.keep_or_release(now, then) {
        LeaseResult::Held => keep(tx, now, loaded),
        LeaseResult::Released => {
            loaded.save(tx)?;
            let wakes =
                capacity::wake_waiting(tx, now, &loaded.owner_id, &loaded.key.agent.token(), capacity::WAKE_TIMEOUT)?;
            Ok(Continuation::Released { wakes })
        }
    }
}

/// Keeps the lease, with the current mailbox.
pub(super) fn keep(tx: &mut Tx<'_>, now: Millis, loaded: &mut LoadedSession) -> Result<Continuation, StoreFault> {
    let mailbox = serve_mailbox(tx, now, loaded, None)?;
    loaded.save(tx)?;
    Ok(Continuation::Held { mailbox, arrivals: loaded.record.arrivals, versions: versions(tx, loaded)? })
}
