//! Answers about sessions, conversations and transcripts.

use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::load::Load;
use crate::domain::time::Millis;
use crate::view::job::WaitView;
use crate::view::ledger::TurnRecordView;
use crate::view::pipeline::PipelineRunView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A page of an agent's sessions, by id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Sessions of the page.
    #[serde(default)]
    pub sessions: Vec<SessionRowView>,
    /// Sessions of the page.
    pub count: usize,
    /// Sessions that were left out before the page; null where the page was asked for with `after`.
    pub offset: Option<usize>,
    /// `after` of the next page; null after the last.
    pub next: Option<SessionId>,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionRowView {
    /// Id of the session.
    pub session_id: SessionId,
    /// Title for people; null without one.
    pub title: Option<String>,
    /// `RUNNING` while a worker holds it, `WAITING` while events wait for a worker.
    #[schemars(extend("enum" = ["RUNNING", "IDLE", "WAITING"]))]
    pub status: String,
    /// Number of committed turns.
    pub turns: u64,
    /// Turns of its current conversation: those before its time to live was over don't count.
    pub turn_count: u64,
    /// Whether the time to live of its conversation is over, so that the next turn begins another one.
    pub expired: bool,
    /// Time of its last event, turn or change, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub updated: Millis,
    /// Tasks in its mailbox.
    pub tasks: usize,
    /// Messages in its mailbox.
    pub messages: usize,
    /// Results in its mailbox.
    pub results: usize,
    /// Time at which it is due again, in milliseconds since 1970; null while it isn't.
    #[schemars(with = "Option<u64>")]
    pub due: Option<Millis>,
    /// Paths that it has loaded; only the lattice shows them, at `g/<agent>/sessions/<session>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Vec<Load>>,
    /// State of the run of a pipeline, of the last one when none is open; only the lattice shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineRunView>,
}

/// A page of a session's transcript, turn by turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionTurnsPage {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Id of the session.
    pub session_id: SessionId,
    /// Turns, oldest first.
    #[serde(default)]
    pub turns: Vec<TurnRecordView>,
    /// `after` of the next page; null after the last.
    pub next: Option<u64>,
    /// Why the session waits; absent while it doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitView>,
}

/// A session as a conversation: its newest messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Always true: something was sent to the session.
    pub found: bool,
    /// Id of the session.
    pub session_id: SessionId,
    /// Messages, oldest first.
    #[serde(default)]
    pub messages: Vec<ConversationMessageView>,
    /// Title for people; null without one.
    pub title: Option<String>,
    /// Time of the last event, turn or change of the session, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub updated: Millis,
    /// Turns of the session's current conversation: those before its time to live was over don't count.
    pub turn_count: u64,
    /// Whether the time to live of the conversation is over, so that the next turn begins another one.
    pub expired: bool,
    /// Whether it has older messages.
    pub truncated: bool,
}

/// A conversation that doesn't exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingConversationView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Always false: nothing was sent to the session.
    pub found: bool,
    /// The session; null where none was named and the agent has none.
    pub session_id: Option<SessionId>,
    /// Always empty: there is no conversation.
    #[serde(default)]
    pub messages: Vec<ConversationMessageView>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationMessageView {
    /// Role of its speaker.
    pub role: ConversationRole,
    /// Text of the message.
    pub content: String,
    /// Turns that a summary stands for; absent of other messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Number of its turn, of a summary that of the last turn.
    pub turn: u64,
    /// Begin of its turn where a user wrote it, else the end of that turn, in milliseconds since 1970; absent of a
    /// summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub ts: Option<Millis>,
    /// Job of a task; absent of other messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Calls of tools that came with it; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ConversationCallView>,
    /// Id of the call whose result it is; absent of other messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Tool whose result it is; absent of other messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True of a summary whose text the reader may not read; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
}

/// Who said a message of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ConversationRole {
    /// A caller of the agent.
    User,
    /// The agent's model.
    Assistant,
    /// A tool: the result of a call.
    Tool,
    /// A summary stands for turns.
    Summary,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationCallView {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the model wrote them: any JSON, and a text where it wrote none.
    pub arguments: Value,
}

/// A session that was branched off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkedSessionView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// The new session.
    pub session_id: SessionId,
    /// The session that was copied.
    pub from: SessionId,
    /// Turns of the new session.
    pub turns: u64,
}

/// A session that has another title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenamedSessionView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Id of the session.
    pub session_id: SessionId,
    /// The title; null where it was removed.
    pub title: Option<String>,
}

/// A session whose turns a summary stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompactedSessionView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Id of the session.
    pub session_id: SessionId,
    /// False where it had no turns to stand for.
    pub compacted: bool,
    /// Turns that the summary stands for.
    pub archived_turns: u32,
}

/// A session whose context was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReloadedContextView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Id of the session.
    pub session_id: SessionId,
    /// Always true: the context was read again.
    pub reloaded: bool,
    /// Open goals, the conversation itself included.
    pub frames: usize,
    /// Sections of the context that can't be read.
    #[serde(default)]
    pub unread: Vec<UnreadSectionView>,
}

/// A section of a context that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreadSectionView {
    /// Its key, as in the ledger of a prompt.
    pub key: String,
    /// Why it is absent, in one word.
    #[schemars(extend("enum" = ["missing", "denied", "failed"]))]
    pub status: String,
    /// Why it is absent, in words; null where the word says all.
    pub reason: Option<String>,
}

/// A session that was asked to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletedSessionView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Id of the session.
    pub session_id: SessionId,
    /// False where there was no such session.
    pub deleted: bool,
}
