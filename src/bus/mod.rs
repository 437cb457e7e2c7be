//! Seam 2, `Bus`: what makes the store's truth prompt. A lost message only costs time: the sweep
//! finds what is due.

mod backlog;
pub mod credentials;
pub mod embedded;
pub mod nats;
pub mod rights;
pub mod subject;

pub use backlog::{Backlog, QueueWatch, WaitingMessage};

use crate::domain::epoch::Mark;
use crate::domain::event::Completion;
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::domain::message::{Address, InKind, Message};
use crate::domain::time::Millis;
use crate::domain::timer::TimerId;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Header with the producer's event id. `Nats-Msg-Id` is not read: its ids are shared by all owners for as long as the
/// stream compares them.
pub const ID_HEADER: &str = "Trellis-Id";

/// Header with a token that says for whom a message is sent, over the queue and HTTP.
pub const AUTHORIZATION_HEADER: &str = "Authorization";

/// A message taken from the queue. Unsettled ones are delivered again after the ack wait.
pub struct Delivery {
    /// Whose.
    pub owner: Owner,
    /// To whom.
    pub agent: AgentId,
    /// What.
    pub kind: InKind,
    /// The producer's id, when it gave one.
    pub id: Option<String>,
    /// The header `Authorization`, which is kept nowhere.
    pub authorization: Option<String>,
    /// The body as it came.
    pub body: Bytes,
    /// Stream sequence.
    pub sequence: u64,
    /// How often it has been delivered, 1 = the first time.
    pub delivered: u64,
    /// When it was published.
    pub published: Millis,
    /// Its acknowledgement.
    pub settle: Arc<dyn Settle>,
}

/// A message that the queue took and whose subject names no owner, agent or kind. Unsettled ones come
/// again after the ack wait.
pub struct Unreadable {
    /// As it was published to.
    pub subject: String,
    /// What is wrong with it.
    pub reason: String,
    /// Nothing but its kind: there is none of that name.
    pub has_unknown_kind: bool,
    /// Whose it is, as far as that can be read.
    pub owner: Option<Owner>,
    /// The producer's id, when it gave one.
    pub id: Option<String>,
    /// The body as it came.
    pub body: Bytes,
    /// Stream sequence.
    pub sequence: u64,
    /// When it was published.
    pub published: Millis,
    /// Its acknowledgement.
    pub settle: Arc<dyn Settle>,
}

/// Acknowledgement of one delivery. Errors are logged by the bus: a lost one means redelivery.
#[async_trait]
pub trait Settle: Send + Sync {
    /// Done with it; never delivered again.
    async fn ack(&self);
    /// Deliver it again after `delay`.
    async fn nak(&self, delay: Duration);
    /// Still working: the ack wait starts again.
    async fn progress(&self);
}

/// A subject without storage, for what may be lost: tokens, progress, cancel signals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LiveSubject {
    /// `trellis.live.<job>`: tokens and progress.
    Job(JobId),
    /// `trellis.ctl.<tenant>.<user>`: jobs cancelled now.
    Control(Owner),
    /// A subject that a submission named as its `replyTo`.
    Reply(String),
}

/// What is said on the control subject of an owner. Anybody may have said it, unless the server knows who
/// may publish: it is a reason to look and no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Whose subject.
    pub owner: Owner,
    /// What: a job that is cancelled now.
    pub body: Bytes,
}

/// What a client of an owner asks about a submission. Anybody may have asked it, unless the server knows who may publish.
pub struct JobQuestion {
    /// The owner in its subject.
    pub owner: Owner,
    /// The header `Authorization`, which is kept nowhere.
    pub authorization: Option<String>,
    /// The body as it came: the id of the submission.
    pub body: Bytes,
    /// The subject of the answer, as the client chose it.
    pub reply: String,
}

/// A piece of a job's live text, or of its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its place: later pieces of the job have larger ones.
    pub sequence: u64,
    /// As it was sent: JSON, see `worker::live`.
    pub body: Bytes,
}

/// Why a bus call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// Not reachable or timed out. A publish may have happened: repeat it under the same id.
    #[error("bus `{bus}` is unavailable: {reason}")]
    Unavailable {
        /// Where, without credentials.
        bus: String,
        /// The driver's words.
        reason: String,
    },
    /// Surely not published.
    #[error("bus `{bus}` refused the message: {reason}")]
    Refused {
        /// Where.
        bus: String,
        /// The server's words.
        reason: String,
    },
    /// Surely not published, now or later: it has more bytes than the queue takes in one message.
    #[error("bus `{bus}` takes no message of this size: {reason}")]
    TooLarge {
        /// Address of the queue, without credentials.
        bus: String,
        /// Which limit it exceeds.
        reason: String,
    },
    /// Surely not published: nothing keeps jobs for external workers.
    #[error("bus `{bus}` has no queue for external workers: {reason}")]
    NoStream {
        /// Where.
        bus: String,
        /// What is missing, and what to do.
        reason: String,
    },
    /// Surely not published: what keeps jobs for external workers has no room for another now.
    #[error("bus `{bus}` has no room for another job: {reason}")]
    Full {
        /// Where.
        bus: String,
        /// The server's words.
        reason: String,
    },
}

impl From<BusError> for crate::store::journaled::JournalError {
    fn from(error: BusError) -> Self {
        Self(error.to_string())
    }
}

/// Bytes of the messages of one [`Bus::receive`], unless the first alone has more, or they are far larger than those
/// before: whoever takes many at once holds them in memory, and a NATS server cuts a client off that leaves too much
/// unread.
pub const RECEIVE_BYTES: usize = 8 << 20;

/// What to do when there is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenEmpty {
    /// Wait for one, up to a few seconds.
    Wait,
    /// Come back with none.
    Return,
}

/// The queue.
#[async_trait]
pub trait Bus: QueueWatch + Send + Sync + 'static {
    /// Up to `max` messages of up to [`RECEIVE_BYTES`], none when none came. A crash after it: they are delivered again
    /// after the ack wait.
    ///
    /// With a `max` of 0 nothing more is asked for: what still comes for earlier calls, none when nothing can come any more.
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError>;

    /// What came with the messages of [`Bus::receive`] and can't be delivered to anybody, once.
    fn unreadable(&self) -> Vec<Unreadable> {
        Vec::new()
    }

    /// Publishes; after it the message survives a kill of any process. `Reply` goes to whoever
    /// listens now.
    async fn publish(&self, message: &Message) -> Result<(), BusError>;

    /// Whether anything can be sent now, as far as this process knows.
    fn is_connected(&self) -> bool {
        true
    }

    /// Whether what goes there may be heard by somebody when this process has ended. What may not is lost with it and
    /// needs no place in an outbox.
    fn outlives(&self, to: &Address) -> bool;

    /// Publishes to whoever listens now.
    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError>;

    /// Listens to `from`.
    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError>;

    /// Is over when a job is told to have ended; what is told from now on is heard, as far as nothing is lost. It is
    /// a reason to look and no more.
    async fn ended(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError>;

    /// Listens to `trellis.ctl.>`: the control subjects of all owners.
    async fn control(&self) -> Result<BoxStream<'static, Signal>, BusError>;

    /// Live text of jobs, as it is kept for those who read it late.
    fn live(&self) -> &dyn LiveFeed;

    /// Producer ids of messages accepted and not acknowledged, for the audit.
    async fn in_transit(&self) -> Result<Vec<String>, BusError>;

    /// The settings on which the guarantees rest.
    async fn settings(&self) -> Result<Vec<crate::store::BackendSetting>, BusError>;

    /// What the queue remembers of what the store has done. `None`: they are one.
    fn witness(&self) -> Option<&dyn Witness> {
        None
    }

    /// Alarms for timers, of a queue that keeps the time for a fleet. `None`: workers watch it themselves.
    fn alarms(&self) -> Option<&dyn Alarms>;
}

/// Live text of jobs, kept for some minutes: a reader that comes late, or comes back, misses nothing; and questions
/// about jobs.
#[async_trait]
pub trait LiveFeed: Send + Sync {
    /// What is sent about a job from now on, and before it what was sent after the place `after` (`None`: from the
    /// first), as far as it is still kept. A place that the queue hasn't reached was one of a queue that has begun anew
    /// since: then all of it is sent.
    async fn follow(&self, job: &JobId, after: Option<u64>) -> Result<BoxStream<'static, Piece>, BusError>;

    /// Place of the last piece about a job that is still kept.
    async fn last_piece(&self, job: &JobId) -> Result<Option<u64>, BusError>;

    /// Listens to the questions of all owners; each reaches one process of those that listen. A queue inside this process
    /// has none.
    async fn questions(&self) -> Result<BoxStream<'static, JobQuestion>, BusError> {
        Ok(stream::pending().boxed())
    }
}

/// When a timer is due, as it was when the alarm was set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Alarm {
    /// Whose.
    pub owner: Owner,
    /// Which.
    pub timer: TimerId,
    /// Of the timer: one that was set anew isn't meant.
    pub generation: u64,
    /// When it is due.
    pub at: Millis,
}

/// An alarm whose time has come. Unsettled ones ring again after the ack wait.
pub struct Ringing {
    /// As it was set: only the store knows whether it still counts.
    pub alarm: Alarm,
    /// Its acknowledgement.
    pub settle: Arc<dyn Settle>,
}

/// A job of whose end the queue tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// Whose.
    pub owner: Owner,
    /// Who served it.
    pub agent: AgentId,
    /// Which.
    pub job: JobId,
}

/// A queue that survives what a store may lose.
#[async_trait]
pub trait Witness: Send + Sync {
    /// The newest mark that was left; `None` = there is none.
    async fn mark(&self) -> Result<Option<Mark>, BusError>;

    /// Leaves a mark in place of the one before it.
    async fn leave(&self, mark: &Mark) -> Result<(), BusError>;

    /// Jobs whose completions are kept, and submissions whose ids look like one.
    async fn completed(&self) -> Result<Vec<Completed>, BusError>;

    /// What was told of a job's end; `None` when it isn't kept any more.
    async fn completion(&self, of: &Completed) -> Result<Option<Completion>, BusError>;

    /// The clock by which the queue rings alarms; `None`: it doesn't tell.
    async fn time(&self) -> Result<Option<Millis>, BusError> {
        Ok(None)
    }

    /// A job that ended so long ago is deleted: what was told of it goes, too, if it can still be there.
    async fn forget(&self, of: &Completed, age: Duration) -> Result<(), BusError>;
}

/// What wakes one worker of a fleet at the time of a timer. A lost alarm only costs time: the sweep
/// finds what is due.
#[async_trait]
pub trait Alarms: Send + Sync {
    /// Has a timer ring at its time, in place of what was set for it before; at once when that has
    /// passed. It survives a kill of any process.
    async fn set(&self, alarm: &Alarm) -> Result<(), BusError>;

    /// Takes back what is set for a timer. One that rings already is still delivered.
    async fn clear(&self, owner: &Owner, timer: &TimerId) -> Result<(), BusError>;

    /// What rings, each for one listener of the fleet; ends when the connection does.
    async fn ringing(&self) -> Result<BoxStream<'static, Ringing>, BusError>;
}

/// Headers of a published message.
pub fn headers(message: &Message) -> BTreeMap<&'static str, String> {
    let mut headers = BTreeMap::new();
    if let Some(id) = &message.id {
        headers.insert(ID_HEADER, id.clone());
        match message.to {
            // The stream would drop the same id of another owner. Admission knows whose it is.
            Address::In { .. } | Address::Reply(_) => None,
            Address::Out { .. } | Address::Job { .. } => headers.insert("Nats-Msg-Id", id.clone()),
        };
    }
    headers
}

/// An error with its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
