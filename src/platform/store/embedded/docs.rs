//! Documents with versions, conditions and tombstones; and the documents of jobs.

use super::counts;
use super::layout::{self, DocRecord, Space};
use super::tx::Tx;
use super::view::{StoreFault, View};
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::store::{Doc, DocConflict, DocEffect, DocWrite, Expect, JobFinish, NewJob, keys};
use std::ops::ControlFlow;
use std::time::Duration;

/// Time for which a deleted document keeps its version, a day: no writer holds an `expect` for longer.
pub(super) const TOMBSTONE_AGE: Duration = Duration::from_hours(24);

fn decode(key: &str, bytes: &[u8]) -> Result<DocRecord, StoreFault> {
    DocRecord::decode(bytes).ok_or_else(|| StoreFault::Record(format!("document `{key}` is damaged")))
}

fn load_record(view: &impl View, owner: &str, key: &str) -> Result<Option<DocRecord>, StoreFault> {
    view.get(Space::Docs, &layout::doc(owner, key))?.map(|bytes| decode(key, &bytes)).transpose()
}

/// Returns the document at `key`; [`Doc::default`] if it was never written.
pub(super) fn get(view: &impl View, owner: &str, key: &str) -> Result<Doc, StoreFault> {
    Ok(load_record(view, owner, key)?.map(|r| r.doc).unwrap_or_default())
}

/// Returns the version of the owner's policy, or of its copy if the policy is missing: then the copy is in force.
pub(super) fn policy_version(view: &impl View, owner: &str) -> Result<u64, StoreFault> {
    match get(view, owner, keys::POLICY)?.version {
        0 => Ok(get(view, owner, keys::POLICY_COPY)?.version),
        version => Ok(version),
    }
}

/// Decodes a document of a scan; `None` if it is deleted.
pub(super) fn decode_present(key: &str, bytes: &[u8]) -> Option<Doc> {
    match decode(key, bytes) {
        Ok(record) => record.doc.value.is_some().then_some(record.doc),
        // A damaged document is listed as an empty one, so that the others are listed.
        Err(_) => Some(Doc::default()),
    }
}

/// Returns the key of the first present document under a prefix.
pub(super) fn first_key(view: &impl View, owner: &str, prefix: &str) -> Result<Option<String>, StoreFault> {
    let (base, from) = (layout::doc(owner, "").len(), layout::doc(owner, prefix));
    let mut found = None;
    view.walk(Space::Docs, &from, &layout::prefix_end(&from), &mut |key, value| {
        if !layout::DocRecord::is_present(value) {
            return Ok(ControlFlow::Continue(()));
        }
        found = key.get(base..).map(|key| String::from_utf8_lossy(key).into_owned());
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Returns the document that a write replaces; a damaged one counts as empty with version 0.
fn get_replaced(tx: &Tx<'_>, owner: &str, key: &str) -> Result<Doc, StoreFault> {
    match get(tx, owner, key) {
        Err(StoreFault::Record(_)) => Ok(Doc { version: 0, value: Some(bytes::Bytes::new()) }),
        found => found,
    }
}

/// Replaces the bytes at `key`; version + 1.
fn put(tx: &mut Tx<'_>, owner: &str, key: &str, bytes: &[u8]) -> Result<(), StoreFault> {
    let old = get_replaced(tx, owner, key)?;
    put_after(tx, owner, key, &old, bytes);
    Ok(())
}

/// Replaces the bytes at `key`, where `old` is the stored document; version + 1.
fn put_after(tx: &mut Tx<'_>, owner: &str, key: &str, old: &Doc, bytes: &[u8]) {
    let length = old.value.as_ref().map(bytes::Bytes::len);
    if let (None, Some(at)) = (length, keys::sweep_time(key)) {
        tx.index_mut().note_due(owner, at.0);
    }
    tx.add_usage(owner, counts::document_change(key, length, Some(bytes.len())));
    tx.put(Space::Docs, layout::doc(owner, key), DocRecord::encode(old.version + 1, Ok(bytes)));
}

/// Deletes the document at `key` if it is present.
pub(super) fn delete(tx: &mut Tx<'_>, now: Millis, owner: &str, key: &str) -> Result<(), StoreFault> {
    let doc = get_replaced(tx, owner, key)?;
    if let Some(value) = &doc.value {
        tx.add_usage(owner, counts::document_change(key, Some(value.len()), None));
        tx.put(Space::Docs, layout::doc(owner, key), DocRecord::encode(doc.version + 1, Err(now.0)));
        tx.put(Space::Core, layout::tombstone(owner, now.0, key), Vec::new());
        tx.index_mut().note_due(owner, now.plus(TOMBSTONE_AGE).0 + 1);
    }
    Ok(())
}

/// Returns the writes whose condition doesn't hold.
pub(super) fn conflicts(view: &impl View, owner: &str, writes: &[DocWrite]) -> Result<Vec<DocConflict>, StoreFault> {
    let mut conflicts = Vec::new();
    for write in writes {
        let Expect::Version(expected) = write.expect else { continue };
        let actual = get(view, owner, &write.key)?.version;
        if actual != expected {
            conflicts.push(DocConflict { key: write.key.clone(), actual });
        }
    }
    Ok(conflicts)
}

/// Applies writes whose conditions hold.
pub(super) fn apply(tx: &mut Tx<'_>, now: Millis, owner: &str, writes: &[DocWrite]) -> Result<(), StoreFault> {
    for write in writes {
        match &write.change {
            DocEffect::Put(bytes) => put(tx, owner, &write.key, bytes)?,
            DocEffect::Delete => delete(tx, now, owner, &write.key)?,
            DocEffect::Check => {}
        }
    }
    Ok(())
}

/// Returns when the oldest tombstone of the owner was written.
pub(super) fn oldest_tombstone(tx: &Tx<'_>, owner: &str) -> Result<Option<Millis>, StoreFault> {
    let prefix = layout::tombstones(owner);
    let mut first = None;
    tx.walk(Space::Core, &prefix, &layout::prefix_end(&prefix), &mut |key, _| {
        first = layout::split_number(&key[prefix.len()..]).map(|(deleted, _)| Millis(deleted));
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// Removes up to `limit` tombstones of documents deleted before `before`.
pub(super) fn remove_tombstones(tx: &mut Tx<'_>, before: Millis, owner: &str, limit: usize) -> Result<(), StoreFault> {
    let prefix = layout::tombstones(owner);
    let mut old = Vec::new();
    tx.walk(Space::Core, &prefix, &layout::tombstone(owner, before.0, ""), &mut |key, _| {
        old.push(key.to_vec());
        Ok(if old.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    for grave in old {
        let Some((deleted, key)) = layout::split_number(&grave[prefix.len()..]) else { continue };
        let key = String::from_utf8_lossy(key);
        // Written or deleted again since: then another entry belongs to it.
        if load_record(tx, owner, &key)?.is_some_and(|r| r.deleted == Some(deleted)) {
            tx.remove(Space::Docs, layout::doc(owner, &key));
        }
        tx.remove(Space::Core, grave);
    }
    Ok(())
}

/// Returns the status of a job; `None` if there is no such job.
pub(super) fn job_status(view: &impl View, owner: &str, job: &JobId) -> Result<Option<JobStatus>, StoreFault> {
    Ok(status_of(view, owner, &keys::job_status(job))?.0)
}

/// Returns the status of a job with its document.
fn status_of(view: &impl View, owner: &str, key: &str) -> Result<(Option<JobStatus>, Doc), StoreFault> {
    let doc = get(view, owner, key)?;
    let Some(bytes) = &doc.value else { return Ok((None, doc)) };
    // A job whose status can't be read counts as open until a turn sets it; the audit names it.
    Ok((keys::decode_status(bytes).map(|(status, _)| status), doc))
}

/// Sets a job's status if `may` allows it for the one before; returns whether it did.
pub(super) fn set_status(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &str,
    job: &JobId,
    status: JobStatus,
    may: impl FnOnce(Option<JobStatus>) -> bool,
) -> Result<bool, StoreFault> {
    let key = keys::job_status(job);
    let (before, old) = status_of(tx, owner, &key)?;
    if !may(before) {
        return Ok(false);
    }
    put_after(tx, owner, &key, &old, keys::encode_status(status, now).as_bytes());
    Ok(true)
}

/// Sets the status of an open job as its turn commits it; for a paused job, the status that it resumes with.
pub(super) fn set_turn_status(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &str,
    job: &JobId,
    status: JobStatus,
) -> Result<(), StoreFault> {
    let key = keys::job_status(job);
    match status_of(tx, owner, &key)? {
        (Some(JobStatus::Paused), old) => {
            put_after(tx, owner, &key, &old, keys::encode_paused(status, now).as_bytes());
        }
        (Some(ended), _) if ended.is_terminal() => {}
        (_, old) => put_after(tx, owner, &key, &old, keys::encode_status(status, now).as_bytes()),
    }
    Ok(())
}

/// Pauses an open job, or resumes a paused one.
pub(super) fn set_paused(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &str,
    job: &JobId,
    pause: bool,
) -> Result<(), StoreFault> {
    let key = keys::job_status(job);
    let old = get(tx, owner, &key)?;
    let line = old.value.clone().unwrap_or_default();
    let line = if pause {
        let (before, _) = keys::decode_status(&line).unwrap_or((JobStatus::Pending, now));
        keys::encode_paused(before, now)
    } else {
        keys::encode_status(keys::status_before(&line).unwrap_or(JobStatus::Pending), now)
    };
    put_after(tx, owner, &key, &old, line.as_bytes());
    Ok(())
}

/// Writes a job's head and its place in the list, unless it exists.
pub(super) fn open_head(tx: &mut Tx<'_>, now: Millis, owner: &str, new: &NewJob) -> Result<(), StoreFault> {
    let key = keys::job_head(&new.job);
    let head = get(tx, owner, &key)?;
    if head.value.is_none() {
        put_after(tx, owner, &key, &head, &new.head);
        put(tx, owner, &keys::job_list_entry(now, &new.job), b"")?;
        if let Some(parent) = &new.parent {
            put(tx, owner, &keys::job_child(parent, &new.job), b"")?;
        }
    }
    Ok(())
}

/// Opens a job as `PENDING`; documents that exist already stay.
pub(super) fn open_job(tx: &mut Tx<'_>, now: Millis, owner: &str, new: &NewJob) -> Result<(), StoreFault> {
    open_head(tx, now, owner, new)?;
    set_status(tx, now, owner, &new.job, JobStatus::Pending, |before| before.is_none())?;
    Ok(())
}

/// Ends a job unless it has ended; returns whether it did.
pub(super) fn end_job(tx: &mut Tx<'_>, now: Millis, owner: &str, finish: &JobFinish) -> Result<bool, StoreFault> {
    let open = |before: Option<JobStatus>| !before.is_some_and(JobStatus::is_terminal);
    if !set_status(tx, now, owner, &finish.job, finish.status, open)? {
        return Ok(false);
    }
    put(tx, owner, &keys::job_result(&finish.job), &finish.result)?;
    Ok(true)
}
