//! Stage 1, arrive: an event of a mailbox, and the submission from which it is made.

mod hash;
mod order;

use crate::job::Parent;
pub use order::mailbox_key;

use crate::authority::envelope::Envelope;
use crate::budget::Budget;
use crate::ids::{AgentId, EventId, JobId, Owner, SessionId, SessionKey};
use crate::job::{JobHead, JobResult};
use crate::limits::REPLY_SUBJECT_BYTES;
use crate::lineage::Lineage;
use crate::load::{Load, read_requested};
use crate::priority::Priority;
use crate::scope::DelegateContext;
use crate::time::Millis;
use crate::trace::TraceParent;
use crate::values::Values;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use hash::{asked_hash, body_hash};

/// Pattern of a name that a sender may choose, as far as a regular expression allows.
pub const NAME: &str = "^(?!\\.{1,2}$)[^\\s/\\u0000-\\u001f\\u007f]{1,128}$";

/// Pattern of a subject that answers may go to, as far as a regular expression allows.
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
    /// Returns the storage letter.
    pub const fn letter(self) -> char {
        match self {
            Self::Task => 't',
            Self::Message => 'm',
            Self::Result => 'r',
        }
    }

    /// Reads the letter of [`EventKind::letter`].
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
    /// Id that the producer gave.
    pub id: EventId,
    /// Sender of the event: an owner, or `agent:<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Time of publication, or of receipt over HTTP.
    pub received: Millis,
    /// NATS subject that the completion is published to besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Turn that started it, if an agent did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Values for its turns: stored here alone, and deleted with the event.
    #[serde(default, skip_serializing_if = "Values::is_empty")]
    pub session_context: Values,
    /// Shared buckets that its turns see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// Upper bound of what its turns may do.
    #[serde(default, skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
    /// Budget of a task and of everything under it.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// Sections of the caller's context that a delegate gets.
    #[serde(default, skip_serializing_if = "DelegateContext::is_empty")]
    pub handed: DelegateContext,
    /// Paths that the session shows from its first turn on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// Path at which the commit that completes a task writes its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_path: Option<String>,
    /// JSON Schema of a task's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// Priority of a task among the tasks of its agent.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// Dead task that this one redrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// Span that sent it: turns that serve it are linked to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// Content of the event.
    #[serde(flatten)]
    pub payload: Payload,
}

/// Content of an event, by its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Payload {
    /// A persistent request.
    Task {
        /// Job that the task opened.
        job: JobId,
        /// Input of the task.
        input: Value,
    },
    /// An ephemeral notification.
    Message {
        /// Content of the message.
        input: Value,
        /// Task that the message belongs to: only turns of that task read it, as part of its request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<JobId>,
    },
    /// The completion of an outbound job.
    Result {
        /// Job that was completed.
        job: JobId,
        /// Result of the job.
        result: JobResult,
    },
    /// A person answered an approval. The answer is stored with the approval; this event wakes the session.
    Decision {
        /// Approval that was answered.
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
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Values::is_empty")]
    pub session_context: Values,
    /// Shared buckets that its turns see, and may write: not handed on, and no access boundary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// Grants: what its turns may do at most; absent = what the caller may, empty = nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<Value>>,
    /// Sender. Outside callers can't set it: the venue does.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Turn that waits for the result, if an agent sent it. Only the venue's own messages have one.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Authority of the sender. Only the venue's own messages have one.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
    /// Sections that a delegate gets. Only the venue's own messages have any.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "DelegateContext::is_empty")]
    pub handed: DelegateContext,
    /// What the task and everything under it may use at most.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// Paths that the session shows from the first turn of this request on, each alone or as `{path, label, budget}`.
    #[schemars(with = "Vec<Value>")]
    #[serde(default, deserialize_with = "read_requested", skip_serializing_if = "Vec::is_empty")]
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
    /// Dead task that this one redrives. Only the venue's own submissions have one.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// Seal of the venue over all of this, which marks its own messages in the queue.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// Reads `null` as an absent value.
fn null_as_default<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Values, D::Error> {
    Ok(Option::<Values>::deserialize(from)?.unwrap_or_default())
}

/// Body of a result in the queue, for the session that waits for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultBody {
    /// Session that waits for the result.
    pub session_id: SessionId,
    /// Job that was completed.
    pub job: JobId,
    /// Result of the job.
    pub result: JobResult,
    /// Reference to an output that `result` doesn't hold; absent where it holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_omitted: Option<OmittedOutput>,
}

/// Key of [`OmittedOutput`] in the message of a job's end.
pub const OUTPUT_OMITTED: &str = "outputOmitted";

/// Reference to the output of a job that has more bytes than the queue takes in one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OmittedOutput {
    /// Bytes of the output as JSON.
    pub bytes: usize,
    /// Owner of the job.
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
    /// Id that the producer gave the submission.
    pub id: EventId,
    /// Job of the submission; absent when it was refused before a job existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Agent that the submission was sent to.
    pub agent: AgentId,
    /// Session that served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Reference to an output that `result` doesn't hold; absent where it holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_omitted: Option<OmittedOutput>,
    /// Result of the submission.
    #[serde(flatten)]
    pub result: JobResult,
}

impl Event {
    /// Makes an event with this content and no sender.
    pub fn new(id: EventId, received: Millis, payload: Payload) -> Self {
        Self {
            id,
            caller: None,
            received,
            reply_to: None,
            parent: None,
            session_context: Values::new(),
            context_ids: Vec::new(),
            handed: DelegateContext::default(),
            envelope: Envelope::default(),
            budget: Budget::default(),
            loads: Vec::new(),
            output_path: None,
            response_schema: None,
            priority: Priority::Normal,
            redrive_of: None,
            trace: None,
            payload,
        }
    }

    /// Returns the head of the job that a task opened in `session`; `None` for other events.
    pub fn job_head(&self, session: &SessionKey) -> Option<JobHead> {
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

    /// Returns the request behind the event.
    pub fn mandate(&self) -> Mandate {
        Mandate {
            event: Some(self.id.clone()),
            session_context: self.session_context.clone(),
            context_ids: self.context_ids.clone(),
            envelope: self.envelope.clone(),
        }
    }

    /// Returns the job that it opens or completes.
    pub const fn job(&self) -> Option<&JobId> {
        match &self.payload {
            Payload::Task { job, .. } | Payload::Result { job, .. } => Some(job),
            Payload::Message { .. } | Payload::Decision { .. } => None,
        }
    }

    /// Returns the task that opened a job, as it was sent, and the hash of its body; `None` where parts of it are gone.
    pub fn from_job(head: &JobHead) -> Option<(Self, &str)> {
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

/// Returns the session of a task without `sessionId`: a new one per task.
pub fn new_session_id(job: &JobId) -> SessionId {
    SessionId::new(format!("s-{}", &job.as_str()[..16])).expect("hex digits are a legal id")
}

/// The request behind an event: the values and the authority with which its turns run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Mandate {
    /// Event of the request; it is the origin of what its turns cause when no request is above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    /// Values for its turns.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub session_context: Values,
    /// Shared buckets that its turns see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
    /// Upper bound of what its turns may do.
    #[serde(skip_serializing_if = "Envelope::is_default")]
    pub envelope: Envelope,
}

impl Mandate {
    /// Returns the lineage that its turns hand on.
    pub fn lineage(&self) -> Lineage {
        self.envelope.lineage.for_turn(self.event.as_ref())
    }

    /// Whether a turn caused it.
    pub const fn is_caused(&self) -> bool {
        self.envelope.lineage.origin.is_some()
    }

    /// Whether one turn may serve both.
    pub fn may_share_turn(&self, other: &Self) -> bool {
        self.session_context == other.session_context
            && self.context_ids == other.context_ids
            && self.envelope.may_share_turn(&other.envelope)
    }
}

/// Whether a submission may name this `replyTo`: `_INBOX.>` or `trellis.reply.<tenant>.<user>.>`.
pub fn is_reply_allowed(subject: &str, tenant: &str, user: &str) -> bool {
    // A server drops a connection on which a subject is longer than its control line.
    let legal = subject.len() <= REPLY_SUBJECT_BYTES
        && !subject.split('.').any(|token| token.is_empty() || token == "*" || token == ">")
        && !subject.chars().any(|c| c.is_whitespace() || c.is_control());
    legal && (subject.starts_with("_INBOX.") || subject.starts_with(&format!("trellis.reply.{tenant}.{user}.")))
}

/// Whether a submission may name this `replyTo` where callers are identified. `_INBOX.>` is refused: anybody can read
/// and write there.
pub fn is_own_reply_subject(subject: &str, tenant: &str, user: &str) -> bool {
    is_reply_allowed(subject, tenant, user) && !subject.starts_with("_INBOX.")
}

/// Prefix of a reply subject of another account of the server.
const OTHER_ACCOUNT: &str = "_R_.";

/// Whether a request over the queue is answered at this subject. The venue may publish anywhere, so it answers to the
/// client's own inboxes alone; `is_identified`: a token says who the client is.
pub fn is_answer_allowed(subject: &str, owner: Option<&Owner>, is_identified: bool) -> bool {
    let (tenant, user) = owner.map(|owner| (owner.tenant().token(), owner.user().token())).unwrap_or_default();
    let allowed = if is_identified { is_own_reply_subject } else { is_reply_allowed };
    subject.starts_with(OTHER_ACCOUNT) || allowed(subject, &tenant, &user)
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
            assert_eq!(is_reply_allowed(subject, "t", "u"), allowed, "{subject}");
            assert_eq!(is_own_reply_subject(subject, "t", "u"), own, "{subject}");
        }
    }

    #[test]
    fn unknown_keys_of_a_submission_are_refused_by_name() {
        let error = serde_json::from_str::<Submission>(r#"{"inptu": 1}"#).unwrap_err();
        assert!(error.to_string().contains("`inptu`"), "{error}");
    }
}
