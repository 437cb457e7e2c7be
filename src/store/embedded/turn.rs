//! Stages 3 to 7 for the holder of a lease: renew, checkpoint, commit, release.

use super::docs;
use super::layout::{self, Space};
use super::lease;
use super::mailbox::Slot;
use super::outbox;
use super::sweep;
use super::tx::{Fault, Tx, View};
use crate::domain::job::JobStatus;
use crate::domain::lease::{Claim, Recording, TurnClaim};
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
    let policy = docs::policy_version(tx, &slot.owner)?;
    Ok(LeaseCheck::Yes { cancelled: status.is_some_and(JobStatus::is_terminal), policy })
}

/// Implements [`crate::store::Store::renew`] for the writer.
pub(super) fn renew(tx: &mut Tx<'_>, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, Fault> {
    let mut slot = load(tx, lease)?;
    if !slot.now.renew(lease.epoch, now.plus(ttl)) {
        return Ok(LeaseCheck::Fenced);
    }
    slot.save(tx)?;
    still_held(tx, &slot)
}

/// Implements [`crate::store::Store::checkpoint`] for the writer.
pub(super) fn checkpoint(tx: &mut Tx<'_>, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, Fault> {
    let mut slot = load(tx, lease)?;
    match slot.now.checkpoint(lease.epoch, write.turn) {
        Recording::Fenced => return Ok(LeaseCheck::Fenced),
        Recording::Late => {}
        Recording::Now => record(tx, now, &mut slot, write)?,
    }
    still_held(tx, &slot)
}

fn record(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, write: &Checkpoint) -> Result<(), Fault> {
    if let Some(reply) = &write.reply {
        tx.put(Space::Core, slot.part(b"r"), reply.to_vec());
        slot.now.checkpointed = true;
    }
    for (index, call) in &write.calls {
        let key = layout::call(&slot.owner, &slot.token, *index);
        slot.now.calls += u32::from(tx.get(Space::Core, &key)?.is_none());
        tx.put(Space::Core, key, call.to_vec());
        slot.now.checkpointed = true;
    }
    for open in &write.open {
        docs::open_job(tx, now, &slot.owner, open)?;
    }
    for entry in &write.outbox {
        outbox::put(tx, now, &slot.owner, entry)?;
    }
    docs::apply(tx, now, &slot.owner, &write.writes)?;
    slot.save(tx)?;
    Ok(())
}

/// Implements [`crate::store::Store::commit`] for the writer.
pub(super) fn commit(tx: &mut Tx<'_>, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, Fault> {
    let mut slot = load(tx, lease)?;
    match slot.now.claim_turn(lease.epoch, commit.turn) {
        TurnClaim::Repeated { held: true } => return Ok(Committed::Done(lease::held(tx, now, &mut slot)?)),
        TurnClaim::Repeated { held: false } => return Ok(Committed::Done(given_back_before())),
        TurnClaim::Fenced => return Ok(Committed::Fenced),
        TurnClaim::Next => {}
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
    slot.now.commit(now, commit.turn);
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
    }
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
    }
    Ok(())
}

/// The wakes were returned with the first answer, or the sweep publishes them.
const fn given_back_before() -> Continuation {
    Continuation::Released { wakes: Vec::new() }
}

/// Implements [`crate::store::Store::release`] for the writer.
pub(super) fn release(tx: &mut Tx<'_>, now: Millis, lease: &Lease, then: After) -> Result<Released, Fault> {
    let mut slot = load(tx, lease)?;
    Ok(match slot.now.claim(lease.epoch) {
        Claim::Holds => Released::Done(lease::then(tx, now, &mut slot, then)?),
        // The first answer was lost.
        Claim::GaveBack => Released::Done(given_back_before()),
        Claim::Fenced => {
            lease::acquit(tx, &mut slot, lease.epoch)?;
            Released::Fenced
        }
    })
}
