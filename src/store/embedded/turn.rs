//! Stages 3 to 7 for the holder of a lease: renew, checkpoint, commit, release.

use super::docs;
use super::layout::{self, Space};
use super::lease;
use super::mailbox::Slot;
use super::outbox;
use super::sweep;
use super::tx::{Fault, Tx, View};
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::store::{After, Checkpoint, Commit, Committed, Continuation, Lease, LeaseCheck, Released};
use std::{ops::ControlFlow, time::Duration};

fn load(tx: &Tx<'_>, lease: &Lease) -> Result<Slot, Fault> {
    Slot::load(tx, &lease.owner, &lease.session)
}

fn still_held(tx: &Tx<'_>, slot: &Slot) -> Result<LeaseCheck, Fault> {
    let status = match slot.now.served_job() {
        Some(job) => docs::job_status(tx, &slot.owner, job)?,
        None => None,
    };
    Ok(LeaseCheck::Yes { cancelled: status.is_some_and(JobStatus::is_terminal) })
}

/// [`crate::store::Store::renew`].
pub(super) fn renew(tx: &mut Tx<'_>, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, Fault> {
    let mut slot = load(tx, lease)?;
    if !slot.now.held_by(lease.epoch) {
        return Ok(LeaseCheck::Fenced);
    }
    slot.now.hold_until(now.plus(ttl));
    slot.save(tx)?;
    still_held(tx, &slot)
}

/// [`crate::store::Store::checkpoint`].
pub(super) fn checkpoint(tx: &mut Tx<'_>, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, Fault> {
    let mut slot = load(tx, lease)?;
    if !slot.now.held_by(lease.epoch) {
        return Ok(LeaseCheck::Fenced);
    }
    // One of a turn that is committed meanwhile is a late repetition.
    if write.turn == slot.now.version + 1 {
        if let Some(reply) = &write.reply {
            tx.put(Space::Core, slot.part(b"r"), reply.to_vec());
            slot.now.checkpointed = true;
        }
        for (index, call) in &write.calls {
            tx.put(Space::Core, layout::call(&slot.owner, &slot.token, *index), call.to_vec());
            slot.now.checkpointed = true;
        }
        for open in &write.open {
            docs::open_job(tx, now, &slot.owner, open)?;
        }
        for entry in &write.outbox {
            outbox::put(tx, now, &slot.owner, entry)?;
        }
        slot.save(tx)?;
    }
    still_held(tx, &slot)
}

/// [`crate::store::Store::commit`].
pub(super) fn commit(tx: &mut Tx<'_>, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, Fault> {
    let mut slot = load(tx, lease)?;
    if slot.now.last == Some((lease.epoch, commit.turn)) {
        let is_held = slot.now.held_by(lease.epoch);
        return Ok(Committed::Done(if is_held { lease::held(tx, now, &mut slot)? } else { given_back_before() }));
    }
    if !slot.now.held_by(lease.epoch) || commit.turn != slot.now.version + 1 {
        return Ok(Committed::Fenced);
    }
    if let Some(job) = &commit.unless_cancelled
        && docs::job_status(tx, &slot.owner, job)?.is_some_and(JobStatus::is_terminal)
    {
        return Ok(Committed::Cancelled);
    }
    let conflicts = docs::conflicts(tx, &slot.owner, &commit.writes)?;
    if !conflicts.is_empty() {
        return Ok(Committed::Conflict(conflicts));
    }
    write_turn(tx, now, &mut slot, commit)?;
    slot.now.version = commit.turn;
    slot.now.touched = now.0;
    slot.now.last = Some((lease.epoch, commit.turn));
    let next = lease::then(tx, now, &mut slot, commit.then)?;
    sweep::gates_changed(tx, now, &lease.owner, &commit.writes)?;
    Ok(Committed::Done(next))
}

fn write_turn(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, commit: &Commit) -> Result<(), Fault> {
    docs::apply(tx, now, &slot.owner, &commit.writes)?;
    let places: Vec<Vec<u8>> = commit.consume.iter().map(|key| layout::place_to_storage(key)).collect();
    slot.consume(tx, &places)?;
    if let Some((job, status)) = &commit.status {
        docs::serve_job(tx, now, &slot.owner, job, *status)?;
    }
    for finish in &commit.finish {
        docs::end_job(tx, now, &slot.owner, finish)?;
    }
    for entry in &commit.outbox {
        outbox::put(tx, now, &slot.owner, entry)?;
    }
    slot.remember(tx, &commit.state)?;
    if slot.now.crashed {
        tx.remove(Space::Core, slot.part(b"x"));
        slot.now.crashed = false;
    }
    slot.now.attempts.clear();
    if slot.now.checkpointed {
        tx.remove(Space::Core, slot.part(b"r"));
        let prefix = slot.part(b"c");
        let mut calls = Vec::new();
        tx.walk(Space::Core, &prefix, &layout::end_of(&prefix), &mut |key, _| {
            calls.push(key.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        for key in calls {
            tx.remove(Space::Core, key);
        }
        slot.now.checkpointed = false;
    }
    Ok(())
}

/// The wakes of that time were handed out with the first answer, or are the sweep's.
const fn given_back_before() -> Continuation {
    Continuation::Released { wakes: Vec::new() }
}

/// [`crate::store::Store::release`].
pub(super) fn release(tx: &mut Tx<'_>, now: Millis, lease: &Lease, then: After) -> Result<Released, Fault> {
    let mut slot = load(tx, lease)?;
    if slot.now.held_by(lease.epoch) {
        return Ok(Released::Done(lease::then(tx, now, &mut slot, then)?));
    }
    // Given back by this holder, and nobody came since: its answer was lost.
    let given_back = slot.now.epoch == lease.epoch;
    Ok(if given_back { Released::Done(given_back_before()) } else { Released::Fenced })
}
