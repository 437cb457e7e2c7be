//! Re-applies protective changes to a store that was set back.

use super::JournalError;
use super::protect::text_of;
use super::{JournaledStore, ProtectedState, ProtectionRecord, SessionKey, StoreError, keys};
use crate::domain::decode;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::JobStatus;
use crate::domain::protection::larger_account;
use crate::domain::timer::Timer;
use crate::domain::venue_mac::VenueMac;
use crate::store::{
    Doc, DocKey, DocWrite, FinishOutcome, HistoryCheck, JobFinish, OutboxEntry, ParkOutcome, WriteOutcome,
};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Documents per read.
const PAGE: usize = 500;

/// Attempts on a document that others write at the same time.
const TRIES: usize = 5;

/// A record that a check has applied again, or could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedRecord {
    /// The record as the queue has it.
    pub record: ProtectionRecord,
    /// Why it couldn't be applied; `None`: it is in force.
    pub failed: Option<String>,
}

#[async_trait]
impl HistoryCheck for JournaledStore {
    async fn check_history(&self) -> Result<(), StoreError> {
        let names = self.inner.history().await?;
        if names.is_empty() {
            let away = "no server of the store answers: start it, or set `store.url`";
            return Err(JournalError(away.to_owned()).into_store_error());
        }
        if self.is_checked.load(Ordering::SeqCst) && !self.history.is_another(&names) {
            self.history.note_names(names);
            return Ok(());
        }
        let records = self.journal.protections().await.map_err(|error| unreadable_error(&error))?;
        self.force_lost(records).await?;
        self.note_early_losses(&names).await?;
        self.history.note_names(names);
        self.is_checked.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn unreadable_error(error: &JournalError) -> StoreError {
    JournalError(format!("what protects owners can't be read from the queue: {error}")).into_store_error()
}

/// Returns the key of the document that is compared with a record.
fn key_of(what: &ProtectedState) -> DocKey {
    match what {
        ProtectedState::Document { key, .. } | ProtectedState::Spending { key, .. } => key.clone(),
        ProtectedState::End { job, .. } | ProtectedState::Hold { job, .. } => keys::job_status(job),
    }
}

/// Whether the store has what a record says, or something newer.
fn is_known(what: &ProtectedState, doc: &Doc) -> bool {
    let status = doc.status().map(|(status, _)| status);
    match what {
        ProtectedState::Document { key, version, value } => {
            // An answer without its question is of no use, and a lost timer doesn't fire.
            let needs_it = key.starts_with(keys::APPROVALS) || key.starts_with(keys::TIMERS);
            doc.version >= *version || doc.value.is_none() && (value.is_none() || needs_it)
        }
        ProtectedState::Spending { version, .. } => doc.version >= *version,
        // A lost job doesn't run.
        ProtectedState::End { .. } => status.is_none_or(JobStatus::is_terminal),
        ProtectedState::Hold { paused, .. } => {
            status.is_none_or(|status| status.is_terminal() || *paused == (status == JobStatus::Paused))
        }
    }
}

/// Returns the writes that go with a re-applied document: the mark by which an answer is delivered to its session, and
/// a timer's index entries.
fn index_writes(record: &ProtectionRecord, doc: &Doc) -> Vec<DocWrite> {
    let ProtectedState::Document { key, value, .. } = &record.what else { return Vec::new() };
    if let Some(id) = key.strip_prefix(keys::APPROVALS).and_then(|id| JobId::new(id).ok()) {
        let mark = DocWrite::put(keys::answer_due(record.at, &id), "");
        return value.iter().map(|_| mark.clone()).collect();
    }
    if !key.starts_with(keys::TIMERS) {
        return Vec::new();
    }
    let timer = |bytes: &[u8]| decode::read_stored::<Timer>(bytes).ok();
    let mut writes = Vec::new();
    if let Some(before) = doc.value.as_deref().and_then(timer) {
        writes.push(DocWrite::delete(keys::timer_due(before.due, &before.id)));
        writes.push(DocWrite::delete(keys::agent_timer(&before.agent, &before.id)));
    }
    if let Some(ended) = value.as_ref().and_then(|value| timer(value.as_bytes())) {
        writes.push(DocWrite::index_entry(keys::timer_due(ended.due, &ended.id)));
    }
    writes
}

impl JournaledStore {
    /// Compares the policies of all owners with the queue's records, and puts those in force again that are gone from the
    /// store: a deletion behind the venue's back is no other history. Call it now and then.
    pub async fn force_policies(&self) -> Result<(), StoreError> {
        let records = self.journal.document_records(keys::POLICY).await.map_err(|error| unreadable_error(&error))?;
        self.force_lost(records).await
    }

    /// Compares records of the queue with the store, applies what the store has lost, and tells of it.
    async fn force_lost(&self, records: Vec<ProtectionRecord>) -> Result<(), StoreError> {
        let forced = self.force_each(records).await?;
        for ForcedRecord { record, failed } in &forced {
            let (owner, what) = (&record.owner, &record.what);
            match failed {
                None => tracing::warn!(
                    "{owner}: {what}, at {}: the store had lost it, and it is put in force again",
                    record.at.rfc3339()
                ),
                Some(why) => tracing::error!(
                    "{owner}: {what}, at {}: the store has lost it, and it isn't in force: {why}",
                    record.at.rfc3339()
                ),
            }
        }
        self.forced.lock().extend(forced);
        Ok(())
    }

    async fn force_each(&self, records: Vec<ProtectionRecord>) -> Result<Vec<ForcedRecord>, StoreError> {
        let mut by_owner: BTreeMap<Owner, Vec<ProtectionRecord>> = BTreeMap::new();
        for record in records.into_iter().filter(|record| record.is_genuine(&self.key)) {
            by_owner.entry(record.owner.clone()).or_default().push(record);
        }
        let mut forced = Vec::new();
        for (owner, records) in by_owner {
            for page in records.chunks(PAGE) {
                let keys: Vec<_> = page.iter().map(|record| key_of(&record.what)).collect();
                let docs = self.inner.read(&owner, &keys).await?;
                for (record, _) in page.iter().zip(docs).filter(|(record, doc)| !is_known(&record.what, doc)) {
                    forced.extend(self.force_record(record).await?);
                }
            }
        }
        Ok(forced)
    }

    /// Applies one record; `None` if another process did.
    async fn force_record(&self, record: &ProtectionRecord) -> Result<Option<ForcedRecord>, StoreError> {
        for _ in 0..TRIES {
            // Another process may have applied it, and an operator changed it since.
            let newest = self.journal.newest_record(record).await.map_err(|error| unreadable_error(&error))?;
            let Some(record) = newest.filter(|record| record.is_genuine(&self.key)) else { return Ok(None) };
            let doc = self.inner.read(&record.owner, &[key_of(&record.what)]).await?.pop().unwrap_or_default();
            if is_known(&record.what, &doc) {
                return Ok(None);
            }
            match self.apply(&record, &doc).await {
                Ok(true) => return Ok(Some(ForcedRecord { record, failed: None })),
                Ok(false) => {}
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => return Ok(Some(ForcedRecord { record, failed: Some(error.to_string()) })),
            }
        }
        let failed = Some("others change it at the same time".to_owned());
        Ok(Some(ForcedRecord { record: record.clone(), failed }))
    }

    /// Applies a record to `doc`; returns whether it is in force, else the store changed meanwhile.
    async fn apply(&self, record: &ProtectionRecord, doc: &Doc) -> Result<bool, StoreError> {
        let (owner, at) = (&record.owner, record.at);
        let session = |token: &str| {
            let corrupt = |error| super::super::corrupt("session of a record in the queue", &error);
            SessionKey::from_token(token).map_err(corrupt)
        };
        match &record.what {
            ProtectedState::Document { key, value, .. } => {
                let write = match value {
                    Some(value) => DocWrite::put(key.clone(), value.clone()),
                    None => DocWrite::delete(key.clone()),
                };
                self.rewrite(record, write.at_version(doc.version), index_writes(record, doc)).await
            }
            ProtectedState::Spending { key, value, .. } => {
                let merged = larger_account(doc.value.as_deref(), value.as_bytes());
                let Some(merged) = merged else { return Ok(true) };
                self.rewrite(record, DocWrite::put(key.clone(), merged).at_version(doc.version), Vec::new()).await
            }
            ProtectedState::End { session: token, job, status, result, outbox } => {
                let finish = JobFinish { job: job.clone(), status: *status, result: Bytes::from(result.clone()) };
                let entry = |(id, message): &(String, String)| OutboxEntry {
                    id: id.clone(),
                    message: Bytes::from(message.clone()),
                };
                let outbox: Vec<_> = outbox.iter().map(entry).collect();
                let finished = self.inner.finish(at, owner, &session(token)?, &finish, None, &outbox).await?;
                Ok(matches!(finished, FinishOutcome::Done | FinishOutcome::Already(_) | FinishOutcome::Unknown))
            }
            ProtectedState::Hold { session: token, job, paused } => {
                let parked = self.inner.set_job_paused(at, owner, &session(token)?, job, *paused).await?;
                Ok(matches!(parked, ParkOutcome::Done | ParkOutcome::Already(_) | ParkOutcome::Unknown))
            }
        }
    }

    /// Writes the document, and updates the queue's record to its new version: the store counts on from before the
    /// loss.
    async fn rewrite(
        &self,
        record: &ProtectionRecord,
        write: DocWrite,
        others: Vec<DocWrite>,
    ) -> Result<bool, StoreError> {
        let (owner, key) = (&record.owner, write.key.clone());
        let writes: Vec<_> = [write].into_iter().chain(others).collect();
        if self.inner.write(record.at, owner, &writes).await? != WriteOutcome::Done {
            return Ok(false);
        }
        let doc = self.inner.read(owner, &[key]).await?.pop().unwrap_or_default();
        let what = match &record.what {
            ProtectedState::Document { key, value, .. } => {
                ProtectedState::Document { key: key.clone(), version: doc.version, value: value.clone() }
            }
            ProtectedState::Spending { key, .. } => {
                let value = doc.value.as_ref().and_then(text_of).unwrap_or_default();
                ProtectedState::Spending { key: key.clone(), version: doc.version, value }
            }
            other @ (ProtectedState::End { .. } | ProtectedState::Hold { .. }) => other.clone(),
        };
        let told = ProtectionRecord::seal_new(owner.clone(), record.at, what, &self.key);
        self.journal.protect(&told).await.map_err(|error| unreadable_error(&error))?;
        Ok(true)
    }
}
