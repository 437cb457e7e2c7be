//! Requests, messages and chats, from a turn or from outside.

use super::checks::find_existing;
use super::send::{build_submission, deliver, event_id, handed_sections, request_needs, start_child, submit};
use crate::domain::authority::ResourcePath;
use crate::domain::budget::Budget;
use crate::domain::chat::ChatMessage;
use crate::domain::decode;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, EventId, JobId, SessionId, SessionKey, hmac_hex};
use crate::domain::job::ErrorCode;
use crate::domain::lattice::Path;
use crate::domain::limits::{CHILD_WAIT, LIST_BYTES};
use crate::domain::outputs;
use crate::domain::priority::Priority;
use crate::domain::session::TurnRecord;
use crate::domain::turn::options::NamedLoads;
use crate::ops::child::{millis, still_running};
use crate::store::{keys, steps};
use crate::venue::agents;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use crate::venue::{jobs, waits};
use crate::view::job::{IgnoredView, WaitView, error_code_name};
use crate::view::request::{ChatReplyView, EndedRequestView, SentMessageView, StartedRequestView};
use crate::view::to_json;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::mem::take;
use std::time::Duration;

/// Default wait of a caller outside turns: below the 30 s after which common HTTP clients time out.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(25);
/// Pause between two checks for the reply of a chat.
const CHAT_POLL: Duration = Duration::from_millis(50);

/// Returns the operations of this group.
pub(super) fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<RequestAgent>(), operation::<MessageAgent>(), operation::<ChatAgent>()]
}

/// Defines an operation that sends something to an agent: common arguments, and its own.
macro_rules! asking {
    ($(#[$about:meta])* $name:ident { $content:ident $($(#[$meta:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        struct $name {
            agent_id: AgentId,
            $content: Value,
            session_id: Option<SessionId>,
            /// What the request may do at most, no more than you: namespaces of resources, or {with, can}; absent: what you
            /// may hand on.
            context: Option<Vec<Value>>,
            /// Shared buckets that the request shows and may fill. Trusted code says it.
            #[serde(default)]
            #[schemars(extend("x-trusted" = true))]
            context_ids: Vec<String>,
            /// Paths that the session shows from now on, each with null or {label, budget}
            #[serde(default)]
            #[schemars(with = "Map<String, Value>")]
            loads: NamedLoads,
            /// Values of the request, such as the entities that it is about; who asks is said by the token. Trusted code
            /// says it.
            #[serde(default)]
            #[schemars(extend("x-trusted" = true))]
            session_context: Map<String, Value>,
            $($(#[$meta])* $field: $kind,)*
        }

        impl $name {
            /// Returns the submission to send.
            fn submission(&mut self, call: &Invocation<'_>) -> Result<Submission, OpError> {
                let said = Submission {
                    input: self.$content.take(),
                    session_id: self.session_id.take(),
                    session_context: take(&mut self.session_context),
                    context_ids: take(&mut self.context_ids),
                    loads: take(&mut self.loads.0),
                    ..Submission::default()
                };
                build_submission(call, self.context.take(), said)
            }
        }
    };
}

asking! {
    /// Give a task to an agent. A fast answer comes back at once; otherwise status is STARTED and the result arrives later
    /// as a pending job result.
    RequestAgent {
        input
        /// milliseconds in which a fast answer comes back at once; false: none, true: the usual ones
        #[schemars(extend("type" = ["integer", "boolean"], "minimum" = 0))]
        wait: Option<Value>,
        /// milliseconds as `wait`, which counts before it
        timeout: Option<u64>,
        /// What the task and everything under it may use at most; it can only tighten what is left.
        #[serde(default)]
        budget: Budget,
        /// JSON Schema of the output
        #[schemars(with = "Option<Map<String, Value>>")]
        response_schema: Option<Value>,
        /// an output that isn't what `responseSchema` says fails the task, which is always so
        strict: Option<bool>,
        /// 1 goes before the other tasks of the agent, -1 behind them; 0 by default
        #[serde(default)]
        #[schemars(schema_with = "priorities")]
        priority: Priority,
        /// where the output is written with the commit that completes the task, below w/ or o/
        output_path: Option<String>,
    }
}

asking! {
    /// Send a one-way message to an agent; no answer is awaited.
    MessageAgent { message }
}

asking! {
    /// Send a message to an agent and wait for its next reply: in a new session, whose id is in the answer, or in one that
    /// there is.
    ChatAgent {
        message
        timeout: Option<u64>,
    }
}

/// Returns the schema of a task's priority.
pub(crate) fn priorities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "enum": [-1, 0, 1]})
}

impl RequestAgent {
    /// Returns the milliseconds to wait for the answer; `None` is the default.
    fn wait(&self) -> Result<Option<u64>, OpError> {
        match &self.wait {
            None | Some(Value::Bool(true)) => Ok(None),
            Some(Value::Bool(false)) => Ok(Some(0)),
            Some(given) => {
                let wrong =
                    || OpError::Invalid(format!("`wait`: expected milliseconds, `true` or `false`, got {given}"));
                given.as_u64().map(Some).ok_or_else(wrong)
            }
        }
    }

    /// Returns the path to which the output is written.
    fn output_path(&self) -> Result<Option<Path>, OpError> {
        let path = self.output_path.as_deref().map(Path::parse_output).transpose();
        path.map_err(|e| OpError::Invalid(format!("`outputPath`: {e}")))
    }

    /// Returns the schema that the output must fit.
    fn response_schema(&mut self) -> Result<Option<Value>, OpError> {
        match (&self.response_schema, self.strict) {
            (None, Some(true)) => Err(OpError::Invalid("`strict`: expected `responseSchema` with it".into())),
            (Some(_), Some(false)) => {
                let why = "`strict`: an output always is what `responseSchema` says, or its task fails; leave it out";
                Err(OpError::Invalid(why.into()))
            }
            (None, _) => Ok(None),
            (Some(schema), _) => {
                outputs::check(schema).map_err(|error| OpError::Invalid(format!("`responseSchema`: {error}")))?;
                Ok(self.response_schema.take())
            }
        }
    }
}

impl Operation for RequestAgent {
    const PATH: &'static str = "v/ops/agent/request";
    const EFFECT: Effect = Effect::Idempotent;
    const TAKES_SECTIONS: bool = true;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let (ability, resource) = request_needs(&self.agent_id);
        let mut needs = vec![Need::new(ability, resource)];
        needs.extend(self.output_path()?.map(|path| Need::new("crud/write", &path)));
        Ok(needs)
    }

    async fn run(mut self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        self.budget.check().map_err(|error| OpError::Invalid(format!("`budget`: {error}")))?;
        let submission = Submission {
            budget: self.budget,
            response_schema: self.response_schema()?,
            priority: self.priority,
            output_path: self.output_path.clone(),
            ..self.submission(call)?
        };
        let wait = self.wait()?;
        let (left_at, agent) = (self.output_path()?, self.agent_id);
        let (job, wait) = match &call.site {
            Site::Turn(site) => {
                let submission = Submission { handed: handed_sections(site), ..submission };
                (start_child(call, site, &agent, submission).await?, millis(wait.or(self.timeout), CHILD_WAIT))
            }
            Site::Api { key, .. } => {
                let submitted = submit(call, key.clone(), &agent, true, submission).await?;
                let job = submitted.job.ok_or_else(|| OpError::Failed("a task without a job".into()))?;
                (job, millis(wait.or(self.timeout), DEFAULT_TIMEOUT))
            }
        };
        if let Some(path) = left_at {
            // The output will be there, whether or not this call waits for it.
            call.reads.note_kept(ResourcePath::job(&job), format!("j/{job}/output"));
            call.reads.note_copies(&[path.to_string()]);
        }
        await_answer(call, agent, job, wait).await
    }
}

/// Returns the answer to a request, after it has waited for the job.
async fn await_answer(call: &Invocation<'_>, agent: AgentId, job: JobId, wait: Duration) -> Result<OpOutput, OpError> {
    let known = jobs::wait(call.venue, &call.caller.owner, &job, wait).await?;
    let ignored = known.as_ref().map(|job| job.head.ignored.clone()).unwrap_or_default();
    let ended = known.filter(|job| job.status.is_terminal());
    if ended.is_some() {
        call.reads.note_kept(ResourcePath::job(&job), format!("j/{job}/output"));
    }
    Ok(match (&call.site, ended) {
        (_, Some(done)) => OpOutput::of(&EndedRequestView::of_agent(agent, &done)),
        (Site::Turn(site), None) => still_running(site, StartedRequestView::of_agent(agent, job)),
        (Site::Api { .. }, None) => {
            let (id, ignored) = (Some(job.clone()), IgnoredView::of_keys(&ignored));
            OpOutput::of(&StartedRequestView { id, ignored, ..StartedRequestView::of_agent(agent, job) })
        }
    })
}

impl Operation for MessageAgent {
    const PATH: &'static str = "v/ops/agent/message";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/message", ResourcePath::agent(&self.agent_id))
    }

    async fn run(mut self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let submission = self.submission(call)?;
        let ignored = deliver(call, &self.agent_id, event_id(call), submission).await?;
        let ignored = IgnoredView::of_keys(&ignored);
        Ok(OpOutput::of(&SentMessageView { agent_id: self.agent_id, delivered: true, ignored }))
    }
}

/// Returns the session of a chat: the named one, which must exist, or a new one. The id of a new one is a function of
/// the message's id, so that a repeated chat continues in it.
async fn chat_session(
    call: &Invocation<'_>,
    agent: &AgentId,
    event: &EventId,
    named: Option<&SessionId>,
) -> Result<SessionKey, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let Some(session) = named else {
        let place = to_json(&("chat", owner.token(), agent, event)).to_string();
        let digits = &hmac_hex(&venue.key, place.as_bytes())[..16];
        let session = SessionId::new(format!("chat-{digits}")).expect("hex digits are a legal id");
        return Ok(SessionKey { agent: agent.clone(), session });
    };
    let key = SessionKey { agent: agent.clone(), session: session.clone() };
    if agents::sessions::find(venue, owner, &key).await?.is_some() {
        return Ok(key);
    }
    find_existing(call, agent).await?;
    Err(OpError::NotFound(format!(
        "agent `{agent}` has no session `{session}`; leave `sessionId` out and a new one is made, its id is in the answer"
    )))
}

/// Sends a message, and returns the first text of the agent after it has read the message.
impl Operation for ChatAgent {
    const PATH: &'static str = "v/ops/agent/chat";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("agent/message", ResourcePath::agent(&self.agent_id))
    }

    async fn run(mut self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let event = event_id(call);
        let submission = self.submission(call)?;
        let agent = self.agent_id;
        let key = chat_session(call, &agent, &event, submission.session_id.as_ref()).await?;
        let session = key.session.clone();
        let submission = Submission { session_id: Some(session.clone()), ..submission };
        let ignored = IgnoredView::of_keys(&deliver(call, &agent, event.clone(), submission).await?);
        let deadline = call.venue.clock.steady() + millis(self.timeout, DEFAULT_TIMEOUT);
        let mut answer = ChatReplyView {
            agent_id: agent,
            session_id: session,
            response: None,
            answered: Vec::new(),
            error: None,
            error_code: None,
            waiting: None,
            ignored,
        };
        loop {
            if let Some(reply) = reply_to(call, &key, &event).await? {
                answer.error = reply.failed.map(|_| reply.error().to_owned());
                answer.error_code = reply.failed.and_then(error_code_name);
                (answer.response, answer.answered) = (Some(reply.text), vec![event.as_str().to_owned()]);
                return Ok(OpOutput::of(&answer));
            }
            if call.venue.clock.steady() >= deadline {
                let (owner, reader) = (&call.caller.owner, call.caller.reader());
                let waiting = waits::session_reason(call.venue, owner, &reader, &key).await?;
                answer.waiting = waiting.as_ref().map(WaitView::from);
                return Ok(OpOutput::of(&answer));
            }
            tokio::time::sleep(CHAT_POLL).await;
        }
    }
}

/// The agent's next text after a message.
struct ChatReply {
    text: String,
    /// Code of the failure, if the text is the error of a turn without a reply.
    failed: Option<ErrorCode>,
}

impl ChatReply {
    /// Returns the error of a failed turn, which its record shows in brackets.
    fn error(&self) -> &str {
        let text = self.text.as_str();
        text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text)
    }
}

async fn reply_to(call: &Invocation<'_>, session: &SessionKey, event: &EventId) -> Result<Option<ChatReply>, OpError> {
    let (owner, turns) = (&call.caller.owner, keys::turns(session));
    let range = steps::KeyRange::descending(&turns);
    let newest = steps::scan(&*call.venue.store, owner, range, 20, LIST_BYTES).await?.docs;
    let mut text = None;
    // Newest first: the loop keeps the earliest text at or after the turn that consumed the event.
    for (_, doc) in newest {
        let Some(record) = doc.value.and_then(|b| decode::read_stored::<TurnRecord>(&b).ok()) else { continue };
        if !call.caller.reading_authority().covers_reading(record.call_authority()) {
            continue;
        }
        if let Some(said) = final_text(&record) {
            text = Some(ChatReply { text: said, failed: record.failed });
        }
        if record.events.contains(event) {
            return Ok(text);
        }
    }
    Ok(None)
}

fn final_text(record: &TurnRecord) -> Option<String> {
    if record.frame != 0 {
        // The result of an inner goal is not for the caller.
        return None;
    }
    record.said.iter().find_map(|message| match message {
        ChatMessage::Assistant { text, calls, .. } if calls.is_empty() => Some(text.clone()),
        ChatMessage::Assistant { .. } | ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
    })
}
