//! Records of protective changes, made of acknowledged ones.

use super::JournalError;
use super::{
    Doc, DocEffect, DocWrite, JobFinish, JournaledStore, Millis, OutboxEntry, Owner, ProtectedState, ProtectionRecord,
    SessionKey, StoreError, keys,
};
use crate::domain::approval::Approval;
use crate::domain::bounds::{AGENT_BYTES, OversizedDocument};
use crate::domain::decode;
use crate::domain::timer::{Timer, TimerPhase};
use bytes::Bytes;
use futures::{StreamExt, stream};

/// Records sent concurrently.
const AT_ONCE: usize = 32;

/// Attempts to record a document that others write at the same time; their own records follow.
const TRIES: usize = 5;

/// Bytes below which a document fits a message whatever it contains: a byte takes at most six there.
const SURELY_FITS: usize = 100_000;

/// Returns the record of the end of a job from outside its turns, without its output if that fits no message.
pub(super) fn end_record(session: &SessionKey, finish: &JobFinish, outbox: &[OutboxEntry]) -> Option<ProtectedState> {
    let message = |entry: &OutboxEntry| Some((entry.id.clone(), text_of(&entry.message)?));
    let messages: Option<Vec<_>> = outbox.iter().map(message).collect();
    let (result, outbox) = (text_of(&finish.result)?, messages?);
    let end = ProtectedState::End {
        session: session.token(),
        job: finish.job.clone(),
        status: finish.status,
        result,
        outbox,
    };
    Some(if end.fits_message() { end } else { end.without_output() })
}

/// Whether a message of the queue can hold this document.
fn fits_message(key: &str, bytes: &Bytes) -> bool {
    bytes.len() < SURELY_FITS
        || text_of(bytes).is_none_or(|text| {
            ProtectedState::Document { key: key.to_owned(), version: u64::MAX, value: Some(text) }.fits_message()
        })
}

impl JournaledStore {
    /// Refuses protective settings that the queue can't hold: a loss of the store would undo them. If the stored
    /// document is as large already (from an older build), the write is allowed, above all to stop or to shorten it.
    pub(super) async fn check_sizes(&self, owner: &Owner, writes: &[DocWrite]) -> Result<(), StoreError> {
        for write in writes.iter().filter(|write| keys::is_protected_setting(&write.key)) {
            let DocEffect::Put(bytes) = &write.change else { continue };
            if fits_message(&write.key, bytes) {
                continue;
            }
            let before = self.inner.read(owner, std::slice::from_ref(&write.key)).await?.pop();
            if before.and_then(|doc| doc.value).is_none_or(|value| fits_message(&write.key, &value)) {
                return Err(StoreError::Oversized(OversizedDocument {
                    what: format!("document `{}` of `{owner}`", write.key),
                    bytes: bytes.len(),
                    most: AGENT_BYTES,
                    advice: "the queue can't keep it against a loss of the store; make it shorter",
                }));
            }
        }
        Ok(())
    }

    /// Sends records to the queue; returns when it has stored all of them.
    pub(super) async fn protect(&self, at: Millis, owner: &Owner, what: Vec<ProtectedState>) -> Result<(), StoreError> {
        let (what, large): (Vec<_>, Vec<_>) = what.into_iter().partition(ProtectedState::fits_message);
        for what in large {
            tracing::warn!(%owner, "{what}, and it is too large for the queue: a loss of the store may undo it; make it shorter");
        }
        let records = what.into_iter().map(|what| ProtectionRecord::seal_new(owner.clone(), at, what, &self.key));
        let _telling = self.sending.read().await;
        let told = stream::iter(records).map(|record| async {
            self.unsent.lock().retain(|other| !other.has_subject_of(&record));
            let told = self.journal.protect(&record).await;
            (record, told)
        });
        let told: Vec<_> = told.buffered(AT_ONCE).collect().await;
        let mut failed: Option<JournalError> = None;
        for (record, told) in told {
            if let Err(error) = told {
                self.unsent.lock().push(record);
                failed = Some(error);
            }
        }
        match failed {
            None => Ok(()),
            Some(error) => Err(JournalError(format!(
                "the change is stored and may be in force already, but the queue, which keeps it against a loss of the store, \
                 didn't take it ({error}); make it again, until it is answered"
            ))
            .into_store_error()),
        }
    }

    /// Records documents. Another process may have written one meanwhile and recorded it first: then the newest version
    /// is recorded behind it.
    async fn protect_documents(
        &self,
        now: Millis,
        owner: &Owner,
        mut documents: Vec<ProtectedState>,
    ) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let versioned = |what: &ProtectedState| match what {
                ProtectedState::Document { key, version, .. } | ProtectedState::Spending { key, version, .. } => {
                    Some((key.clone(), *version))
                }
                ProtectedState::End { .. } | ProtectedState::Hold { .. } => None,
            };
            let told: Vec<_> = documents.iter().filter_map(versioned).collect();
            if told.is_empty() {
                return Ok(());
            }
            self.protect(now, owner, std::mem::take(&mut documents)).await?;
            let keys: Vec<_> = told.iter().map(|(key, _)| key.clone()).collect();
            let docs = self.inner.read(owner, &keys).await?;
            let newer = told.into_iter().zip(docs).filter(|((_, version), doc)| doc.version > *version);
            documents = newer.filter_map(|((key, _), doc)| document_record(key, &doc)).collect();
        }
        Ok(())
    }

    /// Records the protective ones of these writes. A failure for accounts of what is spent is only logged: a paid call
    /// goes on, and the record is sent again when the queue is back.
    pub(super) async fn protect_writes(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
    ) -> Result<(), StoreError> {
        let mut spending = Vec::new();
        let mut unknown = Vec::new();
        let mut documents = Vec::new();
        for write in writes {
            let (key, version) = (write.key.clone(), write.expect.next_version());
            let value = match &write.change {
                DocEffect::Put(bytes) => text_of(bytes),
                DocEffect::Delete => None,
                DocEffect::Check => continue,
            };
            if keys::is_spending(&key) {
                if let (Some(value), Some(version)) = (value, version) {
                    spending.push(ProtectedState::Spending { key, version, value });
                }
            } else if is_protective(write) {
                match (value, version) {
                    (Some(value), Some(version)) => {
                        documents.push(ProtectedState::Document { key, version, value: Some(value) });
                    }
                    (_, None) | (None, _) => unknown.push(key),
                }
            }
        }
        if !spending.is_empty() && self.protect_documents(now, owner, spending).await.is_err() {
            tracing::warn!(%owner, "the queue doesn't know yet what is spent; it is told again");
        }
        if !unknown.is_empty() {
            let docs = self.inner.read(owner, &unknown).await?;
            documents.extend(unknown.into_iter().zip(docs).filter_map(|(key, doc)| document_record(key, &doc)));
        }
        self.protect_documents(now, owner, documents).await
    }
}

/// Returns a stored value as text; `None` if it isn't UTF-8.
pub(super) fn text_of(value: &Bytes) -> Option<String> {
    str::from_utf8(value).ok().map(str::to_owned)
}

/// Returns the record of a document; `None` if its value isn't text.
fn document_record(key: String, doc: &Doc) -> Option<ProtectedState> {
    let value = match &doc.value {
        Some(value) => Some(text_of(value)?),
        None => None,
    };
    if keys::is_spending(&key) {
        return Some(ProtectedState::Spending { key, version: doc.version, value: value? });
    }
    Some(ProtectedState::Document { key, version: doc.version, value })
}

/// Whether a write is of an answered approval: a rejection forbids a call.
fn is_answered(write: &DocWrite) -> bool {
    let DocEffect::Put(bytes) = &write.change else { return false };
    decode::read_stored::<Approval>(bytes).is_ok_and(|approval| approval.answer.is_some())
}

/// Whether a write is of a cancelled timer.
fn is_cancelled(write: &DocWrite) -> bool {
    let DocEffect::Put(bytes) = &write.change else { return false };
    decode::read_stored::<Timer>(bytes).is_ok_and(|timer| timer.phase == TimerPhase::Cancelled)
}

/// Whether a write outside turns is protective: it is of a policy, a quota, a gate or a secret, answers an approval,
/// cancels a timer, or erases.
fn is_protective(write: &DocWrite) -> bool {
    let key = write.key.as_str();
    let is_erased = |mark: &str| match &write.change {
        DocEffect::Put(bytes) => std::str::from_utf8(bytes).is_ok_and(|text| text.contains(mark)),
        DocEffect::Delete => true,
        DocEffect::Check => false,
    };
    let deletes = matches!(write.change, DocEffect::Delete);
    keys::is_protected_setting(key)
        || key.starts_with(keys::APPROVALS) && is_answered(write)
        || key.starts_with(keys::TIMERS) && is_cancelled(write)
        || keys::is_turn_record(key) && !deletes && is_erased("\"erased\":true")
        || key.starts_with("j/") && !deletes && is_erased(crate::domain::lines::ERASED.text())
        || ["p.t/", "p/", "dead/", "h/", "m/", "r/"].iter().any(|prefix| key.starts_with(prefix)) && deletes
}
