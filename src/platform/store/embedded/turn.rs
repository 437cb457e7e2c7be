//! Stages 3 to 7 for the holder of a lease: renew, checkpoint, commit, release.

use super::docs;
use super::layout::{self, Space};
use super::lease;
use super::mailbox::LoadedSession;
use super::outbox;
use super::sweep;
use super::tx::Tx;
use super::view::{StoreFault, View};
use crate::domain::job::JobStatus;
use crate::domain::lease::{CheckpointState, HolderState, TurnClaim};
use crate::domain::time::Millis;
use crate::store::{Checkpoint, Commit, CommitOutcome, Continuation, Lease, LeaseCheck, LeaseUse, ReleaseOutcome};
use std::{ops::ControlFlow, time::Duration};

fn load_session(tx: &Tx<'_>, lease: &Lease) -> Result<LoadedSession, StoreFault> {
    LoadedSession::load(tx, &lease.owner, &lease.session)
}

fn lease_check(tx: &Tx<'_>, loaded: &LoadedSession) -> Result<LeaseCheck, StoreFault> {
    let status = match loaded.record.served_job() {
        Some(job) => docs::job_status(tx, &loaded.owner, job)?,
        None => None,
    };
    let policy = docs::policy_version(tx, &loaded.owner)?;
    Ok(LeaseCheck::Held { cancelled: status.is_some_and(JobStatus::is_terminal), policy })
}

/// Implements [`crate::store::Store::renew`] for the writer.
pub(super) fn renew(tx: &mut Tx<'_>, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, StoreFault> {
    let mut loaded = load_session(tx, lease)?;
    if !loaded.record.renew(lease.epoch, now.plus(ttl)) {
        return Ok(LeaseCheck::Fenced);
    }
    loaded.save(tx)?;
    lease_check(tx, &loaded)
}

/// Implements [`crate::store::Store::checkpoint`] for the writer.
pub(super) fn checkpoint(
    tx: &mut Tx<'_>,
    now: Millis,
    lease: &Lease,
    write: &Checkpoint,
) -> Result<LeaseCheck, StoreFault> {
    let mut loaded = load_session(tx, lease)?;
    match loaded.record.checkpoint_state(lease.epoch, write.turn) {
        CheckpointState::Fenced => return Ok(LeaseCheck::Fenced),
        CheckpointState::Late => {}
        CheckpointState::Now => write_checkpoint(tx, now, &mut loaded, write)?,
    }
    lease_check(tx, &loaded)
}

fn write_checkpoint(
    tx: &mut Tx<'_>,
    now: Millis,
    loaded: &mut LoadedSession,
    write: &Checkpoint,
) -> Result<(), StoreFault> {
    if let Some(reply) = &write.reply {
        tx.put(Space::Core, loaded.part(b"r"), reply.to_vec());
        loaded.record.checkpointed = true;
    }
    for (index, call) in &write.calls {
        let key = layout::call(&loaded.owner, &loaded.token, *index);
        loaded.record.calls += u32::from(tx.get(Space::Core, &key)?.is_none());
        tx.put(Space::Core, key, call.to_vec());
        loaded.record.checkpointed = true;
    }
    for open in &write.open {
        docs::open_job(tx, now, &loaded.owner, open)?;
    }
    for entry in &write.outbox {
        outbox::put(tx, now, &loaded.owner, entry)?;
    }
    docs::apply(tx, now, &loaded.owner, &write.writes)?;
    loaded.save(tx)?;
    Ok(())
}

/// Implements [`crate::store::Store::commit`] for the writer.
pub(super) fn commit(
    tx: &mut Tx<'_>,
    now: Millis,
    lease: &Lease,
    commit: &Commit,
) -> Result<CommitOutcome, StoreFault> {
    let mut loaded = load_session(tx, lease)?;
    match loaded.record.claim_turn(lease.epoch, commit.turn) {
        TurnClaim::Repeated { held: true } => return Ok(CommitOutcome::Done(lease::keep(tx, now, &mut loaded)?)),
        TurnClaim::Repeated { held: false } => return Ok(CommitOutcome::Done(released_before())),
        TurnClaim::Fenced => return Ok(CommitOutcome::Fenced),
        TurnClaim::Next => {}
    }
    if let Some(job) = &commit.unless_cancelled
        && docs::job_status(tx, &loaded.owner, job)?.is_some_and(JobStatus::is_terminal)
    {
        return Ok(CommitOutcome::Cancelled);
    }
    let conflicts = docs::conflicts(tx, &loaded.owner, &commit.writes)?;
    if !conflicts.is_empty() {
        return Ok(CommitOutcome::Conflict(conflicts));
    }
    write_turn(tx, now, &mut loaded, commit)?;
    loaded.record.commit(now, commit.turn);
    let next = lease::apply_after(tx, now, &mut loaded, commit.after_commit)?;
    sweep::wake_for_gates(tx, now, &lease.owner, &commit.writes)?;
    Ok(CommitOutcome::Done(next))
}

fn write_turn(tx: &mut Tx<'_>, now: Millis, loaded: &mut LoadedSession, commit: &Commit) -> Result<(), StoreFault> {
    docs::apply(tx, now, &loaded.owner, &commit.writes)?;
    let places: Vec<Vec<u8>> = commit.consume.iter().map(|key| layout::place_to_storage(key)).collect();
    loaded.consume(tx, &places)?;
    if let Some((job, status)) = &commit.status {
        docs::set_turn_status(tx, now, &loaded.owner, job, *status)?;
    }
    for finish in &commit.finish {
        docs::end_job(tx, now, &loaded.owner, finish)?;
    }
    for entry in &commit.outbox {
        outbox::put(tx, now, &loaded.owner, entry)?;
    }
    loaded.set_state(tx, &commit.state)?;
    if loaded.record.crashed {
        tx.remove(Space::Core, loaded.part(b"x"));
    }
    if loaded.record.checkpointed {
        tx.remove(Space::Core, loaded.part(b"r"));
        let prefix = loaded.part(b"c");
        let mut calls = Vec::new();
        tx.walk(Space::Core, &prefix, &layout::prefix_end(&prefix), &mut |key, _| {
            calls.push(key.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        for key in calls {
            tx.remove(Space::Core, key);
        }
    }
    Ok(())
}

/// The wakes were returned with the first answer, or the sweep publishes them.
const fn released_before() -> Continuation {
    Continuation::Released { wakes: Vec::new() }
}

/// Implements [`crate::store::Store::release`] for the writer.
pub(super) fn release(
    tx: &mut Tx<'_>,
    now: Millis,
    lease: &Lease,
    then: LeaseUse,
) -> Result<ReleaseOutcome, StoreFault> {
    let mut loaded = load_session(tx, lease)?;
    Ok(match loaded.record.holder_state(lease.epoch) {
        HolderState::Holds => ReleaseOutcome::Done(lease::apply_after(tx, now, &mut loaded, then)?),
        // The first answer was lost.
        HolderState::GaveBack => ReleaseOutcome::Done(released_before()),
        HolderState::Fenced => {
            lease::undo_crash(tx, &mut loaded, lease.epoch)?;
            ReleaseOutcome::Fenced
        }
    })
}
