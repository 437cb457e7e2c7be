//! What goes into a store and what comes out: plain data.

use crate::domain::dead::Attempt;
use crate::domain::event::EventKind;
use crate::domain::ids::{EventId, JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::lease::After;
use crate::domain::quota::{Over, Quota, QuotaUsage};
use crate::domain::time::Millis;
use bytes::Bytes;
use std::time::Duration;

/// Key of a document inside its owner, e.g. `w/vendors/3/acme`; see [`crate::store::keys`].
pub type DocKey = String;

/// A stored document. A deleted one keeps its version for a while, so that a writer with an old
/// `expect` can't mistake a new document for the one it read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Doc {
    /// Grows by one with every write, deletes included; 0 = never written.
    pub version: u64,
    /// The bytes; `None` when never written or deleted.
    pub value: Option<Bytes>,
}

/// Which part of the documents under a prefix is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The last key first.
    pub reverse: bool,
    /// Documents passed over.
    pub skip: usize,
    /// Documents per page; 0 = only their number.
    pub limit: usize,
    /// Without it the documents come as [`Doc::default`], and their bytes aren't read.
    pub values: bool,
}

/// A part of the documents under a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Present documents under the prefix in all.
    pub total: usize,
    /// Those of the window, in its order.
    pub docs: Vec<(DocKey, Doc)>,
}

/// One document write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocWrite {
    /// Which document.
    pub key: DocKey,
    /// What must be true of it.
    pub expect: Expect,
    /// What becomes of it.
    pub change: Change,
}

/// Condition on a document's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No condition.
    Any,
    /// Exactly this version; 0 = never written. A deleted document has its own version.
    Version(u64),
}

impl Expect {
    /// The version that a write under this condition makes, where the condition says it.
    pub const fn next_version(self) -> Option<u64> {
        match self {
            Self::Any => None,
            Self::Version(before) => Some(before + 1),
        }
    }
}

/// Effect on a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Replace the bytes, version + 1.
    Put(Bytes),
    /// Delete, version + 1. Deleting what is absent changes nothing and isn't a conflict of its own.
    Delete,
    /// Only check `expect`; write nothing.
    Check,
}

/// A document whose version wasn't the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocConflict {
    /// Which document.
    pub key: DocKey,
    /// The version it has.
    pub actual: u64,
}

/// A job's move to a terminal status. Ignored when the job already has one (the first wins).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFinish {
    /// Which job.
    pub job: JobId,
    /// A terminal status.
    pub status: JobStatus,
    /// JSON of [`crate::domain::job::JobResult`], stored at `keys::job_result`.
    pub result: Bytes,
}

/// A job that comes into being: its head document and its place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Its id.
    pub job: JobId,
    /// JSON of [`crate::domain::job::JobHead`], stored at `keys::job_head`; kept when it exists.
    pub head: Bytes,
    /// The job in whose service it is opened: it is listed with that one's children.
    pub parent: Option<JobId>,
}

/// A message that a commit decided and that isn't published yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// A function of (owner, agent, session, turn, index): writing it twice is writing it once.
    pub id: String,
    /// JSON of [`crate::domain::message::Message`].
    pub message: Bytes,
}

/// An event on its way into a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The producer's id.
    pub id: EventId,
    /// SHA-256 of the body: same id with another body is a conflict.
    pub body_hash: String,
    /// What it is.
    pub kind: EventKind,
    /// The job it opens (task) or completes (result), or belongs to.
    pub job: Option<JobId>,
    /// Place in the mailbox: sorted bytewise, then by id. At most 64 bytes of `[0-9a-z-]`.
    pub order: String,
    /// JSON of [`crate::domain::event::Event`].
    pub body: Bytes,
    /// The job that a task opens; status `PENDING` unless it exists.
    pub open: Option<NewJob>,
    /// What a result does to its job: the first result wins, later ones are `Duplicate`.
    pub finish: Option<JobFinish>,
    /// Published with the admission, e.g. the wake of an HTTP submission.
    pub outbox: Vec<OutboxEntry>,
    /// What its owner may keep with it; `None`: it is taken whatever that is.
    pub within: Option<Quota>,
    /// A task that isn't taken before it took another's place, where the agent's policy says that it does.
    pub asks_way: bool,
}

impl NewEvent {
    /// What comes to what its owner keeps, here or in a new session. A job is a head, a status and a place in the
    /// list. A message leaves documents as well when its turn commits, so it needs room for one at least; a result
    /// is of what was begun here.
    pub fn adds(&self, is_new_session: bool) -> QuotaUsage {
        let (jobs, head) = self.open.as_ref().map_or((0, 0), |open| (1, open.head.len()));
        let documents = if self.kind == EventKind::Result { 0 } else { (3 * jobs).max(1) };
        QuotaUsage { documents, bytes: (self.body.len() + head) as u64, sessions: u64::from(is_new_session), jobs }
    }
}

/// Who asks for the right to run a session, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Unique to this asking, at most 64 bytes; a repetition of the call carries the same. A grant
    /// whose answer was lost is found again by it.
    pub token: String,
    /// Name of the worker, for operators.
    pub worker: String,
    /// Until then it must be renewed.
    pub ttl: Duration,
    /// At most so many mailbox entries come with the grant.
    pub mailbox_limit: u32,
    /// Crashes after which an event is dead-lettered.
    pub crash_limit: u32,
    /// Sessions of one owner that run at once, 0 = any number. It counts for the owner until somebody
    /// asks with another.
    pub owner_cap: u32,
}

/// One call of [`crate::store::Store::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admit {
    /// Whose.
    pub owner: Owner,
    /// Which session of which agent.
    pub session: SessionKey,
    /// The event; `None` for a wake.
    pub event: Option<NewEvent>,
    /// `None`: only append.
    pub lease: Option<LeaseRequest>,
}

/// What became of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intake {
    /// There was none (a wake).
    Nothing,
    /// Appended now.
    New,
    /// Seen before with the same body; nothing changed.
    Duplicate,
    /// Seen before with another body; nothing changed.
    Conflict,
    /// It asks for its way, and the agent's policy is `replace`; nothing changed, nothing remembered.
    Replaces,
    /// Not taken; nothing changed, nothing remembered.
    Refused(Refusal),
}

/// Why an event was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No gate document (`keys::agent_gate`).
    #[error("no such agent")]
    UnknownAgent,
    /// The agent takes no more work.
    #[error("the agent is terminated")]
    Terminated,
    /// The session's mailbox is full.
    #[error("the session's mailbox is full ({limit} events); try again later")]
    MailboxFull {
        /// Its limit in events.
        limit: u32,
    },
    /// Busy policy `reject` and an unfinished task in the session.
    #[error("the session is busy with a task and its agent's policy is `reject`")]
    Busy,
    /// Its owner keeps as much as it may.
    #[error("{0}")]
    Quota(Over),
}

/// What became of the lease request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// None was asked, or the event was refused.
    NotAsked,
    /// Granted.
    Run(Box<Grant>),
    /// Another holds it until then.
    Busy(Millis),
    /// Nothing to do in this session; its due time is gone.
    Empty,
    /// The agent, or its owner, runs as many sessions as it may; the session waits in its agent's queue.
    Waiting,
    /// The agent is suspended; the session waits for its resumption.
    Suspended,
    /// The session backs off until then.
    Backoff(Millis),
}

/// Answer of [`crate::store::Store::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Of the event.
    pub intake: Intake,
    /// Of the lease.
    pub lease: LeaseOutcome,
}

/// The right to run a session; every fenced method takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whose.
    pub owner: Owner,
    /// Which session.
    pub session: SessionKey,
    /// Fencing token: grows with every grant of this session, and no other grant has it, one that the store has lost
    /// included.
    pub epoch: u64,
}

/// Versions of what a turn stands on: whoever has read a document at its version needn't read it again. 0 where
/// there never was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Versions {
    /// Of the agent's gate document, 0 of one that is deleted, too. The agent's record is only written together with
    /// its gate.
    pub gate: u64,
    /// Of the owner's policy.
    pub policy: u64,
    /// Of the mark that is left when turns of the owner are erased ([`crate::store::keys::ERASURES`]).
    pub erasures: u64,
}

/// Index among the recorded calls of a [`Grant`] by which the store says that a record of a call is lost.
pub const LOST_CALLS: u32 = u32::MAX - 1;

/// A granted lease with everything needed to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The right itself.
    pub lease: Lease,
    /// It lapses then.
    pub until: Millis,
    /// What the turn stands on.
    pub ground: Versions,
    /// Turns committed in this session so far.
    pub version: u64,
    /// Epoch and turn of the last commit: no two commits have the same.
    pub last: Option<(u64, u64)>,
    /// The session state of the last commit.
    pub state: Option<Bytes>,
    /// The recorded reply of a turn that was not committed.
    pub checkpoint: Option<Bytes>,
    /// Recorded intents and outcomes of that turn's calls, by call index, sorted.
    pub calls: Vec<(u32, Bytes)>,
    /// Pending events in order, up to the asked limit.
    pub mailbox: Vec<MailboxEntry>,
    /// Events ever appended to this session: give it back at release.
    pub arrivals: u64,
    /// Leases that lapsed unreleased since the last commit, the oldest first: the last
    /// [`crate::domain::limits::ATTEMPTS_KEPT`] of them.
    pub attempts: Vec<Attempt>,
}

/// An event waiting in a mailbox, with its body or (`()`) without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxEntry<Body = Bytes> {
    /// Its place: `order|id`.
    pub key: String,
    /// What it is.
    pub kind: EventKind,
    /// The job it opens or completes.
    pub job: Option<JobId>,
    /// Status of that job now. A terminal one on a task means: cancelled or dead-lettered.
    pub job_status: Option<JobStatus>,
    /// Leases that expired unreleased while serving it, since the last commit.
    pub crashes: u32,
    /// JSON of [`crate::domain::event::Event`].
    pub body: Body,
}

impl<Body> MailboxEntry<Body> {
    /// The job of a task that has not ended.
    pub fn open_task(&self) -> Option<&JobId> {
        let is_open = self.kind == EventKind::Task && !self.job_status.is_some_and(JobStatus::is_terminal);
        self.job.as_ref().filter(|_| is_open)
    }
}

/// A write inside a turn, before its commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Number of the turn it belongs to: `version + 1`.
    pub turn: u64,
    /// The recorded reply; `None` leaves what is recorded.
    pub reply: Option<Bytes>,
    /// Intents and outcomes by call index; they replace what is recorded for that index.
    pub calls: Vec<(u32, Bytes)>,
    /// Child jobs started now.
    pub open: Vec<NewJob>,
    /// Messages to publish now, the events of those jobs among them.
    pub outbox: Vec<OutboxEntry>,
    /// Documents, whatever their versions are.
    pub writes: Vec<DocWrite>,
}

/// Answer of [`crate::store::Store::renew`] and [`crate::store::Store::checkpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseCheck {
    /// Still the holder.
    Yes {
        /// The served task's job was ended from outside: cancelled, or completed or failed by another.
        cancelled: bool,
        /// Version of the owner's policy, as [`Versions`] has it.
        policy: u64,
    },
    /// Another has, or had, the lease: stop, write nothing, acknowledge nothing.
    Fenced,
}

/// The one atomic write of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Number of this turn: `version + 1`.
    pub turn: u64,
    /// Mailbox keys consumed.
    pub consume: Vec<String>,
    /// Documents.
    pub writes: Vec<DocWrite>,
    /// The status of the served job from now on, unless it has ended; of a paused one, that as which it
    /// goes on.
    pub status: Option<(JobId, JobStatus)>,
    /// Jobs completed.
    pub finish: Vec<JobFinish>,
    /// Messages to publish.
    pub outbox: Vec<OutboxEntry>,
    /// The new session state.
    pub state: Bytes,
    /// The job whose cancellation must stop this commit; `None` in a commit that already knows.
    pub unless_cancelled: Option<JobId>,
    /// What happens to the lease.
    pub then: After,
}

/// Answer of [`crate::store::Store::commit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Done now, or done before by this very turn of this holder.
    Done(Continuation),
    /// Another has the lease.
    Fenced,
    /// Documents were changed by others meanwhile; nothing was written.
    Conflict(Vec<DocConflict>),
    /// The served task was ended from outside; nothing was written.
    Cancelled,
}

/// How a holder goes on after a commit or a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Continuation {
    /// The lease is held on; this is the mailbox now.
    Held {
        /// Pending events in order.
        mailbox: Vec<MailboxEntry>,
        /// Events ever appended.
        arrivals: u64,
        /// What the next turn stands on.
        ground: Versions,
    },
    /// The lease was given back.
    Released {
        /// For the sessions that its slot is free for now: already in the outbox, to be published
        /// by the holder at once, else handed out by the very next sweep. None when the answer is
        /// a repetition.
        wakes: Vec<OutboxEntry>,
    },
}

impl Continuation {
    /// What the holder publishes because its slot is free.
    pub fn wakes(&self) -> &[OutboxEntry] {
        match self {
            Self::Held { .. } => &[],
            Self::Released { wakes } => wakes,
        }
    }
}

/// Answer of [`crate::store::Store::release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// As the request said.
    Done(Continuation),
    /// Another has the lease.
    Fenced,
}

/// One session as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// Which.
    pub key: SessionKey,
    /// Turns committed.
    pub version: u64,
    /// Fencing token: the time of the grant in milliseconds, or more where the clock was set back.
    pub epoch: u64,
    /// Lease end, when it is held or lapsed unreleased.
    pub lease_until: Option<Millis>,
    /// Name of the worker that holds that lease, or held it.
    pub lease_worker: Option<String>,
    /// Next look at it.
    pub due: Option<Millis>,
    /// When an event was appended, a turn committed, or the session set to one, last.
    pub touched: Millis,
    /// Events ever appended, and ever consumed: `arrivals - consumed` must be the mailbox.
    pub arrivals: u64,
    /// Events consumed by commits and cancellations.
    pub consumed: u64,
    /// Pending events in order; [`crate::store::Inspect::mail`] has their bodies.
    pub mailbox: Vec<MailboxEntry<()>>,
    /// What the last commit left for the next turn; `None` before the first.
    pub state: Option<Bytes>,
    /// Records of it that can't be read, in words: they are in none of the fields above.
    pub damaged: Vec<String>,
    /// Its own record is among them: the fields above say nothing.
    pub unreadable: bool,
}

/// What a backend says about itself, for `trellis doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSetting {
    /// E.g. `redis appendfsync`.
    pub name: String,
    /// What it is.
    pub value: String,
    /// What breaks because of it and what to set instead; `None` = as it should be.
    pub problem: Option<String>,
}
