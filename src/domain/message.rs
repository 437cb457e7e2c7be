//! Messages of the queue: a JSON body and an address.

use crate::ids::{AgentId, Owner, QueueName, SessionKey};
use crate::notification::NotificationKind;
use crate::trace::TraceParent;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Kind of an inbound message, the last token of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InboundKind {
    /// Requests a task. Body: [`crate::event::Submission`].
    Task,
    /// Sends a message. Body: [`crate::event::Submission`].
    Message,
    /// Delivers the result of a job. Body: [`crate::event::ResultBody`].
    Result,
    /// Cancels a job. Body: `{"job": …}`.
    Cancel,
    /// Pauses a job, so that no turn begins for it. Body: `{"job": …}`.
    Pause,
    /// Resumes a paused job. Body: `{"job": …}`.
    Resume,
    /// Answers an approval. Body: [`crate::approval::AnswerBody`].
    Decide,
    /// Makes a worker look at a session; it is no event. Body: `{"session": …}`.
    Wake,
}

/// Address of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageAddress {
    /// `trellis.in.<tenant>.<user>.<agent>.<kind>`: to a worker.
    In {
        /// Owner of the agent.
        owner: Owner,
        /// Agent that gets the message.
        agent: AgentId,
        /// Kind of the message.
        kind: InboundKind,
    },
    /// `trellis.out.<tenant>.<user>.<agent>.<job>`: a completion, for any subscriber.
    Out {
        /// Owner of the agent.
        owner: Owner,
        /// Agent that served the job.
        agent: AgentId,
        /// Id of the job, or of the event of a refused submission.
        job: String,
    },
    /// `trellis.events.<tenant>.<user>.<agent>.<kind>`: a notification, for any subscriber.
    Event {
        /// Owner of what it is about.
        owner: Owner,
        /// Agent that it is about.
        agent: AgentId,
        /// Kind of the notification.
        kind: NotificationKind,
    },
    /// `trellis.jobs.<queue>`: to an external worker, whose result comes back as an answer.
    Job {
        /// Queue of the workers.
        queue: QueueName,
        /// Owner of the job.
        owner: Owner,
        /// Agent that gets the result.
        agent: AgentId,
    },
    /// A subject that a submission named; on core NATS, not stored.
    Reply(String),
}

/// A message to publish.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BusMessage {
    /// Address of the message.
    pub to: MessageAddress,
    /// Deduplication id: the header `Trellis-Id`, and `Nats-Msg-Id` of completions, notifications and external jobs;
    /// wakes have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The JSON body.
    pub body: Value,
    /// Header `traceparent`: the span that sends the message; absent while traces are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

impl BusMessage {
    /// Makes a message that wakes a session; if it is lost, the sweep finds the session.
    pub fn wake(owner: &Owner, session: &SessionKey) -> Self {
        let to = MessageAddress::In { owner: owner.clone(), agent: session.agent.clone(), kind: InboundKind::Wake };
        Self { to, id: None, body: json!({"session": session.session}), trace: None }
    }

    /// Makes a wake that also says that the owner has more due sessions than it is woken for: a worker with free slots
    /// then asks the store.
    pub fn wake_of_many(owner: &Owner, session: &SessionKey) -> Self {
        let Self { to, id, mut body, trace } = Self::wake(owner, session);
        body["more"] = json!(true);
        Self { to, id, body, trace }
    }
}
