//! What travels through the queue: a JSON body and where it goes.

use crate::ids::{AgentId, Owner, QueueName, SessionKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What an inbound message is, the last token of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InKind {
    /// Body: [`crate::event::Submission`].
    Task,
    /// Body: [`crate::event::Submission`].
    Message,
    /// Body: [`crate::event::ResultBody`].
    Result,
    /// Body: `{"job": …}`.
    Cancel,
    /// Body: `{"job": …}`: no turn begins for it.
    Pause,
    /// Body: `{"job": …}`: a paused one goes on.
    Resume,
    /// Body: an answer to an approval, see [`crate::approval::AnswerBody`].
    Decide,
    /// Body: `{"session": …}`: look at that session now. No event of its own.
    Wake,
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// `trellis.in.<tenant>.<user>.<agent>.<kind>`: to a worker.
    In {
        /// Whose.
        owner: Owner,
        /// To whom.
        agent: AgentId,
        /// What.
        kind: InKind,
    },
    /// `trellis.out.<tenant>.<user>.<agent>.<job>`: a completion, for anybody who listens.
    Out {
        /// Whose.
        owner: Owner,
        /// Who did it.
        agent: AgentId,
        /// The job, or the event id of a refused submission.
        job: String,
    },
    /// `trellis.jobs.<queue>`: to an external worker, whose result comes back as an answer.
    Job {
        /// Whose workers.
        queue: QueueName,
        /// Whose job.
        owner: Owner,
        /// The agent that gets the result.
        agent: AgentId,
    },
    /// A subject that a submission named; core NATS, not stored.
    Reply(String),
}

/// A message to publish.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Where to.
    pub to: Address,
    /// Deduplication id: the header `Trellis-Id`, and `Nats-Msg-Id` of completions and external jobs; wakes have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The JSON body.
    pub body: Value,
}

impl Message {
    /// Has a worker look at a session now; lost, the sweep finds the session.
    pub fn wake(owner: &Owner, session: &SessionKey) -> Self {
        let to = Address::In { owner: owner.clone(), agent: session.agent.clone(), kind: InKind::Wake };
        Self { to, id: None, body: json!({"session": session.session}) }
    }

    /// The same, and the owner has more sessions that are due than it is told of: a worker that has room for them asks
    /// the store.
    pub fn wake_of_many(owner: &Owner, session: &SessionKey) -> Self {
        let Self { to, id, mut body } = Self::wake(owner, session);
        body["more"] = json!(true);
        Self { to, id, body }
    }
}
