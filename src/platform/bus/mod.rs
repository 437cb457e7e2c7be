//! Seam 2, [`Bus`]: the queue that makes the fleet act at once on what the store contains. A lost message only costs
//! time: the sweep finds what is due.

mod backlog;
pub mod credentials;
pub mod embedded;
pub mod nats;
pub mod rights;
pub mod subject;

pub use backlog::{Backlog, QueueWatch, WaitingMessage};

use crate::domain::event::Completion;
use crate::domain::generation::GenerationMark;
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::domain::message::{BusMessage, InboundKind, MessageAddress};
use crate::domain::time::Millis;
use crate::domain::timer::TimerId;
use crate::domain::trace::{TRACEPARENT, TraceParent};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Header with the producer's event id. `Nats-Msg-Id` isn't used: its ids are shared by all owners within the stream's
/// window of duplicates.
pub const ID_HEADER: &str = "Trellis-Id";

/// Header with the token of the user for whom a message is sent, in the queue and HTTP.
pub const AUTHORIZATION_HEADER: &str = "Authorization";

/// A message taken from the queue. Unsettled ones are delivered again after the ack wait.
pub struct Delivery {
    /// Owner of the agent.
    pub owner: Owner,
    /// Agent that the message is for.
    pub agent: AgentId,
    /// Kind of the message.
    pub kind: InboundKind,
    /// Id that the producer gave, if any.
    pub id: Option<String>,
    /// The header `Authorization`, which is never stored.
    pub authorization: Option<String>,
    /// The header `traceparent`, if it is valid.
    pub trace: Option<TraceParent>,
    /// The body as it was received.
    pub body: Bytes,
    /// Place among all messages to agents.
    pub sequence: u64,
    /// Number of deliveries, 1 = the first.
    pub delivered: u64,
    /// Time of its publication.
    pub published: Millis,
    /// Handle to acknowledge the delivery.
    pub settle: Arc<dyn Acknowledge>,
}

/// A message of the queue whose subject names no valid owner, agent or kind. Unsettled ones are delivered again after
/// the ack wait.
pub struct UndecodedMessage {
    /// Subject that it was published to.
    pub subject: String,
    /// What is wrong with the message.
    pub reason: String,
    /// Whether only its kind is unknown.
    pub has_unknown_kind: bool,
    /// Its owner, if the subject names a valid one.
    pub owner: Option<Owner>,
    /// Id that the producer gave, if any.
    pub id: Option<String>,
    /// The body as it was received.
    pub body: Bytes,
    /// Place among all messages to agents.
    pub sequence: u64,
    /// Time of its publication.
    pub published: Millis,
    /// Handle to acknowledge the delivery.
    pub settle: Arc<dyn Acknowledge>,
}

/// Acknowledgement of one delivery. The bus logs errors: a lost acknowledgement means redelivery.
#[async_trait]
pub trait Acknowledge: Send + Sync {
    /// Acknowledges the message, which is never delivered again.
    async fn ack(&self);
    /// Asks for redelivery after `delay`.
    async fn nak(&self, delay: Duration);
    /// Starts the ack wait again, because the work goes on.
    async fn progress(&self);
}

/// A subject without storage, for what may be lost: tokens, progress, cancellations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LiveSubject {
    /// `trellis.live.<job>`: tokens and progress of a job.
    Job(JobId),
    /// `trellis.ctl.<tenant>.<user>`: cancellations of jobs.
    Control(Owner),
    /// A subject that a submission named as its `replyTo`.
    Reply(String),
}

/// A message on the control subject of an owner. It isn't authenticated unless the server knows who may publish, so it
/// is only a reason to read the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Owner of the subject.
    pub owner: Owner,
    /// JSON of the job that is cancelled.
    pub body: Bytes,
}

/// A client's question about a submission. It isn't authenticated unless the server knows who may publish.
pub struct JobQuestion {
    /// The owner in its subject.
    pub owner: Owner,
    /// The header `Authorization`, which is never stored.
    pub authorization: Option<String>,
    /// The body as it was received: the id of the submission.
    pub body: Bytes,
    /// The subject of the answer, as the client chose it.
    pub reply: String,
}

/// A submission whose sender waits for the answer: it is stored nowhere before it is admitted. It isn't authenticated
/// unless the server knows who may publish.
pub struct DirectSubmission {
    /// Owner, agent and kind of its subject.
    pub to: Result<(Owner, AgentId, InboundKind), subject::SubjectError>,
    /// Id that the producer gave, if any.
    pub id: Option<String>,
    /// The header `Authorization`, which is never stored.
    pub authorization: Option<String>,
    /// The header `traceparent`, if it is valid.
    pub trace: Option<TraceParent>,
    /// The body as it was received.
    pub body: Bytes,
    /// The subject of the answer, as the client chose it.
    pub reply: String,
    /// Bytes of the whole message, with all of its headers: so much stays in memory while it waits.
    pub bytes: usize,
}

/// A piece of a job's live text, or of its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivePiece {
    /// Sequence number in the queue: later pieces of the job have larger ones.
    pub sequence: u64,
    /// JSON as it was sent, see `worker::live_text`.
    pub body: Bytes,
}

/// Why a bus call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// The queue can't be reached or timed out. A publish may have happened: repeat it under the same id.
    #[error("bus `{bus}` is unavailable: {reason}")]
    Unavailable {
        /// Address of the queue, without credentials.
        bus: String,
        /// Error text of the driver.
        reason: String,
    },
    /// The message was not published.
    #[error("bus `{bus}` refused the message: {reason}")]
    Refused {
        /// Address of the queue, without credentials.
        bus: String,
        /// Error text of the server.
        reason: String,
    },
    /// The message was not published and never will be: it has more bytes than the queue allows.
    #[error("bus `{bus}` takes no message of this size: {reason}")]
    TooLarge {
        /// Address of the queue, without credentials.
        bus: String,
        /// Which limit it exceeds.
        reason: String,
    },
    /// The job was not published: there is no stream of jobs for external workers.
    #[error("bus `{bus}` has no queue for external workers: {reason}")]
    NoStream {
        /// Address of the queue, without credentials.
        bus: String,
        /// What is missing, and what to do.
        reason: String,
    },
    /// The job was not published: the stream of jobs for external workers is full.
    #[error("bus `{bus}` has no room for another job: {reason}")]
    Full {
        /// Address of the queue, without credentials.
        bus: String,
        /// Error text of the server.
        reason: String,
    },
}

impl From<BusError> for crate::store::journaled::JournalError {
    fn from(error: BusError) -> Self {
        Self(error.to_string())
    }
}

/// Most bytes of the messages of one [`Bus::receive`], unless the first alone has more, or they are far larger than
/// those before. A receiver holds them in memory, and a NATS server disconnects a client that leaves too much unread.
pub const RECEIVE_BYTES: usize = 8 << 20;

/// What [`Bus::receive`] does if there is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenEmpty {
    /// Waits for one, up to a few seconds.
    Wait,
    /// Returns none at once.
    Return,
}

/// The queue of messages between producers, workers and listeners.
#[async_trait]
pub trait Bus: QueueWatch + Send + Sync + 'static {
    /// Returns up to `max` messages of up to [`RECEIVE_BYTES`], or none. After a crash they are delivered again, when
    /// the ack wait is over.
    ///
    /// A `max` of 0 requests nothing new: it returns what still arrives for earlier calls, or none when nothing can
    /// arrive.
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError>;

    /// Returns messages that came with [`Bus::receive`] and can't be delivered, each once.
    fn take_unreadable(&self) -> Vec<UndecodedMessage> {
        Vec::new()
    }

    /// Publishes a message, which then survives a kill of any process. A `Reply` goes only to current listeners.
    async fn publish(&self, message: &BusMessage) -> Result<(), BusError>;

    /// Returns since when no message can be sent, as far as this process knows; `None` while one can.
    fn outage(&self) -> Option<Millis> {
        None
    }

    /// Whether the address has listeners outside this process. A message without them is lost with the process and
    /// needs no place in an outbox.
    fn has_outside_listeners(&self, to: &MessageAddress) -> bool;

    /// Publishes to the current listeners.
    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError>;

    /// Listens to a subject from now on.
    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError>;

    /// Returns a future that ends when the end of a job is announced after this call, unless the message is lost. It is
    /// only a reason to read the job.
    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError>;

    /// Listens to `trellis.ctl.>`: the control subjects of all owners.
    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError>;

    /// Returns the live text of jobs, as it is kept for late readers.
    fn live_feed(&self) -> &dyn LiveFeed;

    /// Returns the producer ids of messages that are stored and not acknowledged, for the audit.
    async fn in_transit(&self) -> Result<Vec<String>, BusError>;

    /// Returns the settings of the queue on which the guarantees depend.
    async fn settings(&self) -> Result<Vec<crate::store::BackendSetting>, BusError>;

    /// Returns what the queue remembers of the store's changes. `None`: store and queue are one.
    fn witness(&self) -> Option<&dyn Witness> {
        None
    }

    /// Returns the alarms for timers of a queue that keeps the time for a fleet. `None`: workers read the store's
    /// timers.
    fn alarms(&self) -> Option<&dyn Alarms>;
}

/// What passes without a stream that keeps it: live text of jobs, which is kept for some minutes so that late and
/// returning readers miss nothing, submissions whose senders wait, and questions about jobs.
#[async_trait]
pub trait LiveFeed: Send + Sync {
    /// Returns the pieces of a job from now on, and before them those after the sequence number `after` (`None`: from the
    /// first) that are still kept. A number that the queue hasn't reached belongs to an earlier queue: then all pieces
    /// are returned.
    async fn follow(&self, job: &JobId, after: Option<u64>) -> Result<BoxStream<'static, LivePiece>, BusError>;

    /// Returns the sequence number of the last piece about a job that is still kept.
    async fn last_piece(&self, job: &JobId) -> Result<Option<u64>, BusError>;

    /// Deletes the pieces of these jobs that are still kept; a queue without any keeps its default.
    async fn forget(&self, _jobs: &[JobId]) -> Result<(), BusError> {
        Ok(())
    }

    /// Listens to `trellis.do.>`: submissions whose senders wait, each for one of the listening processes. From `until` on
    /// no new ones come, and the stream ends after the last that is on its way here. A queue inside this process has
    /// none.
    async fn direct_submissions(
        &self,
        until: CancellationToken,
    ) -> Result<BoxStream<'static, DirectSubmission>, BusError> {
        Ok(stream::pending().take_until(until.cancelled_owned()).boxed())
    }

    /// Listens to the questions of all owners; each reaches one of the listening processes. A queue inside this process
    /// has none.
    async fn questions(&self) -> Result<BoxStream<'static, JobQuestion>, BusError> {
        Ok(stream::pending().boxed())
    }
}

/// The time of a timer, as it was when the alarm was set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Alarm {
    /// Owner of the timer.
    pub owner: Owner,
    /// Id of the timer.
    pub timer: TimerId,
    /// Generation of the timer: the alarm doesn't count for a timer that was set again.
    pub generation: u64,
    /// Time at which the timer is due.
    pub at: Millis,
}

/// An alarm whose time has come. Unsettled ones ring again after the ack wait.
pub struct RingingAlarm {
    /// The alarm as it was set: only the store knows whether it still counts.
    pub alarm: Alarm,
    /// Handle to acknowledge the alarm.
    pub settle: Arc<dyn Acknowledge>,
}

/// A job whose completion is in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedJob {
    /// Owner of the job.
    pub owner: Owner,
    /// Agent that served it.
    pub agent: AgentId,
    /// Id of the job.
    pub job: JobId,
}

/// A queue that survives what a store may lose.
#[async_trait]
pub trait Witness: Send + Sync {
    /// Returns the newest mark; `None` if there is none.
    async fn mark(&self) -> Result<Option<GenerationMark>, BusError>;

    /// Writes a mark in place of the one before it.
    async fn write_mark(&self, mark: &GenerationMark) -> Result<(), BusError>;

    /// Returns the jobs whose completions are kept, and refused submissions whose ids look like a job's.
    async fn completed_jobs(&self) -> Result<Vec<CompletedJob>, BusError>;

    /// Returns the completion of a job; `None` if it isn't kept any more.
    async fn completion(&self, of: &CompletedJob) -> Result<Option<Completion>, BusError>;

    /// Returns the clock by which the queue rings alarms; `None` if the queue doesn't report it.
    async fn time(&self) -> Result<Option<Millis>, BusError> {
        Ok(None)
    }

    /// Removes the completion of a deleted job that ended `age` ago, if it can still be there.
    async fn forget(&self, of: &CompletedJob, age: Duration) -> Result<(), BusError>;
}

/// Wakes one worker of a fleet at the time of a timer. A lost alarm only costs time: the sweep finds what is due.
#[async_trait]
pub trait Alarms: Send + Sync {
    /// Sets the alarm of a timer in place of its earlier one; it rings at once if its time has passed. It survives a
    /// kill of any process.
    async fn set(&self, alarm: &Alarm) -> Result<(), BusError>;

    /// Removes the alarm of a timer. One that rings already is still delivered.
    async fn clear(&self, owner: &Owner, timer: &TimerId) -> Result<(), BusError>;

    /// Returns ringing alarms, each for one listener of the fleet; ends when the connection does.
    async fn listen_ringing(&self) -> Result<BoxStream<'static, RingingAlarm>, BusError>;
}

/// Returns the headers of a published message.
pub fn headers(message: &BusMessage) -> BTreeMap<&'static str, String> {
    let mut headers = BTreeMap::new();
    if let Some(id) = &message.id {
        headers.insert(ID_HEADER, id.clone());
        match message.to {
            // The stream would drop the same id of another owner. Admission deduplicates by owner.
            MessageAddress::In { .. } | MessageAddress::Reply(_) => None,
            MessageAddress::Out { .. } | MessageAddress::Event { .. } | MessageAddress::Job { .. } => {
                headers.insert("Nats-Msg-Id", id.clone())
            }
        };
    }
    if let Some(trace) = &message.trace {
        headers.insert(TRACEPARENT, trace.to_string());
    }
    headers
}

/// Returns an error with its causes in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
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
