//! Jobs ended from outside their turn, and documents written from outside turns.

use super::layout::MailRecord;
use super::mailbox::Slot;
use super::outbox;
use super::sweep;
use super::tx::{Fault, Tx};
use super::{counts, docs};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::quota::{Over, Quota};
use crate::domain::time::Millis;
use crate::store::{Change, DocWrite, EventKind, Finished, JobFinish, NewJob, OutboxEntry, OutsideWrite, Parked};
use std::ops::ControlFlow;

/// Implements [`crate::store::Store::finish`] for the writer.
pub(super) fn finish(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    finish: &JobFinish,
    open: Option<&NewJob>,
    messages: &[OutboxEntry],
) -> Result<Finished, Fault> {
    let mut slot = Slot::load(tx, owner, session)?;
    match docs::job_status(tx, &slot.owner, &finish.job)? {
        Some(ended) if ended.is_terminal() => return Ok(Finished::Already(ended)),
        None if open.is_none() => return Ok(Finished::Unknown),
        None | Some(_) => {}
    }
    tx.register(&slot.owner)?;
    if let Some(open) = open {
        docs::open_head(tx, now, &slot.owner, open)?;
    }
    docs::end_job(tx, now, &slot.owner, finish)?;
    for message in messages {
        outbox::put(tx, now, &slot.owner, message)?;
    }
    // A job of an external worker has no task here: its result will be an event of its own.
    let places = entries_of(tx, &slot, &finish.job)?;
    if !places.is_empty() {
        if slot.now.end_job(now) {
            slot.consume(tx, &places)?;
        }
        slot.save(tx)?;
    }
    Ok(Finished::Done)
}

/// Implements [`crate::store::Store::park`] for the writer.
pub(super) fn park(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    job: &JobId,
    pause: bool,
) -> Result<Parked, Fault> {
    let mut slot = Slot::load(tx, owner, session)?;
    let Some(status) = docs::job_status(tx, &slot.owner, job)? else { return Ok(Parked::Unknown) };
    if status.is_terminal() || pause == (status == JobStatus::Paused) {
        return Ok(Parked::Already(status));
    }
    docs::park(tx, now, &slot.owner, job, pause)?;
    if !pause {
        slot.now.resume_job(now);
        slot.save(tx)?;
    }
    Ok(Parked::Done)
}

/// Returns the places of a job's task and of the messages to it.
fn entries_of(tx: &Tx<'_>, slot: &Slot, job: &JobId) -> Result<Vec<Vec<u8>>, Fault> {
    let mut places = Vec::new();
    slot.walk(tx, &mut |place, bytes| {
        let record = MailRecord::decode(bytes).filter(|r| r.kind != EventKind::Result);
        if record.is_some_and(|r| r.job.as_ref() == Some(job)) {
            places.push(place.as_bytes().to_vec());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(places)
}

/// Implements [`crate::store::DocumentStore::write_within`] for the writer.
pub(super) fn write_within(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    writes: &[DocWrite],
    quota: &Quota,
) -> Result<Result<OutsideWrite, Over>, Fault> {
    let token = owner.token();
    // Conflicting writes aren't counted: they are decided again on newer documents.
    if docs::conflicts(tx, &token, writes)?.is_empty() {
        let adds = counts::of_writes(tx, &token, writes)?;
        if let Err(over) = counts::admits(tx, &token, quota, &adds)? {
            return Ok(Err(over));
        }
    }
    write(tx, now, owner, writes).map(Ok)
}

/// Implements [`crate::store::DocumentStore::write`] for the writer.
pub(super) fn write(tx: &mut Tx<'_>, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<OutsideWrite, Fault> {
    let token = owner.token();
    let conflicts = docs::conflicts(tx, &token, writes)?;
    if !conflicts.is_empty() {
        return Ok(OutsideWrite::Conflict(conflicts));
    }
    if writes.iter().any(|write| matches!(write.change, Change::Put(_))) {
        tx.register(&token)?;
    }
    docs::apply(tx, now, &token, writes)?;
    sweep::gates_changed(tx, now, owner, writes)?;
    Ok(OutsideWrite::Done)
}
