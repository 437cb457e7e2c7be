//! Seam 1, [`Store`]: every atomic step on an event's path from its arrival to the outbox, one method each.
//!
//! | trait | its methods |
//! |---|---|
//! | [`Store`] | the steps of events, leases, turns and jobs |
//! | [`DocumentStore`] | versioned documents outside turns |
//! | [`Accounts`] | what an owner keeps, its quota, and the users of a tenant |
//! | [`StoreInspection`] | reads of everything stored, for sweeps, audits, doctors and operators |
//!
//! An owner is a set of versioned documents plus the protocol's own state (sessions, mailboxes, leases, due times,
//! outbox). All of it lies in one atomic unit, so each method that changes something changes all or nothing. Values are
//! opaque bytes here: no backend decodes user data.
//!
//! Time: `now` is an argument. The Redis backend uses the server's clock instead, unless it was opened with an injected
//! one, because the clocks of a fleet differ.
//!
//! The doc of every method says what a second call with the same arguments does ([`Repeat`]): a caller that got
//! [`StoreError::Unavailable`] doesn't know whether the first call was applied.

mod amend;
mod docs;
pub mod embedded;
pub mod faulty;
mod fill;
mod forget;
mod history;
pub mod journaled;
pub mod keys;
mod large;
mod layer;
pub mod measured;
mod outcomes;
pub mod patient;
pub mod policies;
pub mod redis;
pub mod steps;
mod sweep_result;
pub mod ack_log;
pub mod tenants;
mod types;
mod usage;

use crate::domain::bounds::OversizedDocument;
use crate::domain::decode::read_stored;
use crate::domain::ids::{AgentId, JobId, Owner, OwnerPart, SessionKey};
use crate::domain::quota::{Quota, QuotaExceeded, QuotaUsage};
use crate::domain::tenant_users::TenantFull;
use crate::domain::time::Millis;
use crate::process::retry::AttemptFailure;
use async_trait::async_trait;
use layer::seam;
use std::time::Duration;

pub use crate::domain::event::EventKind;
pub use crate::domain::lease::LeaseUse;
pub use amend::*;
pub use docs::*;
pub use fill::{Fill, FillLevel};
pub use forget::*;
pub use history::{HistoryCheck, KnownHistory};
pub use layer::{Repeat, StoreMethod};
pub use outcomes::*;
pub use sweep_result::{DueOwners, SweepResult};
pub use types::*;
pub use usage::*;

/// Why a store call returned no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store can't be reached, is loading or timed out. The call may or may not have been applied; the [`Repeat`]
    /// of its method says what a second call does.
    #[error("store `{store}` is unavailable: {reason}")]
    Unavailable {
        /// Address of the store, without credentials.
        store: String,
        /// Error text of the driver.
        reason: String,
    },
    /// The store is at its memory or disk limit; the call was not applied.
    #[error("store `{store}` is full: {reason}")]
    Full {
        /// Address of the store, without credentials.
        store: String,
        /// What is full, and how to make room.
        reason: String,
    },
    /// The owner's quota has no room for the write; it was not applied, and a second call won't help.
    #[error("{0}")]
    Over(QuotaExceeded),
    /// The owner's tenant has as many users as it may, and the owner is none of them; nothing was written, and a second
    /// call won't help.
    #[error("{0}")]
    TenantFull(TenantFull),
    /// A document that protects an owner, such as its policy, is over the size limit; the call was not applied, and a
    /// second one won't help.
    #[error("{0}")]
    Oversized(OversizedDocument),
    /// Concurrent writers won every try; nothing was written, and a second call can help.
    #[error("{what} is being changed by others; try again")]
    Contended {
        /// Kind and name of the contended thing.
        what: String,
    },
    /// The record is damaged or the code has a bug; a second call won't help.
    #[error(
        "store `{store}` returned an invalid record or reply: {}{reason}",
        .record.as_ref().map(|record| format!("{record}: ")).unwrap_or_default()
    )]
    Corrupt {
        /// Address of the store, or `documents`.
        store: String,
        /// The record, if it is known by name.
        record: Option<DamagedRecord>,
        /// What is wrong.
        reason: String,
    },
}

/// Name of a record that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamagedRecord {
    /// Document with this key.
    Document(String),
    /// Part of a session, by this name.
    SessionPart(String),
}

impl std::fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Document(key) => write!(f, "`{key}`"),
            Self::SessionPart(name) => f.write_str(name),
        }
    }
}

impl StoreError {
    /// Whether a second call can help.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Full { .. } | Self::Contended { .. })
    }

    /// Returns the record that can't be read, in words and without its content; `None` if the error is another one.
    pub fn damaged_record(&self) -> Option<String> {
        let Self::Corrupt { record, reason, .. } = self else { return None };
        Some(match record {
            Some(DamagedRecord::Document(key)) => format!("document `{key}` can't be read"),
            Some(DamagedRecord::SessionPart(name)) => format!("the session's `{name}` can't be read"),
            None => reason.clone(),
        })
    }
}

impl From<StoreError> for AttemptFailure<StoreError> {
    fn from(error: StoreError) -> Self {
        if error.is_transient() { Self::Transient(error) } else { Self::Permanent(error) }
    }
}

/// Decodes the document at `key`; [`StoreError::Corrupt`] names the key.
pub fn decode<T: serde::de::DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    read_stored(bytes).map_err(|error| corrupt(key, &error))
}

/// Decodes the document at `key` for a list. A damaged one is left out, so that the others are listed: a warning names it,
/// and the audit does.
pub fn decode_listed<T: serde::de::DeserializeOwned>(owner: &Owner, key: &str, bytes: &[u8]) -> Option<T> {
    decode(key, bytes).inspect_err(|error| warn_left_out(owner, key, error)).ok()
}

/// Returns what was read of the document at `key` for a list; `None`, with the same warning, if it is damaged.
pub fn skip_damaged<T>(owner: &Owner, key: &str, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(error) if !error.is_transient() => {
            warn_left_out(owner, key, &error);
            Ok(None)
        }
        read => read.map(Some),
    }
}

fn warn_left_out(owner: &Owner, key: &str, error: &StoreError) {
    tracing::warn!(%owner, key, %error, "a damaged document is left out of a list");
}

/// Returns the error for a document at `key` that can't be decoded.
pub fn corrupt(key: &str, error: &impl std::fmt::Display) -> StoreError {
    let record = Some(DamagedRecord::Document(key.to_owned()));
    StoreError::Corrupt { store: "documents".into(), record, reason: error.to_string() }
}

seam! {
/// Every durable step of an event's path.
pub trait Store: DocumentStore + Accounts + StoreInspection {
    /// Admits an event into its session's mailbox, once per (owner, event id), and tries to acquire the lease.
    ///
    /// After it the event is durable, its job is `PENDING` and the session is due within 5 s. After a crash
    /// before it the event is delivered again; after a crash behind it, too, and the answer is `Duplicate`.
    /// The order of checks is: duplicate, agent known and not terminated, busy policy and
    /// mailbox limit (tasks and messages only), quota, append, lease. `Run` marks the served events'
    /// jobs `STARTED`, and counts a crash on the events of a lease that lapsed unreleased; at
    /// `crash_limit` the served task's job becomes `FAILED`/`DEAD` here.
    ///
    /// A second call with the token of the grant that holds the session returns that grant again: the same epoch,
    /// a new time to live, everything else as it is stored, and no crash counted. The same holds for a lapsed lease
    /// that was neither released nor acquired by another worker.
    #[repeat(Idempotent)]
    async fn admit(&self, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreError>;

    /// Extends a lease. After a crash before it the lease lapses, and another worker continues.
    #[repeat(Idempotent)]
    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, StoreError>;

    /// Records a reply, intents, outcomes and child jobs of the running turn, and documents that outlive its session.
    ///
    /// A successor finds them in its grant. A checkpoint of a turn that is already committed changes nothing. A second
    /// call writes the same documents again.
    #[repeat(Idempotent)]
    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError>;

    /// Commits a turn, all of it or nothing, and clears the checkpoint and the crash counts.
    ///
    /// After a crash before it only the checkpoint of the turn exists. After a crash behind it the whole turn exists,
    /// and the holder or a sweep publishes the outbox. A release also wakes sessions that wait for the slot.
    /// A second call by the holder returns `Done` without the wakes of the first.
    #[repeat(Idempotent)]
    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError>;

    /// Releases a lease without a commit (idle, parked, backing off, shutting down), and wakes sessions that wait for
    /// the slot.
    ///
    /// After a crash before it the lease lapses, which counts a crash. A second call returns `Done` without the wakes
    /// of the first, until another worker acquires the lease; then it returns `Fenced`.
    ///
    /// `Fenced` takes back the crash that the lapse of this lease counted, if that is the last one counted: a holder
    /// that calls has not crashed.
    #[repeat(Idempotent)]
    async fn release(&self, now: Millis, lease: &Lease, then: LeaseUse) -> Result<ReleaseOutcome, StoreError>;

    /// Removes published outbox entries; absent ones are ignored. After a crash before it they are published again,
    /// under the same ids.
    #[repeat(Idempotent)]
    async fn remove_published(&self, owner: &Owner, ids: &[String]) -> Result<(), StoreError>;

    /// Ends a job from outside its turn (cancel, pause timeout, refusal with `open`).
    ///
    /// The status is final. The job's mailbox entry is removed at once when no live lease serves the session, else by
    /// the holder; the session is due at once and its backoff ends. Without such an entry the session stays as it is.
    /// `outbox` is written in the same step. With `open`, an unknown job is created in that status. A second call
    /// returns `Already`.
    #[repeat(Idempotent)]
    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<FinishOutcome, StoreError>;

    /// Pauses an open job, or resumes a paused one.
    ///
    /// No lease hands out the task of a paused job in any other status, whatever a running turn commits, and no crash
    /// counts against it. A resumed job gets the status that it would have had, and its session is due at once; if a
    /// live lease holds the session, it is due when that lease ends. A crash before it changes nothing. A second call
    /// returns `Already`.
    #[repeat(Idempotent)]
    async fn set_job_paused(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<ParkOutcome, StoreError>;

    /// Puts a session without turns and events at a turn with a state, or (`None`) removes a session: its turn count,
    /// state, mailbox and place in the queue go; its jobs and documents stay.
    ///
    /// From then on the owner's sessions begin with a higher fencing token, so that no earlier holder can write.
    /// Where one of `checks` ([`DocWrite::check`]) doesn't hold, nothing changes. The removal of an absent session
    /// returns `Done`.
    #[repeat(Idempotent)]
    async fn set_session(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        snapshot: Option<&SessionSnapshot>,
        checks: &[DocWrite],
    ) -> Result<SetSessionOutcome, StoreError>;

    /// Replaces the state of a session, or removes the session, together with documents, between its turns.
    ///
    /// Nothing changes when a worker holds the session (one that died with it included) or when the session differs
    /// from what the caller read: the commit of a running turn would overwrite the change. No earlier holder of a
    /// removed session can write.
    #[repeat(Idempotent)]
    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<AmendOutcome, StoreError>;

    /// Forgets what retention is over for: deletes documents, makes event ids count as never seen, drops resting
    /// sessions (no mail, lease, due time or place in a queue, and the same arrivals as the caller read), and writes
    /// off events that were lost from a mailbox.
    ///
    /// When one of the sessions doesn't rest or got an event meanwhile, nothing changes. An event with a forgotten
    /// id is new. A forgotten session begins at turn 0, and no earlier holder can write: the owner's sessions begin
    /// behind the highest fencing token ever forgotten. After a crash before it everything is still there and is found
    /// again. A second call also forgets what was written again in between.
    #[repeat(Once)]
    async fn forget(&self, now: Millis, owner: &Owner, forget: &ForgetRequest) -> Result<ForgetOutcome, StoreError>;

    /// Returns one owner's overdue work; also wakes the next waiting session of agents with free capacity.
    ///
    /// `grace` is the time before the same work is handed out again: a second call within it doesn't return it. The
    /// first document under each of [`keys::SWEPT`] shows whether there is other work, so that an owner with nothing
    /// to do costs one call. [`Store::due_owners`] doesn't name the owner until [`SweepResult::next`], or until a write makes
    /// it due earlier.
    #[repeat(Once)]
    async fn sweep(&self, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<SweepResult, StoreError>;

    /// Registers `worker` as alive for 1.5 times `horizon` (at most 30 s), and returns the owners in its share of the
    /// shards at which something is due within `horizon`, at most `limit` per shard.
    ///
    /// The write that makes something due also makes its owner due, so that owners with nothing to do cost nothing.
    #[repeat(Idempotent)]
    async fn due_owners(&self, now: Millis, worker: &str, horizon: Duration, limit: u32) -> Result<DueOwners, StoreError>;

    /// Removes `worker` from the registry: with their next [`Store::due_owners`] the other workers take its share. After a
    /// crash before it they take the share when the registration expires.
    #[repeat(Idempotent)]
    async fn sign_off(&self, worker: &str) -> Result<(), StoreError>;
}

/// An owner's versioned documents, outside turns.
pub trait DocumentStore {
    /// Returns documents by key, in the order of `keys`; absent ones have version 0. All are of one consistent state.
    #[repeat(Reads)]
    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError>;

    /// Returns the present documents whose key starts with `prefix`, bytewise after `after`, in key order (`reverse`:
    /// before `after`, in reverse order), at most `limit`.
    #[repeat(Reads)]
    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError>;

    /// Returns a page of the present documents whose key starts with `prefix`, and how many there are, of one
    /// consistent state. It reads no bytes of documents outside the page.
    #[repeat(Reads)]
    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<DocPage, StoreError>;

    /// Writes documents, all or none; the first write that puts something registers the owner.
    ///
    /// A second call meets the versions that the first wrote: expected versions conflict, and unconditional writes
    /// overwrite whatever was written in between.
    #[repeat(Once)]
    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError>;

    /// [`DocumentStore::write`] under a quota: refused with [`StoreError::Over`] when the owner would keep more than
    /// its quota allows. A quota that operators set for the owner takes precedence over `quota`.
    #[repeat(Once)]
    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<WriteOutcome, StoreError>;
}

/// What owners keep, their quotas, the users of tenants, and how full the store is.
pub trait Accounts {
    /// Returns the usage of an owner, as writes and deletions have counted it, and the quota that operators set for it.
    #[repeat(Reads)]
    async fn usage(&self, owner: &Owner) -> Result<OwnerUsage, StoreError>;

    /// Returns the usage of several owners, in the order of `owners`; each is read by itself.
    #[repeat(Reads)]
    async fn usages(&self, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError>;

    /// Runs one step of a recount of what an owner keeps, exact under concurrent writes; the last step returns the
    /// result and, with `mend`, stores it. The store counts on its own what was written before it had counters.
    ///
    /// After a crash before it the recount continues with the next call. A second call is the next step; after the last
    /// step a new recount begins.
    #[repeat(Once)]
    async fn recount(&self, owner: &Owner, mend: bool) -> Result<Recount, StoreError>;

    /// Puts an owner on the list of owners, unless its tenant has `most` users there, who are counted in the same step.
    ///
    /// An owner that is on the list, or has documents, is `Listed`. The owner of a tenant's shared documents is no user.
    /// After a crash before it nothing is changed; an owner that is listed and writes nothing stays on the list.
    #[repeat(Idempotent)]
    async fn register_owner(&self, owner: &Owner, most: u64) -> Result<OwnerRegistration, StoreError>;

    /// Returns the number of a tenant's users on the list of owners.
    #[repeat(Reads)]
    async fn tenant_users(&self, tenant: &OwnerPart) -> Result<u64, StoreError>;

    /// Returns how full the store is, measured at most one second before the steady time `now`. A level that can't be
    /// measured is no error: it has no limit.
    #[repeat(Reads)]
    async fn fill(&self, now: Duration) -> Result<Fill, StoreError>;
}

/// Reads of everything that is stored, for sweeps, audits, doctors and operators. No step of an event needs it.
pub trait StoreInspection {
    /// Returns known owners after `after`, sorted, at most `limit`. A shorter page is the last.
    #[repeat(Reads)]
    async fn owners(&self, after: Option<&Owner>, limit: usize) -> Result<Vec<Owner>, StoreError>;

    /// Returns sessions of an agent, or of all agents, after `after`, sorted, at most `limit`; their mailboxes have no
    /// bodies. A shorter page is the last; forgotten sessions aren't included.
    #[repeat(Reads)]
    async fn sessions(
        &self,
        owner: &Owner,
        agent: Option<&AgentId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionFacts>, StoreError>;

    /// Returns the pending events of a session, as a lease would hand them out: at most
    /// [`GRANT_EVENTS`](crate::domain::limits::GRANT_EVENTS), up to
    /// [`GRANT_BYTES`](crate::domain::limits::GRANT_BYTES).
    #[repeat(Reads)]
    async fn pending_events(&self, owner: &Owner, session: &SessionKey) -> Result<Vec<MailboxEntry>, StoreError>;

    /// Returns all unpublished outbox entries of an owner.
    #[repeat(Reads)]
    async fn outbox(&self, owner: &Owner) -> Result<Vec<OutboxEntry>, StoreError>;

    /// Returns how many sessions of all owners run a turn or wait for one: those due by `until`, which a running one is by
    /// its lease, and those that wait for a slot, without those of a suspended agent.
    #[repeat(Reads)]
    async fn busy_sessions(&self, until: Millis) -> Result<u64, StoreError>;

    /// Returns the settings of the backend on which the guarantees depend.
    #[repeat(Reads)]
    async fn settings(&self) -> Result<Vec<BackendSetting>, StoreError>;

    /// Returns the clock by which the store decides what is due, of several servers the middle one; `None`: the
    /// callers' clocks.
    #[repeat(Reads)]
    async fn time(&self) -> Result<Option<Millis>, StoreError>;

    /// Returns the id of the history of each server that answers. A server has a new id after a restart or a failover,
    /// which may have lost the last acknowledged writes.
    #[repeat(Reads)]
    async fn history(&self) -> Result<Vec<String>, StoreError>;

    /// Copies the store, as it is at one moment, into a new store named `name` beside its own; writes go on meanwhile.
    ///
    /// The copy is complete and durable. After a crash before the end no copy of that name exists. A second call
    /// returns `Exists`.
    #[repeat(Once)]
    async fn backup(&self, name: &str) -> Result<BackupOutcome, StoreError>;
}
}
