//! Plain data that store methods take and return.

use crate::domain::dead::Attempt;
use crate::domain::event::EventKind;
use crate::domain::ids::{EventId, JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::lease::LeaseUse;
use crate::domain::quota::{Quota, QuotaExceeded, QuotaUsage};
use crate::domain::time::Millis;
use bytes::Bytes;
use std::time::Duration;

/// Key of a document inside its owner, e.g. `w/vendors/3/acme`; see [`crate::store::keys`].
pub type DocKey = String;

/// A stored document. A deleted one keeps its version for a while, so that a writer with an old `expect` can't mistake
/// a new document for the one it read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Doc {
    /// Grows by one with every write, deletes included; 0 = never written.
    pub version: u64,
    /// The bytes; `None` when never written or deleted.
    pub value: Option<Bytes>,
}

/// Which part of the documents under a prefix a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Whether the order is reversed, last key first.
    pub reverse: bool,
    /// Documents skipped before the page.
    pub skip: usize,
    /// Documents per page; 0 asks only for their number.
    pub limit: usize,
    /// Whether values are read; without, the documents are [`Doc::default`].
    pub values: bool,
}

/// A part of the documents under a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocPage {
    /// Present documents under the prefix, those outside the page included.
    pub total: usize,
    /// Documents of the page, in its order.
    pub docs: Vec<(DocKey, Doc)>,
}

/// One document write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocWrite {
    /// Key of the document.
    pub key: DocKey,
    /// Condition on its version.
    pub expect: Expect,
    /// Effect on the document.
    pub change: DocEffect,
}

/// Condition on a document's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No condition on the version.
    Any,
    /// Exactly this version; 0 = never written. A deleted document has its own version.
    Version(u64),
}

impl Expect {
    /// The version that a write under this condition makes, if the condition names one.
    pub const fn next_version(self) -> Option<u64> {
        match self {
            Self::Any => None,
            Self::Version(before) => Some(before + 1),
        }
    }
}

/// Effect on a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocEffect {
    /// Replaces the bytes; version + 1.
    Put(Bytes),
    /// Deletes the document; version + 1. Deleting an absent document changes nothing and is no conflict.
    Delete,
    /// Only checks `expect`; writes nothing.
    Check,
}

/// A document whose version wasn't the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocConflict {
    /// Key of the document.
    pub key: DocKey,
    /// The version that it has.
    pub actual: u64,
}

/// A job's move to a terminal status. Ignored when the job already has one (the first wins).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFinish {
    /// Id of the job.
    pub job: JobId,
    /// A terminal status.
    pub status: JobStatus,
    /// JSON of [`crate::domain::job::JobResult`], stored at `keys::job_result`.
    pub result: Bytes,
}

/// A new job: its head document and its place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Id of the job.
    pub job: JobId,
    /// JSON of [`crate::domain::job::JobHead`], stored at `keys::job_head`; kept when it exists.
    pub head: Bytes,
    /// The job that opened it, whose children list it.
    pub parent: Option<JobId>,
}

/// A message that a commit decided and that isn't published yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// A function of (owner, agent, session, turn, index), so that a repeated write stores it once.
    pub id: String,
    /// JSON of [`crate::domain::message::BusMessage`].
    pub message: Bytes,
}

/// An event on its way into a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Id that the producer gave it.
    pub id: EventId,
    /// SHA-256 of the body: the same id with another body is a conflict.
    pub body_hash: String,
    /// Task, message or result.
    pub kind: EventKind,
    /// The job that it opens (task), completes (result) or belongs to.
    pub job: Option<JobId>,
    /// Place in the mailbox: sorted bytewise, then by id. At most 64 bytes of `[0-9a-z-]`.
    pub order: String,
    /// JSON of [`crate::domain::event::Event`].
    pub body: Bytes,
    /// The job that a task opens; status `PENDING` unless it exists.
    pub open: Option<NewJob>,
    /// What a result does to its job: the first result wins, later ones are `Duplicate`.
    pub finish: Option<JobFinish>,
    /// Messages published with the admission, e.g. the wake of an HTTP submission.
    pub outbox: Vec<OutboxEntry>,
    /// The owner's quota; `None` admits the event whatever the owner keeps.
    pub quota: Option<Quota>,
    /// Whether the task asks to replace a running one, where the agent's policy is `replace`.
    pub may_replace: bool,
}

impl NewEvent {
    /// What the event adds to its owner's usage, in an existing or a new session. A job is a head, a status and a place
    /// in the list. A message leaves documents too when its turn commits, so it needs room for at least one; a result
    /// belongs to work that is already counted.
    pub fn added_usage(&self, is_new_session: bool) -> QuotaUsage {
        let (jobs, head) = self.open.as_ref().map_or((0, 0), |open| (1, open.head.len()));
        let documents = if self.kind == EventKind::Result { 0 } else { (3 * jobs).max(1) };
        QuotaUsage { documents, bytes: (self.body.len() + head) as u64, sessions: u64::from(is_new_session), jobs }
    }
}

/// A request for the lease of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Unique per request, at most 64 bytes; a repeated call carries the same. A grant whose answer was lost is found
    /// by it.
    pub token: String,
    /// Name of the worker, for operators.
    pub worker: String,
    /// Time after which the lease lapses unless it is renewed.
    pub ttl: Duration,
    /// Most mailbox entries returned with the grant.
    pub mailbox_limit: u32,
    /// Crashes after which an event is dead-lettered.
    pub crash_limit: u32,
    /// Sessions of one owner that run at once; 0 = no limit. It holds for the owner until a request has another.
    pub owner_cap: u32,
}

/// One call of [`crate::store::Store::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit {
    /// Owner of the session.
    pub owner: Owner,
    /// Agent and session.
    pub session: SessionKey,
    /// The event; `None` for a wake.
    pub event: Option<NewEvent>,
    /// Request for the lease; `None` only appends the event.
    pub lease: Option<LeaseRequest>,
}

/// What became of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intake {
    /// There was no event (a wake).
    Nothing,
    /// The event was appended.
    New,
    /// The event was admitted before, with the same body; nothing changed.
    Duplicate,
    /// The event was admitted before, with another body; nothing changed.
    Conflict,
    /// The event asks to replace a running task, and the agent's policy is `replace`; nothing changed or was recorded.
    ReplaceRunning,
    /// The event was refused; nothing changed or was recorded.
    Refused(Refusal),
}

/// Why an event was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no gate document (`keys::agent_gate`).
    #[error("no such agent")]
    UnknownAgent,
    /// The agent is terminated.
    #[error("the agent is terminated")]
    Terminated,
    /// The session's mailbox is full.
    #[error("the session's mailbox is full ({limit} events); try again later")]
    MailboxFull {
        /// Its limit in events.
        limit: u32,
    },
    /// The busy policy is `reject`, and a task of the session is unfinished.
    #[error("the session is busy with a task and its agent's policy is `reject`")]
    Busy,
    /// The owner's quota is reached.
    #[error("{0}")]
    Quota(QuotaExceeded),
}

/// What became of the lease request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// No lease was requested, or the event was refused.
    NotAsked,
    /// The lease was granted.
    Run(Box<Grant>),
    /// Another worker holds the lease until this time.
    Busy(Millis),
    /// The session has nothing to do; its due time was removed.
    Empty,
    /// The agent or its owner runs as many sessions as it may; the session waits in its agent's queue.
    Waiting,
    /// The agent is suspended; the session waits until it is resumed.
    Suspended,
    /// The session backs off until this time.
    Backoff(Millis),
}

/// The answer of [`crate::store::Store::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionOutcome {
    /// What became of the event.
    pub intake: Intake,
    /// What became of the lease request.
    pub lease: LeaseOutcome,
}

/// The right to run a session; every fenced method takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Owner of the session.
    pub owner: Owner,
    /// Agent and session.
    pub session: SessionKey,
    /// Fencing token: grows with every grant of this session. No other grant has it, not even one that the store has
    /// lost.
    pub epoch: u64,
}

/// Versions of the documents that a turn depends on; a holder that has read that version needn't read it again. 0 where
/// there never was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Versions {
    /// Version of the agent's gate document; 0 if it is deleted. The agent's record is only written together with its
    /// gate.
    pub gate: u64,
    /// Version of the owner's policy.
    pub policy: u64,
    /// Version of the mark that is set when turns of the owner are erased ([`crate::store::keys::ERASURES`]).
    pub erasures: u64,
}

/// Index among the recorded calls of a [`Grant`] which says that the record of a call is lost.
pub const LOST_CALLS: u32 = u32::MAX - 1;

/// A granted lease with everything that a turn needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The lease itself.
    pub lease: Lease,
    /// Time at which the lease lapses.
    pub until: Millis,
    /// Versions of the documents that the turn depends on.
    pub versions: Versions,
    /// Turns committed in this session.
    pub version: u64,
    /// Epoch and turn of the last commit: no two commits have the same.
    pub last_commit: Option<(u64, u64)>,
    /// The session state of the last commit.
    pub state: Option<Bytes>,
    /// The recorded reply of a turn that was not committed.
    pub checkpoint: Option<Bytes>,
    /// Recorded intents and outcomes of that turn's calls, by call index, sorted.
    pub calls: Vec<(u32, Bytes)>,
    /// Pending events in order, up to the requested limit.
    pub mailbox: Vec<MailboxEntry>,
    /// Events ever appended to this session; a release passes it back.
    pub arrivals: u64,
    /// Leases that lapsed unreleased since the last commit, oldest first: the last
    /// [`crate::domain::limits::ATTEMPTS_KEPT`].
    pub attempts: Vec<Attempt>,
}

/// An event in a mailbox, with its body or (`()`) without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxEntry<Body = Bytes> {
    /// Its place: `order|id`.
    pub key: String,
    /// Task, message or result.
    pub kind: EventKind,
    /// The job it opens or completes.
    pub job: Option<JobId>,
    /// Current status of that job. A terminal one on a task means that it was cancelled or dead-lettered.
    pub job_status: Option<JobStatus>,
    /// Leases that lapsed unreleased while serving the event, since the last commit.
    pub crashes: u32,
    /// JSON of [`crate::domain::event::Event`].
    pub body: Body,
}

impl<Body> MailboxEntry<Body> {
    /// Returns the job of a task that has not ended.
    pub fn open_task(&self) -> Option<&JobId> {
        let is_open = self.kind == EventKind::Task && !self.job_status.is_some_and(JobStatus::is_terminal);
        self.job.as_ref().filter(|_| is_open)
    }
}

/// A write of a running turn, before its commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Number of the turn: `version + 1`.
    pub turn: u64,
    /// The recorded reply; `None` leaves the stored one.
    pub reply: Option<Bytes>,
    /// Intents and outcomes by call index; each replaces what is stored for its index.
    pub calls: Vec<(u32, Bytes)>,
    /// Child jobs that start with it.
    pub open: Vec<NewJob>,
    /// Messages to publish now, the events of those jobs among them.
    pub outbox: Vec<OutboxEntry>,
    /// Documents, written without conditions on their versions.
    pub writes: Vec<DocWrite>,
}

/// The answer of [`crate::store::Store::renew`] and [`crate::store::Store::checkpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseCheck {
    /// The lease is still held.
    Held {
        /// Whether the served task's job was ended from outside: cancelled, completed or failed by another.
        cancelled: bool,
        /// Version of the owner's policy, as in [`Versions`].
        policy: u64,
    },
    /// Another worker has, or had, the lease: the holder must stop, write nothing and acknowledge nothing.
    Fenced,
}

/// The one atomic write of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Number of this turn: `version + 1`.
    pub turn: u64,
    /// Keys of the consumed mailbox entries.
    pub consume: Vec<String>,
    /// Documents written with the turn.
    pub writes: Vec<DocWrite>,
    /// The new status of the served job, unless it has ended; for a paused job the status that it resumes with.
    pub status: Option<(JobId, JobStatus)>,
    /// Jobs that the turn completes.
    pub finish: Vec<JobFinish>,
    /// Messages to publish.
    pub outbox: Vec<OutboxEntry>,
    /// The new session state.
    pub state: Bytes,
    /// The job whose cancellation must stop this commit; `None` if the cancellation is already known.
    pub unless_cancelled: Option<JobId>,
    /// What happens to the lease.
    pub after_commit: LeaseUse,
}

/// The answer of [`crate::store::Store::commit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The turn is committed, by this call or an earlier one of this holder.
    Done(Continuation),
    /// Another worker has the lease.
    Fenced,
    /// Other writers changed documents meanwhile; nothing was written.
    Conflict(Vec<DocConflict>),
    /// The served task was ended from outside; nothing was written.
    Cancelled,
}

/// What a holder has after a commit or a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Continuation {
    /// The lease is still held.
    Held {
        /// Pending events in order.
        mailbox: Vec<MailboxEntry>,
        /// Events ever appended.
        arrivals: u64,
        /// Versions of the documents that the next turn depends on.
        versions: Versions,
    },
    /// The lease was released.
    Released {
        /// Wakes of the sessions that can take the free slot. They are in the outbox already; the holder publishes them
        /// at once, else the next sweep does. Empty when the call was a repetition.
        wakes: Vec<OutboxEntry>,
    },
}

impl Continuation {
    /// The wakes that the holder publishes because its slot is free.
    pub fn wakes(&self) -> &[OutboxEntry] {
        match self {
            Self::Held { .. } => &[],
            Self::Released { wakes } => wakes,
        }
    }
}

/// The answer of [`crate::store::Store::release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lease was released or kept, as requested.
    Done(Continuation),
    /// Another worker has the lease.
    Fenced,
}

/// One session as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// Agent and session.
    pub key: SessionKey,
    /// Number of committed turns.
    pub version: u64,
    /// Fencing token: the time of the grant in milliseconds, or more if the clock was set back.
    pub epoch: u64,
    /// End of the lease, when it is held or lapsed unreleased.
    pub lease_until: Option<Millis>,
    /// Name of the worker that holds that lease, or held it.
    pub lease_worker: Option<String>,
    /// Time at which the session is due.
    pub due: Option<Millis>,
    /// Time of the last append, commit or [`crate::store::Store::set_session`].
    pub touched: Millis,
    /// Events ever appended: `arrivals - consumed` must be the length of the mailbox.
    pub arrivals: u64,
    /// Events consumed by commits and cancellations.
    pub consumed: u64,
    /// Pending events in order; [`crate::store::StoreInspection::pending_events`] returns their bodies.
    pub mailbox: Vec<MailboxEntry<()>>,
    /// Session state that the last commit wrote; `None` before the first.
    pub state: Option<Bytes>,
    /// Unreadable records of the session, in words: none of the fields above contains them.
    pub damaged: Vec<String>,
    /// Whether the session's own record is unreadable: then the fields above say nothing.
    pub unreadable: bool,
}

/// A setting of a backend, for `trellis doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSetting {
    /// Its name, e.g. `redis appendfsync`.
    pub name: String,
    /// Its current value.
    pub value: String,
    /// What fails because of it and what to set instead; `None`: the setting is right.
    pub problem: Option<String>,
}
