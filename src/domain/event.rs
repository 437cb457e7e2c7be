//! Stage 1, arrive: an inbound event as it lies in a mailbox, and the submission it is made of.

mod hash;
mod order;

use crate::job::Parent;
pub use order::order;

use crate::authority::envelope::Envelope;
use crate::budget::Budget;
use crate::ids::{AgentId, EventId, JobId, Owner, SessionId, SessionKey};
use crate::job::{JobHead, JobResult};
use crate::limits::REPLY_SUBJECT_BYTES;
use crate::lineage::Lineage;
use crate::load::Load;
use crate::priority::Priority;
use crate::scope::Handed;
use crate::time::Millis;
use crate::values::Values;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use hash::body_hash;

/// A name of a sender's choosing, as far as a pattern can say it.
pub const NAME: &str = "^(?!\\.{1,2}$)[^\\s/\\u0000-\\u001f\\u007f]{1,128}$";

/// A subject that answers may go to, as far as a pattern can say it.
const REPLY: &str = "^(_INBOX|trellis\\.reply\\.[^.*>\\s\\u0000-\\u001f\\u007f]+\\.[^.*>\\s\\u0000-\\u001f\\u007f]+)(\\.[^.*>\\s\\u0000-\\u001f\\u007f]+)+$";

/// Default session of messages that name none.
pub const DEFAULT_SESSION: &str = "main";

/// Kind of a mailbox event, in one letter in storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// `t`: persistent request with a job behind it.
    Task,
    /// `m`: ephemeral notification.
    Message,
    /// `r`: completion of an outbound job.
    Result,
}

impl EventKind {
    /// The storage letter.
    pub const fn letter(self) -> char {
        match self {
            Self::Task => 't',
            Self::Message => 'm',
            Self::Result => 'r',
        }
    }

    /// The inverse of [`EventKind::letter`].
    pub const fn from_letter(letter: char) -> Option<Self> {
        match letter {
            't' => Some(Self::Task),
            'm' => Some(Self::Message),
            'r' => Some(Self::Result),
            _ => None,
        }
    }
}

/// One event of a mailbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The producer's id.
    pub id: EventId,
    /// Who sent it: an owner, or `agent:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// When it was published, or received over HTTP.
    pub received: Millis,
    /// Where else the completion goes: a NATS subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The turn that started it, when an agent did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Values for its turns: kept here and nowhere else, and deleted with it.
    #[serde(default, skip_serializing_if = "Values::is_empty")]
    pub session_context: Values,
    /// Shared buckets that its turns see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// What its turns may do at most.
    #[serde(default, skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
    /// What a task and everything under it may use at most.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// What a delegate brings along of its caller's context.
    #[serde(default, skip_serializing_if = "Handed::is_empty")]
    pub handed: Handed,
    /// Paths that the session shows from its first turn on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Where a task's output is written with the commit that completes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    /// JSON Schema of a task's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// How urgent a task is.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// The dead task that it drives again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// What it says.
    #[serde(flatten)]
    pub payload: Payload,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Payload {
    /// A persistent request.
    Task {
        /// The job it opened.
        job: JobId,
        /// Its input.
        input: Value,
    },
    /// An ephemeral notification.
    Message {
        /// Its content.
        input: Value,
        /// The task that it belongs to: it is read in the turns of that one alone, as part of its request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<JobId>,
    },
    /// The completion of an outbound job.
    Result {
        /// The completed job.
        job: JobId,
        /// How it ended.
        result: JobResult,
    },
    /// A person has answered. The answer itself stands with the approval: this wakes the session.
    Decision {
        /// What was answered.
        approval: JobId,
    },
}

/// Body of a submission over NATS, and of `submit` and `message` over HTTP.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Submission {
    /// Task input or message content; `{"$asset": "a/HASH"}` in it shows that picture or file.
    #[serde(default)]
    pub input: Value,
    /// Conversation to use; a task without one gets its own, a message goes to `main`.
    #[schemars(with = "Option<String>", regex(pattern = NAME))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// NATS subject for the completion: `_INBOX.>` or `trellis.reply.<tenant>.<user>.>`.
    #[schemars(regex(pattern = REPLY))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Values for the turns of this request, by key.
    #[schemars(with = "Option<Values>")]
    #[serde(default, deserialize_with = "or_nothing", skip_serializing_if = "Values::is_empty")]
    pub session_context: Values,
    /// Shared buckets that its turns see, and may write: not handed on, and no access boundary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// Grants: what its turns may do at most; absent = what the caller may, empty = nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<Value>>,
    /// Who sent it. From outside it counts for nothing: the venue says who.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The waiting turn, when an agent did. Only the venue's own messages have one.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// What the sender may do. Only the venue's own messages have one.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
    /// What a delegate brings along. Only the venue's own messages have any.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Handed::is_empty")]
    pub handed: Handed,
    /// What the task and everything under it may use at most.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// Paths that the session shows from the first turn of this request on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Where a task's output is written with the commit that completes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    /// JSON Schema of the output of a task, in the place of the `outputs` of its agent.
    #[schemars(with = "Option<Map<String, Value>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// Of a task: 1 goes before the other tasks of its agent, -1 behind them; 0 by default.
    #[schemars(with = "i8", range(min = -1, max = 1))]
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// The open job that a message belongs to: needs `job/message` on it, too.
    #[schemars(with = "Option<String>", regex(pattern = "^(0x)?[0-9a-fA-F]{32}$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The dead task that it drives again. Only the venue's own submissions have one.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// The venue's seal on all of this, by which it knows its own messages in the queue.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// `null` is as absent.
fn or_nothing<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Values, D::Error> {
    Ok(Option::<Values>::deserialize(from)?.unwrap_or_default())
}

/// Body of a result on its way to the session that waits for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultBody {
    /// The waiting session.
    pub session_id: SessionId,
    /// The completed job.
    pub job: JobId,
    /// How it ended.
    pub result: JobResult,
    /// Its output, which `result` doesn't hold; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_omitted: Option<OmittedOutput>,
}

/// Key of [`OmittedOutput`] in the message of a job's end.
pub const OUTPUT_OMITTED: &str = "outputOmitted";

/// Where the output of a job lies that has more bytes than the queue takes in one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OmittedOutput {
    /// Its size as JSON.
    pub bytes: usize,
    /// Whose job it is.
    pub owner: Owner,
    /// Path by which the owner's agents read it.
    pub path: String,
    /// Path of the job over HTTP.
    pub url: String,
}

/// Body of a completion on `trellis.out.…` and on `replyTo`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The producer's id of the submission.
    pub id: EventId,
    /// Its job; absent when the submission was refused before one existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The agent.
    pub agent: AgentId,
    /// The session that served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// How it ended.
    #[serde(flatten)]
    pub result: JobResult,
}

impl Event {
    /// One that says this, from nobody in particular.
    pub fn new(id: EventId, received: Millis, payload: Payload) -> Self {
        Self {
            id,
            caller: None,
            received,
            reply_to: None,
            parent: None,
            session_context: Values::new(),
            context_ids: Vec::new(),
            handed: Handed::default(),
            envelope: Envelope::default(),
            budget: Budget::default(),
            loads: Vec::new(),
            output_path: None,
            response_schema: None,
            priority: Priority::Normal,
            redrive_of: None,
            payload,
        }
    }

    /// The head of the job that a task opened in `session`.
    pub fn head(&self, session: &SessionKey) -> Option<JobHead> {
        let Payload::Task { job, input } = &self.payload else { return None };
        Some(JobHead {
            id: job.clone(),
            op: None,
            event: self.id.clone(),
            agent: session.agent.clone(),
            session: session.session.clone(),
            caller: self.caller.clone(),
            input: input.clone(),
            hidden: None,
            created: self.received,
            parent: self.parent.clone(),
            reply_to: self.reply_to.clone(),
            redrive_of: self.redrive_of.clone(),
            priority: self.priority,
            principal: None,
            request: None,
            bound: None,
            ignored: Vec::new(),
            under: self.envelope.trail(),
        })
    }

    /// The request that it is.
    pub fn mandate(&self) -> Mandate {
        Mandate {
            event: Some(self.id.clone()),
            session_context: self.session_context.clone(),
            context_ids: self.context_ids.clone(),
            envelope: self.envelope.clone(),
        }
    }

    /// The job it opens or completes.
    pub const fn job(&self) -> Option<&JobId> {
        match &self.payload {
            Payload::Task { job, .. } | Payload::Result { job, .. } => Some(job),
            Payload::Message { .. } | Payload::Decision { .. } => None,
        }
    }

    /// The task that opened a job, as it was, and the hash of its body; `None` when what it was isn't known any more.
    pub fn of_job(head: &JobHead) -> Option<(Self, &str)> {
        let request = head.request.as_deref().filter(|request| head.op.is_none() && !request.had_values)?;
        let payload = Payload::Task { job: head.id.clone(), input: head.input.clone() };
        let event = Self {
            caller: head.caller.clone(),
            reply_to: head.reply_to.clone(),
            parent: head.parent.clone(),
            context_ids: request.context_ids.clone(),
            envelope: request.envelope.clone(),
            budget: request.budget,
            handed: request.handed.clone(),
            loads: request.loads.clone(),
            output_path: request.output_path.clone(),
            response_schema: request.response_schema.clone(),
            redrive_of: head.redrive_of.clone(),
            priority: head.priority,
            ..Self::new(head.event.clone(), head.created, payload)
        };
        Some((event, &request.body_hash))
    }
}

/// The session that a task without `sessionId` runs in: its own.
pub fn fresh_session(job: &JobId) -> SessionId {
    SessionId::new(format!("s-{}", &job.as_str()[..16])).expect("hex digits are a legal id")
}

/// The request behind an event: whose values and whose authority its turns run with.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Mandate {
    /// The event that it came with: the origin of what its turns cause, when nothing is above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    /// Values for its turns.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub session_context: Values,
    /// Shared buckets that they see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// What they may do at most.
    #[serde(skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
}

impl Mandate {
    /// Where it comes from, as its turns hand it on.
    pub fn lineage(&self) -> Lineage {
        self.envelope.lineage.of_turn(self.event.as_ref())
    }

    /// A turn has caused it.
    pub const fn is_caused(&self) -> bool {
        self.envelope.lineage.origin.is_some()
    }

    /// One turn may serve both.
    pub fn is_same(&self, other: &Self) -> bool {
        self.session_context == other.session_context
            && self.context_ids == other.context_ids
            && self.envelope.is_same_authority(&other.envelope)
    }
}

/// A `replyTo` that a submission may name: `_INBOX.>` or `trellis.reply.<tenant>.<user>.>`.
pub fn reply_to_allowed(subject: &str, tenant: &str, user: &str) -> bool {
    // A server drops a connection on which a subject is longer than its control line.
    let legal = subject.len() <= REPLY_SUBJECT_BYTES
        && !subject.split('.').any(|token| token.is_empty() || token == "*" || token == ">")
        && !subject.chars().any(|c| c.is_whitespace() || c.is_control());
    legal && (subject.starts_with("_INBOX.") || subject.starts_with(&format!("trellis.reply.{tenant}.{user}.")))
}

/// One that a submission may name where callers are recognised: `_INBOX.>` is everybody's, and what is
/// sent there says who sends it as little as who reads it.
pub fn reply_to_own(subject: &str, tenant: &str, user: &str) -> bool {
    reply_to_allowed(subject, tenant, user) && !subject.starts_with("_INBOX.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_to_is_limited_to_inboxes_and_the_owners_reply_subjects() {
        for (subject, allowed, own) in [
            ("_INBOX.abc.1", true, false),
            ("trellis.reply.t.u.x", true, true),
            ("trellis.reply.t.v.x", false, false),
            ("trellis.in.t.u.a.task", false, false),
            ("trellis.out.t.v.a.j", false, false),
            ("_INBOX.", false, false),
            ("_INBOX.>", false, false),
            (&format!("_INBOX.{}", "x".repeat(2_000)), false, false),
            ("_INBOX.a b", false, false),
        ] {
            assert_eq!(reply_to_allowed(subject, "t", "u"), allowed, "{subject}");
            assert_eq!(reply_to_own(subject, "t", "u"), own, "{subject}");
        }
    }

    #[test]
    fn unknown_keys_of_a_submission_are_refused_by_name() {
        let error = serde_json::from_str::<Submission>(r#"{"inptu": 1}"#).unwrap_err();
        assert!(error.to_string().contains("`inptu`"), "{error}");
    }
}
