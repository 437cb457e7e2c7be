//! Requests, messages and chats: the answers to those who give work to agents and external workers, and the arguments
//! that several callers of an operation send.

use super::job::{IgnoredView, JobView, WaitView};
use crate::domain::ids::{AgentId, JobId, QueueName, SessionId};
use crate::domain::job::{Job, JobStatus};
use crate::domain::priority::Priority;
use crate::domain::scope::HandOffRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Arguments of an operation on one thing, such as a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdRequest<'a> {
    /// Id of the thing.
    pub id: &'a str,
}

/// Arguments of `v/ops/lattice/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadValueRequest<'a> {
    /// Path of the value.
    pub path: &'a str,
    /// Most bytes of the value, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
}

/// Arguments of `v/ops/lattice/write` and, without `expect`, of `v/ops/lattice/append`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WriteValueRequest<'a> {
    /// Path of the value.
    pub path: &'a str,
    /// The new value, or the entry that is appended.
    pub value: Value,
    /// Version that the path must have; 0: there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
}

/// Arguments of `v/ops/lattice/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeleteValueRequest<'a> {
    /// Path of the value.
    pub path: &'a str,
}

/// Arguments of `v/ops/secret/set`. It has no `Debug`, as it holds the value.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct SetSecretRequest<'a> {
    /// Name of the secret.
    pub name: &'a str,
    /// Value of the secret.
    pub value: &'a str,
    /// Whether a secret of this name is replaced.
    pub overwrite: bool,
    /// Hosts that it may go to; none keeps those of the secret that it replaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<&'a str>,
}

/// Arguments of `v/ops/agent/list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentListRequest<'a> {
    /// False leaves out agents that have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_terminated: Option<bool>,
    /// Most agents of a page, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<&'a str>,
}

/// Arguments of `v/ops/agent/message`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentMessageRequest<'a> {
    /// Agent that gets the message.
    pub agent_id: &'a AgentId,
    /// Session that gets the message; absent is the main session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<&'a SessionId>,
    /// Content of the message.
    pub message: Value,
    /// Shared buckets that the turns of the message see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context_ids: Vec<String>,
}

/// Arguments of `v/ops/job/message`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobMessageRequest<'a> {
    /// Id of the job.
    pub id: &'a JobId,
    /// Content of the message.
    pub message: Value,
}

/// Arguments of `v/ops/approval/approve`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApproveRequest<'a> {
    /// Id of the approval.
    pub id: &'a str,
    /// Arguments that replace those of the model; absent keeps them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Sections of the caller's context that go with the call; absent are all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// SHA-256 of the approval as the person saw it; another one is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Arguments of `v/ops/approval/reject`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectRequest<'a> {
    /// Id of the approval.
    pub id: &'a str,
    /// Reason of the rejection, for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// SHA-256 of the approval as the person saw it; another one is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Arguments of `v/ops/approval/answer`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerRequest<'a> {
    /// Id of the approval.
    pub id: &'a str,
    /// Answers by the ids of their questions.
    pub answers: Map<String, Value>,
    /// SHA-256 of the approval as the person saw it; another one is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A job that was started and has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedRequestView {
    /// Agent that serves it; absent of an external worker's job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Queue that its external worker takes it from; absent of an agent's job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Agent elsewhere whose task it stands for; absent of all other jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a2a_agent: Option<String>,
    /// Operation of another server's tool whose call goes on; absent of all other jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The same as `job`; absent where a turn has started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// Id of the job.
    pub job: JobId,
    /// Always `STARTED`: the job is open.
    pub status: JobStatus,
    /// Parts of the request that had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredView>,
    /// Sections of the context of the turn that went with it, and why others didn't; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub scoped: Option<Vec<HandOffRecord>>,
}

impl StartedRequestView {
    /// Makes the view of an agent's job.
    pub fn of_agent(agent: AgentId, job: JobId) -> Self {
        Self { agent_id: Some(agent), ..Self::of_job(job) }
    }

    /// Makes the view of an external worker's job.
    pub fn of_queue(queue: QueueName, job: JobId) -> Self {
        Self { queue: Some(queue), ..Self::of_job(job) }
    }

    /// Makes the view of a job that stands for a task of an agent elsewhere.
    pub fn of_remote(agent: String, job: JobId) -> Self {
        Self { a2a_agent: Some(agent), ..Self::of_job(job) }
    }

    /// Makes the view of a job that stands for a call of another server's tool.
    pub fn of_tool(operation: String, job: JobId) -> Self {
        Self { tool: Some(operation), ..Self::of_job(job) }
    }

    fn of_job(job: JobId) -> Self {
        Self {
            agent_id: None,
            queue: None,
            a2a_agent: None,
            tool: None,
            id: None,
            job,
            status: JobStatus::Started,
            ignored: None,
            scoped: None,
        }
    }
}

/// A job that was started and has ended, for whoever started it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedRequestView {
    /// Id of the job.
    pub id: JobId,
    /// Status of the job.
    pub status: JobStatus,
    /// The failed job that it drives again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redrive_of: Option<JobId>,
    /// Priority of the job, -1 or 1; absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i8>", extend("enum" = [-1, 1]))]
    pub priority: Option<Priority>,
    /// Parts of the request that had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredView>,
    /// Output of a complete job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The output is a text that the model's limit of tokens cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Why it ended without an output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Agent that served it; absent of an external worker's job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The same as `id`.
    pub job: JobId,
    /// Queue of its external worker; absent of an agent's job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Agent elsewhere whose task it stands for; absent of all other jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a2a_agent: Option<String>,
    /// Session that served it; absent of an external worker's job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Why no section of the context of the turn went with it; absent where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub scoped: Option<Vec<HandOffRecord>>,
}

impl EndedRequestView {
    /// Makes the view of an agent's job.
    pub fn of_agent(agent: AgentId, job: &Job) -> Self {
        Self { agent_id: Some(agent), session_id: Some(job.head.session.clone()), ..Self::new(job) }
    }

    /// Makes the view of an external worker's job.
    pub fn of_queue(queue: QueueName, job: &Job) -> Self {
        Self { queue: Some(queue), ..Self::new(job) }
    }

    /// Makes the view of a job that stands for a task of an agent elsewhere.
    pub fn of_remote(agent: String, job: &Job) -> Self {
        Self { a2a_agent: Some(agent), ..Self::new(job) }
    }

    fn new(job: &Job) -> Self {
        let JobView { id, status, redrive_of, priority, ignored, output, truncated, error, error_code, .. } =
            JobView::from(job);
        let (job, agent_id, queue, session_id, scoped) = (id.clone(), None, None, None, None);
        Self {
            id,
            status,
            redrive_of,
            priority,
            ignored,
            output,
            truncated,
            error,
            error_code,
            agent_id,
            job,
            queue,
            a2a_agent: None,
            session_id,
            scoped,
        }
    }
}

/// A message that was sent to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SentMessageView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Always true: the message was sent.
    pub delivered: bool,
    /// Parts of the message that had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredView>,
}

/// A message to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobMessageView {
    /// Id of the job.
    pub job: JobId,
    /// Id of the message.
    pub event: String,
    /// Always `queued`: a later turn reads the message.
    #[schemars(extend("const" = "queued"))]
    pub status: String,
    /// Messages to the job that no turn has read.
    pub queue_depth: usize,
}

/// The reply of an agent to a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatReplyView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Session of the conversation.
    pub session_id: SessionId,
    /// The agent's next text after the message; null if there is none so far.
    pub response: Option<String>,
    /// Ids of the messages that it answers.
    #[serde(default)]
    pub answered: Vec<String>,
    /// Why the turn of the message has no reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Without a reply: why the session waits; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitView>,
    /// Parts of the message that had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredView>,
}
