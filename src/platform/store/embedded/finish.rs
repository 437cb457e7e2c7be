//! Jobs ended from outside their turn, and documents written from outside turns.

use super::layout::MailRecord;
use super::mailbox::LoadedSession;
use super::outbox;
use super::sweep;
use super::tx::Tx;
use super::view::StoreFault;
use super::{counts, docs};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::store::{
    DocEffect, DocWrite, EventKind, FinishOutcome, JobFinish, NewJob, OutboxEntry, ParkOutcome, WriteOutcome,
};
use std::ops::ControlFlow;

/// A job that ends outside its turn, as [`crate::store::Store::finish`] has it.
pub(super) struct FinishRequest {
    /// Session that may hold the job's task.
    pub(super) session: SessionKey,
    /// Terminal status and result.
    pub(super) finish: JobFinish,
    /// Job to create, should it be unknown.
    pub(super) open: Option<NewJob>,
    /// Messages to publish.
    pub(super) outbox: Vec<OutboxEntry>,
}

/// Implements [`crate::store::Store::finish`] for the writer.
pub(super) fn finish(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    request: &FinishRequest,
) -> Result<FinishOutcome, StoreFault> {
    let FinishRequest { session, finish, open, outbox: messages } = request;
    let mut loaded = LoadedSession::load(tx, owner, session)?;
    match docs::job_status(tx, &loaded.owner, &finish.job)? {
        Some(ended) if ended.is_terminal() => return Ok(FinishOutcome::Already(ended)),
        None if open.is_none() => return Ok(FinishOutcome::Unknown),
        None | Some(_) => {}
    }
    tx.register(&loaded.owner)?;
    if let Some(open) = open {
        docs::open_head(tx, now, &loaded.owner, open)?;
    }
    docs::end_job(tx, now, &loaded.owner, finish)?;
    for message in messages {
        outbox::put(tx, now, &loaded.owner, message)?;
    }
    // A job of an external worker has no task here: its result will be an event of its own.
    let places = job_entries(tx, &loaded, &finish.job)?;
    if !places.is_empty() {
        if loaded.record.end_job(now) {
            loaded.consume(tx, &places)?;
        }
        loaded.save(tx)?;
    }
    Ok(FinishOutcome::Done)
}

/// Implements [`crate::store::Store::set_job_paused`] for the writer.
pub(super) fn set_paused(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    job: &JobId,
    pause: bool,
) -> Result<ParkOutcome, StoreFault> {
    let mut loaded = LoadedSession::load(tx, owner, session)?;
    let Some(status) = docs::job_status(tx, &loaded.owner, job)? else { return Ok(ParkOutcome::Unknown) };
    if status.is_terminal() || pause == (status == JobStatus::Paused) {
        return Ok(ParkOutcome::Already(status));
    }
    docs::set_paused(tx, now, &loaded.owner, job, pause)?;
    if !pause {
        loaded.record.resume_job(now);
        loaded.save(tx)?;
    }
    Ok(ParkOutcome::Done)
}

/// Returns the places of a job's task and of the messages to it.
fn job_entries(tx: &Tx<'_>, loaded: &LoadedSession, job: &JobId) -> Result<Vec<Vec<u8>>, StoreFault> {
    let mut places = Vec::new();
    loaded.walk(tx, &mut |place, bytes| {
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
) -> Result<WriteOutcome, StoreFault> {
    let token = owner.token();
    // Conflicting writes aren't counted: they are decided again on newer documents.
    if docs::conflicts(tx, &token, writes)?.is_empty() {
        let adds = counts::writes_usage(tx, &token, writes)?;
        if let Some(over) = counts::exceeded_quota(tx, &token, quota, &adds)? {
            return Err(StoreFault::Over(over));
        }
    }
    write(tx, now, owner, writes)
}

/// Implements [`crate::store::DocumentStore::write`] for the writer.
pub(super) fn write(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    writes: &[DocWrite],
) -> Result<WriteOutcome, StoreFault> {
    let token = owner.token();
    let conflicts = docs::conflicts(tx, &token, writes)?;
    if !conflicts.is_empty() {
        return Ok(WriteOutcome::Conflict(conflicts));
    }
    if writes.iter().any(|write| matches!(write.change, DocEffect::Put(_))) {
        tx.register(&token)?;
    }
    docs::apply(tx, now, &token, writes)?;
    sweep::wake_for_gates(tx, now, owner, writes)?;
    Ok(WriteOutcome::Done)
}
