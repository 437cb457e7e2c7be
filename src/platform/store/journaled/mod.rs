//! A store that records its acknowledged changes in the queue: protective changes before the answer, with their
//! content; all others within a second, by name.
//!
//! ```text
//! call ──▶ store ──▶ protects? ──yes──▶ record in the queue ──▶ answer
//!                        └──no──▶ answer, and an entry of the next batch of the journal
//! ```

mod buffer;
mod compare;
mod force;
mod protect;
mod journal;

use super::{
    AdmissionOutcome, Admit, Amend, AmendOutcome, Amendment, Commit, CommitOutcome, Doc, DocEffect, DocWrite, Expect,
    FinishOutcome, ForgetOutcome, ForgetRequest, Intake, JobFinish, KnownHistory, Layer, Lease, NewJob, OutboxEntry,
    ParkOutcome, SessionSnapshot, SetSessionOutcome, Store, StoreError, WriteOutcome, keys,
};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::journal::{JournalEntry, JournaledChange, content_mark};
use crate::domain::losses::Loss;
use crate::domain::protection::{ProtectedState, ProtectionRecord};
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::domain::venue_mac::VenueMac;
use buffer::EntryBuffer;
pub use compare::{JournalComparison, has_again};
pub use force::ForcedRecord;
pub use journal::{Journal, JournalError, JournalPart};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time between two batches of the journal; an entry follows its answer by up to this.
pub const BATCH_EVERY: Duration = Duration::from_millis(500);

/// How a method's changes are recorded in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalCoverage {
    /// A record before the answer, an entry behind it, or both.
    Recorded,
    /// Not at all, for this reason.
    Skipped(&'static str),
}

/// Every method that changes something; a new method must be added here.
pub const JOURNAL_COVERAGE: [(&str, JournalCoverage); 18] = [
    ("admit", JournalCoverage::Recorded),
    ("renew", JournalCoverage::Skipped("a lease that is lost lapses")),
    ("checkpoint", JournalCoverage::Skipped("it belongs to a turn that is not acknowledged")),
    ("commit", JournalCoverage::Recorded),
    ("release", JournalCoverage::Skipped("a lease that is lost lapses")),
    ("remove_published", JournalCoverage::Skipped("what is published again has the same id")),
    ("finish", JournalCoverage::Recorded),
    ("set_job_paused", JournalCoverage::Recorded),
    ("set_session", JournalCoverage::Recorded),
    ("amend", JournalCoverage::Recorded),
    ("forget", JournalCoverage::Recorded),
    ("sweep", JournalCoverage::Skipped("what is due is due again")),
    ("due_owners", JournalCoverage::Skipped("workers tell anew that they live")),
    ("sign_off", JournalCoverage::Skipped("a worker that is gone falls silent")),
    ("write", JournalCoverage::Recorded),
    ("write_within", JournalCoverage::Recorded),
    ("recount", JournalCoverage::Skipped("it counts what is there")),
    ("register_owner", JournalCoverage::Skipped("an owner with documents is listed again")),
];

/// A store that records in the queue what it acknowledges.
pub struct JournaledStore {
    inner: Arc<dyn Store>,
    journal: Arc<dyn Journal>,
    /// The venue's key, by which forged records are recognised.
    key: Vec<u8>,
    history: KnownHistory,
    /// Whether protective changes were re-applied since this process began.
    is_checked: AtomicBool,
    /// Records that the queue refused.
    unsent: Mutex<Vec<ProtectionRecord>>,
    /// Held for reading while a record is sent, for writing while older ones are sent again.
    sending: tokio::sync::RwLock<()>,
    entries: EntryBuffer,
    /// Records that the last check of the history has applied again.
    forced: Mutex<Vec<ForcedRecord>>,
    /// Turns and session changes that the store lacked before anything ran on it.
    early_losses: Mutex<Vec<(JournalEntry, Loss)>>,
}

impl JournaledStore {
    /// Records in `journal` what `inner` acknowledges; `by` names the process, `key` is the venue's.
    pub fn new(inner: Arc<dyn Store>, journal: Arc<dyn Journal>, by: &str, key: &[u8]) -> Self {
        Self {
            inner,
            journal,
            key: key.to_vec(),
            history: KnownHistory::default(),
            is_checked: AtomicBool::new(false),
            unsent: Mutex::default(),
            sending: tokio::sync::RwLock::default(),
            entries: EntryBuffer::new(by, key),
            forced: Mutex::default(),
            early_losses: Mutex::default(),
        }
    }

    /// Returns the journal since a time, without batches of strangers.
    pub async fn entries_since(&self, at: Millis) -> Result<JournalPart, JournalError> {
        let mut part = self.journal.batches_since(at).await?;
        part.batches.retain(|batch| batch.is_genuine(&self.key));
        Ok(part)
    }

    /// Takes the records that the last check of the history has applied again.
    pub fn take_forced(&self) -> Vec<ForcedRecord> {
        std::mem::take(&mut *self.forced.lock())
    }

    /// Sends waiting entries, and records that the queue refused before. Call it every [`BATCH_EVERY`], and at the end.
    pub async fn flush(&self) -> Result<(), JournalError> {
        if !self.unsent.lock().is_empty() {
            let _telling = self.sending.write().await;
            let untold = self.unsent.lock().clone();
            for record in untold {
                self.journal.protect(&record).await?;
                self.unsent.lock().retain(|other| *other != record);
            }
        }
        self.entries.flush(&*self.journal, &*self.inner).await
    }

    /// Returns how long the oldest entry has waited for the queue.
    pub fn lag(&self, now: Millis) -> Duration {
        self.entries.oldest_time().map_or(Duration::ZERO, |at| now.elapsed_since(at))
    }

    fn note(&self, at: Millis, owner: &Owner, change: JournaledChange) {
        self.entries.push(JournalEntry { at, owner: owner.clone(), change });
    }

    fn note_end(&self, at: Millis, owner: &Owner, finish: &JobFinish) {
        self.note(at, owner, JournaledChange::End { job: finish.job.clone(), status: finish.status });
    }

    fn note_writes(&self, at: Millis, owner: &Owner, writes: &[DocWrite]) {
        for write in writes.iter().filter(|write| keys::is_user_document(&write.key)) {
            let mark = match &write.change {
                DocEffect::Put(bytes) => Some(content_mark(bytes)),
                DocEffect::Delete => None,
                DocEffect::Check => continue,
            };
            let (key, version) = (write.key.clone(), write.expect.next_version());
            self.note(at, owner, JournaledChange::Document { key, mark, version });
        }
    }

    async fn record_writes(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<(), StoreError> {
        self.note_writes(now, owner, writes);
        self.protect_writes(now, owner, writes).await
    }
}

impl Layer for JournaledStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn admit(&self, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreError> {
        let admitted = self.inner.admit(now, request).await?;
        if matches!(admitted.intake, Intake::New | Intake::Duplicate)
            && let Some(event) = &request.event
        {
            let job = event.open.as_ref().map(|open| open.job.clone());
            let (id, session) = (event.id.clone(), request.session.token());
            let repeated = admitted.intake == Intake::Duplicate;
            self.note(now, &request.owner, JournaledChange::Event { id, session, job, repeated });
            if let Some(finish) = &event.finish {
                self.note_end(now, &request.owner, finish);
            }
        }
        Ok(admitted)
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let committed = self.inner.commit(now, lease, commit).await?;
        if matches!(committed, CommitOutcome::Done(_)) {
            let session = lease.session.token();
            self.note(now, &lease.owner, JournaledChange::Turn { session, turn: commit.turn });
            for finish in &commit.finish {
                self.note_end(now, &lease.owner, finish);
            }
            // Turns may create, change and end agents.
            let settings = commit.writes.iter().filter(|write| keys::is_protected_setting(&write.key));
            let settings: Vec<_> = settings.cloned().collect();
            self.protect_writes(now, &lease.owner, &settings).await?;
        }
        Ok(committed)
    }

    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<FinishOutcome, StoreError> {
        let finished = self.inner.finish(now, owner, session, finish, open, outbox).await?;
        if finished == FinishOutcome::Done || finished == FinishOutcome::Already(finish.status) {
            self.note_end(now, owner, finish);
            // A job that is created as refused never ran.
            if open.is_none()
                && let Some(end) = protect::end_record(session, finish, outbox)
            {
                self.protect(now, owner, vec![end]).await?;
            }
        }
        Ok(finished)
    }

    async fn set_job_paused(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<ParkOutcome, StoreError> {
        let parked = self.inner.set_job_paused(now, owner, session, job, pause).await?;
        let is_so = match parked {
            ParkOutcome::Done => true,
            ParkOutcome::Already(status) => pause && status == JobStatus::Paused,
            ParkOutcome::Unknown => false,
        };
        if is_so {
            self.note(now, owner, JournaledChange::Hold { job: job.clone(), paused: pause });
            let hold = ProtectedState::Hold { session: session.token(), job: job.clone(), paused: pause };
            self.protect(now, owner, vec![hold]).await?;
        }
        Ok(parked)
    }

    async fn set_session(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        snapshot: Option<&SessionSnapshot>,
        checks: &[DocWrite],
    ) -> Result<SetSessionOutcome, StoreError> {
        let outcome = self.inner.set_session(now, owner, session, snapshot, checks).await?;
        if outcome == SetSessionOutcome::Done {
            let mark = snapshot.map(|snapshot| content_mark(&snapshot.state));
            let turns = snapshot.map_or(0, |snapshot| snapshot.version);
            self.note(now, owner, JournaledChange::Session { session: session.token(), turns, mark });
        }
        Ok(outcome)
    }

    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<AmendOutcome, StoreError> {
        let amended = self.inner.amend(now, owner, session, amend).await?;
        if amended == AmendOutcome::Done {
            let mark = match &amend.amendment {
                Amendment::State(state) => Some(content_mark(state)),
                Amendment::Remove { .. } => None,
            };
            self.note(now, owner, JournaledChange::Session { session: session.token(), turns: amend.version, mark });
            // The conditions of these writes don't tell the version that they make.
            let writes: Vec<_> =
                amend.writes.iter().map(|write| DocWrite { expect: Expect::Any, ..write.clone() }).collect();
            self.note_writes(now, owner, &writes);
            self.protect_writes(now, owner, &writes).await?;
        }
        Ok(amended)
    }

    async fn forget(&self, now: Millis, owner: &Owner, forget: &ForgetRequest) -> Result<ForgetOutcome, StoreError> {
        let forgotten = self.inner.forget(now, owner, forget).await?;
        if forgotten == ForgetOutcome::Done {
            for resting in &forget.sessions {
                let session = resting.session.token();
                self.note(now, owner, JournaledChange::Session { session, turns: 0, mark: None });
            }
            for key in &forget.documents {
                let is_told = keys::job_of_head(key).is_some()
                    || forget.requested_by_user && forget.documents.first() == Some(key);
                if is_told {
                    let change = JournaledChange::Deletion { key: key.clone(), events: forget.events.clone() };
                    self.note(now, owner, change);
                }
            }
        }
        Ok(forgotten)
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        self.check_sizes(owner, writes).await?;
        let written = self.inner.write(now, owner, writes).await?;
        if written == WriteOutcome::Done {
            self.record_writes(now, owner, writes).await?;
        }
        Ok(written)
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<WriteOutcome, StoreError> {
        self.check_sizes(owner, writes).await?;
        let written = self.inner.write_within(now, owner, writes, quota).await?;
        if written == WriteOutcome::Done {
            self.record_writes(now, owner, writes).await?;
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{METHODS, Repeat};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_method_that_changes_something_is_decided_on() {
        // A backup is a copy, and changes nothing here.
        let changes = METHODS.iter().filter(|method| method.repeat != Repeat::Reads && method.name != "backup");
        let changes: BTreeSet<_> = changes.map(|method| method.name).collect();
        let decided: BTreeSet<_> = JOURNAL_COVERAGE.iter().map(|(name, _)| *name).collect();
        assert_eq!(changes, decided);
    }
}
