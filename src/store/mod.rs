//! Seam 1, `Store`: every atomic step of an event's path (`protocol.md`), one method each.
//!
//! | trait | what it is asked for |
//! |---|---|
//! | [`Store`] | the steps of events, leases, turns and jobs |
//! | [`DocumentStore`] | versioned documents outside turns |
//! | [`Accounts`] | how much is kept, and how much may be |
//! | [`Inspect`] | what lies there: for sweeps, audits, doctors and operators |
//!
//! An owner is a set of versioned documents plus the protocol's own state (sessions, mailboxes,
//! leases, due times, outbox). All of it lies under one atomic unit, so each method that changes
//! something is all or nothing. Values are opaque bytes here: user data is never decoded by a
//! backend.
//!
//! Time: `now` is an argument. The Redis backend takes the server's own clock instead unless it
//! was opened with an injected one, because the clocks of a fleet differ.
//!
//! Every method says what a second call with the same arguments does ([`Repeat`]): a caller that got
//! [`StoreError::Unavailable`] doesn't know whether the first was applied.

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
mod outside;
pub mod patient;
pub mod policies;
pub mod redis;
pub mod steps;
mod swept;
pub mod tail;
mod types;
mod usage;

use crate::domain::bounds::OversizedDocument;
use crate::domain::decode::stored;
use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::quota::{Over, Quota, QuotaUsage};
use crate::domain::time::Millis;
use crate::process::retry::AttemptFailure;
use async_trait::async_trait;
use layer::seam;
use std::time::Duration;

pub use crate::domain::event::EventKind;
pub use crate::domain::lease::After;
pub use amend::*;
pub use docs::*;
pub use fill::{Fill, FillLevel};
pub use forget::*;
pub use history::{HistoryCheck, KnownHistory};
pub use layer::{Repeat, StoreMethod};
pub use outside::*;
pub use swept::{DueOwners, Swept};
pub use types::*;
pub use usage::*;

/// Why a store call gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, loading, timed out. The call may or may not have been applied; what the same call
    /// does then, its method says by its [`Repeat`].
    #[error("store `{store}` is unavailable: {reason}")]
    Unavailable {
        /// Where, without credentials.
        store: String,
        /// The driver's words.
        reason: String,
    },
    /// At its memory or disk limit; surely not applied.
    #[error("store `{store}` is full: {reason}; free memory or raise its limit")]
    Full {
        /// Where.
        store: String,
        /// The server's words.
        reason: String,
    },
    /// Its owner's quota has no room for it; surely not applied, and calling again won't help.
    #[error("{0}")]
    Over(Over),
    /// A document that protects somebody is larger than may be kept; surely not applied, and calling again won't help.
    #[error("{0}")]
    Oversized(OversizedDocument),
    /// Others were always faster; nothing was written, and calling again can help.
    #[error("{what} is being changed by others; try again")]
    Contended {
        /// A kind and a name.
        what: String,
    },
    /// A bug or a damaged record; calling again won't help.
    #[error("store `{store}` returned an invalid record or reply: {reason}")]
    Corrupt {
        /// Where.
        store: String,
        /// What.
        reason: String,
    },
}

impl StoreError {
    /// Calling again can help.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Full { .. } | Self::Contended { .. })
    }
}

impl From<StoreError> for AttemptFailure<StoreError> {
    fn from(error: StoreError) -> Self {
        if error.is_transient() { Self::Transient(error) } else { Self::Permanent(error) }
    }
}

/// The value of the document at `key`; [`StoreError::Corrupt`] names the key.
pub fn decode<T: serde::de::DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    stored(bytes).map_err(|error| corrupt(key, &error))
}

/// The document at `key` isn't what it should be.
pub(crate) fn corrupt(key: &str, error: &impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { store: "documents".into(), reason: format!("`{key}`: {error}") }
}

seam! {
/// Every durable step of an event's path.
pub trait Store: DocumentStore + Accounts + Inspect {
    /// Takes an event into its session's mailbox, once per (owner, event id), and tries the lease.
    ///
    /// After it: the event is durable, its job `PENDING`, the session due within 5 s. A crash
    /// before it: the event is delivered again. A crash after it: delivered again, `Duplicate`.
    /// The order of checks is: duplicate, agent known and not terminated, busy policy and
    /// mailbox limit (tasks and messages only), quota, append, lease. `Run` marks the served events'
    /// jobs `STARTED`, and counts a crash on the events of a lease that lapsed unreleased; at
    /// `crash_limit` the served task's job becomes `FAILED`/`DEAD` here.
    ///
    /// Repeated with the token of the grant that holds the session, it answers that grant again:
    /// same epoch, the lease begun anew, everything else as it is now, and no crash counted. So
    /// does one whose lease has lapsed, as long as it wasn't given back and nobody else took it.
    #[repeat(Idempotent)]
    async fn admit(&self, now: Millis, request: &Admit) -> Result<Admitted, StoreError>;

    /// Extends a lease. A crash before it: the lease lapses and another worker goes on.
    #[repeat(Idempotent)]
    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, StoreError>;

    /// Records a reply, intents, outcomes and child jobs of the running turn, and documents that outlive its session.
    ///
    /// After it: a successor finds them in its grant. One of a turn that is committed meanwhile changes nothing. A second
    /// call writes the same documents again.
    #[repeat(Idempotent)]
    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError>;

    /// Applies a turn: all of it or nothing. Clears the checkpoint and the crash counts.
    ///
    /// A crash before it: nothing of the turn exists but its checkpoint. After it: everything
    /// does, and the outbox is published by the holder or by a sweep. A release also wakes those
    /// who wait for the slot. Repeated by its holder it is `Done`, without the wakes of the first time.
    #[repeat(Idempotent)]
    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, StoreError>;

    /// Gives a lease back without a commit (idle, parked, backing off, shutting down), and wakes
    /// those who wait for the slot. A crash before it: the lease lapses, which counts a crash. Repeated before
    /// anybody else came it is `Done`, without the wakes of the first time; then it is `Fenced`.
    ///
    /// `Fenced` takes back the crash that was counted when the lease lapsed, where it is the last that was: a holder
    /// that gives back lives.
    #[repeat(Idempotent)]
    async fn release(&self, now: Millis, lease: &Lease, then: After) -> Result<Released, StoreError>;

    /// Removes published outbox entries; absent ones are passed over. A crash before it: they are published
    /// again, same ids.
    #[repeat(Idempotent)]
    async fn published(&self, owner: &Owner, ids: &[String]) -> Result<(), StoreError>;

    /// Ends a job from outside its turn (cancel, pause timeout, refusal with `open`).
    ///
    /// After it: the status is sticky. Its mailbox entry leaves now when no live lease serves
    /// the session, else the holder drops it; the session is due at once and not backing off. Without
    /// such an entry the session stays as it is.
    /// `outbox` is written with it. With `open` an unknown job is made in that status. Repeated: `Already`.
    #[repeat(Idempotent)]
    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<Finished, StoreError>;

    /// Pauses an open job, or lets a paused one go on.
    ///
    /// After it: no lease hands out the task of a paused job in any other status, whatever a running
    /// turn commits, and no crash counts against it. One that goes on has the status that it would have
    /// had, and its session is due at once; when a live lease has it, it is looked at again at its end. A
    /// crash before it: nothing. Repeated: `Already`.
    #[repeat(Idempotent)]
    async fn park(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<Parked, StoreError>;

    /// Makes a session that has neither turns nor events be at a turn with a state, or (`None`)
    /// forgets one: its turns' number, state, mailbox and waiting are gone, jobs and documents
    /// aren't touched. The owner's sessions begin behind its fencing token from then on, so that no holder
    /// of before can come back.
    ///
    /// After it: `sessions` shows it so, or not at all; where one of `checks` ([`DocWrite::check`]) doesn't hold,
    /// nothing. One that is forgotten already is `Done`.
    #[repeat(Idempotent)]
    async fn seat(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        seat: Option<&Seat>,
        checks: &[DocWrite],
    ) -> Result<Seated, StoreError>;

    /// Changes what a session remembers, or drops it, with documents, between its turns.
    ///
    /// After it: all of it, or, when a worker has the session (one that died with it included) or it is
    /// not as it was seen, nothing. A turn that runs is never changed under: it would write over it. Of
    /// one that is gone no holder of before can come back.
    #[repeat(Idempotent)]
    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<Amended, StoreError>;

    /// Forgets what an owner no longer keeps: deletes documents, lets event ids count as never seen,
    /// and drops sessions that rest: without mail, lease, due time and place in a queue, and with the
    /// arrivals that were seen; and writes off events that were lost from a mailbox.
    ///
    /// After it: all of it, or, when one of the sessions doesn't rest or got something since, nothing.
    /// An event with a forgotten id is new; a forgotten session begins anew, and no holder of before can
    /// come back: the owner's sessions begin behind the highest fencing token ever forgotten. A crash
    /// before it: nothing is gone, and it is found again. A second call forgets what came anew since.
    #[repeat(Once)]
    async fn forget(&self, now: Millis, owner: &Owner, forget: &Forget) -> Result<Forgotten, StoreError>;

    /// One owner's overdue work; also wakes the next waiting session of agents with free
    /// capacity. `grace` is how long before the same work is handed out again: a second call doesn't hand it out.
    /// What else there may be to do is told by the first document under each of [`keys::SWEPT`], so that an owner with
    /// nothing to do costs one call.
    ///
    /// Until [`Swept::next`], or until something that happens makes it due earlier, [`Store::due`] doesn't name it.
    #[repeat(Once)]
    async fn sweep(&self, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<Swept, StoreError>;

    /// Tells that `worker` lives, for one and a half times `horizon`, 30 s at most, and names the owners of its share of the shards at which
    /// something is due within `horizon`. What makes something due also makes its owner due, in the same write, so that
    /// owners with nothing to do cost nothing. `limit` for each shard.
    #[repeat(Idempotent)]
    async fn due(&self, now: Millis, worker: &str, horizon: Duration, limit: u32) -> Result<DueOwners, StoreError>;

    /// Tells that `worker` asks for nothing more: with their next [`Store::due`] the others have its share. A crash before
    /// it: they have it when its time is over.
    #[repeat(Idempotent)]
    async fn sign_off(&self, worker: &str) -> Result<(), StoreError>;
}

/// An owner's versioned documents, outside turns.
pub trait DocumentStore {
    /// Documents by key, in order; absent ones have version 0. One consistent state.
    #[repeat(Reads)]
    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError>;

    /// Present documents whose key starts with `prefix`, bytewise after `after`, in key order
    /// (`reverse`: before `after`, in reverse order), at most `limit`.
    #[repeat(Reads)]
    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError>;

    /// A page of the present documents whose key starts with `prefix`, and how many there are. One
    /// consistent state. The bytes of no document outside the page are read.
    #[repeat(Reads)]
    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<Page, StoreError>;

    /// Writes documents, all or none; the first that puts something registers the owner.
    ///
    /// A second call meets the versions that the first wrote: those it expected are a conflict, and what it
    /// puts without a condition is written over whatever came between.
    #[repeat(Once)]
    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<OutsideWrite, StoreError>;

    /// [`DocumentStore::write`] of what somebody asks to be kept: refused with [`StoreError::Over`] when more would come
    /// to what the owner keeps than its quota allows. What operators have said of it counts before `quota`.
    #[repeat(Once)]
    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<OutsideWrite, StoreError>;
}

/// How much is kept, and how much may be.
pub trait Accounts {
    /// What an owner keeps, as every write and every deletion has counted it, and what its quota is by operators.
    #[repeat(Reads)]
    async fn usage(&self, owner: &Owner) -> Result<Standing, StoreError>;

    /// What several owners keep, in their order, each by itself.
    #[repeat(Reads)]
    async fn kept(&self, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError>;

    /// A step of a recount of what an owner keeps, exact however much is written meanwhile; the last one says what
    /// was found and, with `mend`, lets it count. What was kept before anybody counted is counted by the store itself.
    ///
    /// A crash before it: the recount goes on with the next call. A second call is the next step; behind the last
    /// one it begins anew.
    #[repeat(Once)]
    async fn recount(&self, owner: &Owner, mend: bool) -> Result<Recount, StoreError>;

    /// How full the store is, by a look that is a second old at most at this steady time; unknown is as without a
    /// limit, and no error.
    #[repeat(Reads)]
    async fn fill(&self, now: Duration) -> Result<Fill, StoreError>;
}

/// What lies in a store: for sweeps, audits, doctors and operators. No step of an event needs it.
pub trait Inspect {
    /// Known owners after `after`, sorted: `limit` of them, or all that are left. A shorter page is the end.
    #[repeat(Reads)]
    async fn owners(&self, after: Option<&Owner>, limit: usize) -> Result<Vec<Owner>, StoreError>;

    /// Sessions of an agent, or of all agents, after `after`, sorted, with mailboxes but without the bodies in
    /// them: `limit` of them, or all that are left. A shorter page is the end; forgotten ones aren't counted.
    #[repeat(Reads)]
    async fn sessions(
        &self,
        owner: &Owner,
        agent: Option<&AgentId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionFacts>, StoreError>;

    /// What is pending in a session, as a lease would hand it out:
    /// [`GRANT_EVENTS`](crate::domain::limits::GRANT_EVENTS) at most, and none behind
    /// [`GRANT_BYTES`](crate::domain::limits::GRANT_BYTES) of them.
    #[repeat(Reads)]
    async fn mail(&self, owner: &Owner, session: &SessionKey) -> Result<Vec<MailboxEntry>, StoreError>;

    /// All unpublished outbox entries of an owner.
    #[repeat(Reads)]
    async fn outbox(&self, owner: &Owner) -> Result<Vec<OutboxEntry>, StoreError>;

    /// Sessions of all owners that wait for a turn or run one.
    #[repeat(Reads)]
    async fn busy_sessions(&self) -> Result<u64, StoreError>;

    /// The settings on which the guarantees rest.
    #[repeat(Reads)]
    async fn settings(&self) -> Result<Vec<BackendSetting>, StoreError>;

    /// The clock by which the store judges what is due; `None`: by that of its callers. Of several servers the middle one.
    #[repeat(Reads)]
    async fn time(&self) -> Result<Option<Millis>, StoreError>;

    /// Names of what has been written so far, of each server that answers: a new one when a server has begun anew or
    /// has made place for another, which may lack what was acknowledged last.
    #[repeat(Reads)]
    async fn history(&self) -> Result<Vec<String>, StoreError>;

    /// Copies all of it, as it stands at one moment, into a new store of this name beside its own; others go on
    /// meanwhile.
    ///
    /// After it: the copy is whole and durable. A crash before it: there is none of that name. Repeated: `Exists`.
    #[repeat(Once)]
    async fn backup(&self, name: &str) -> Result<BackedUp, StoreError>;
}
}
