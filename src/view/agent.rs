//! Answers about agents and their configuration.

use crate::domain::authority::Capability;
use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::view::job::{IgnoredView, WaitView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Whether an agent runs now, and whether it takes work, spelled as on the HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum AgentActivity {
    /// Takes work, and no turn of it runs.
    Sleeping,
    /// Takes work, and a turn of it runs.
    Running,
    /// Takes work, and runs none until it is resumed.
    Suspended,
    /// Has ended: it takes no work.
    Terminated,
}

impl AgentActivity {
    /// Returns the word of the HTTP API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sleeping => "SLEEPING",
            Self::Running => "RUNNING",
            Self::Suspended => "SUSPENDED",
            Self::Terminated => "TERMINATED",
        }
    }
}

/// A page of an owner's agents, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentPage {
    /// Agents of the page.
    #[serde(default)]
    pub agents: Vec<AgentRowView>,
    /// `after` of the next page; null where this page isn't full.
    pub next: Option<AgentId>,
}

/// An agent in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRowView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// Whether it runs now, and whether it takes work.
    pub status: AgentActivity,
    /// The beginning of its description; null without one.
    pub description: Option<String>,
}

/// Record of an agent, and the reason why it waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Record of the agent.
    #[serde(flatten)]
    pub agent: AgentRecordView,
    /// Why it waits; null while none of its sessions does.
    pub waiting: Option<WaitView>,
    /// True where `waiting` looked only at some of its sessions, because it has too many; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_partial: Option<bool>,
}

/// Record of an agent: its status, its configuration and its amount of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRecordView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// Whether it runs now, and whether it takes work.
    pub status: AgentActivity,
    /// Its configuration, as an agent file has it.
    #[schemars(with = "Map<String, Value>")]
    pub config: Value,
    /// Capabilities `{with, can}` of whoever configured it; null where nothing limits them.
    pub creator_caps: Option<Vec<Capability>>,
    /// Version of the configuration, from 1.
    pub config_version: u64,
    /// Number of committed turns of its first 1,000 sessions together.
    pub timeline_length: u64,
    /// Number of tasks in the mailboxes of its first 1,000 sessions.
    pub tasks: usize,
    /// Number of its sessions; 1,000 if it has more.
    pub sessions: usize,
    /// Time of its creation, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub created: Millis,
    /// Time of the last change of its configuration or status, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub updated: Millis,
    /// Why it is suspended; null else.
    pub error: Option<String>,
}

/// An agent after its configuration was applied as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedAgentView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// Effect on the agent.
    #[schemars(extend("enum" = ["created", "updated", "unchanged"]))]
    pub result: String,
    /// Whether it runs now, and whether it takes work.
    pub status: AgentActivity,
    /// Version of the configuration, from 1.
    pub config_version: u64,
    /// Providers, operations and abilities that the configuration names and the venue doesn't know, and keys of models
    /// that are missing.
    pub warnings: Vec<String>,
}

/// Answer to the creation of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedAgentView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// Whether it runs now, and whether it takes work.
    pub status: AgentActivity,
    /// Whether the agent was created now.
    pub created: bool,
    /// Whether it existed and has another configuration now.
    pub updated: bool,
    /// Version of the configuration, from 1.
    pub config_version: u64,
    /// Providers, operations and abilities that the configuration names and the venue doesn't know, and keys of models
    /// that are missing.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Answer to a dry run of a creation: the whole configuration, and its warnings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentDryRunView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// Always true: nothing was changed.
    pub dry_run: bool,
    /// The configuration with all of its layers.
    #[schemars(with = "Map<String, Value>")]
    pub config: Value,
    /// Providers, operations and abilities that the configuration names and the venue doesn't know, and keys of models
    /// that are missing.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// An agent after keys of its configuration were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdatedAgentView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// Whether it runs now, and whether it takes work.
    pub status: AgentActivity,
    /// Version of the configuration, from 1.
    pub config_version: u64,
    /// Whether the configuration is another one now.
    pub updated: bool,
    /// Why it is suspended; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Providers, operations and abilities that the configuration names and the venue doesn't know, and keys of models
    /// that are missing.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// An agent after it was suspended or resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSwitchView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// Whether it runs now, and whether it takes work.
    pub status: AgentActivity,
    /// Version of the configuration, from 1.
    pub config_version: u64,
    /// Whether the call has changed the status.
    pub changed: bool,
    /// Why it is suspended; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An agent that has ended, or was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentEndView {
    /// Name of the agent.
    pub agent_id: AgentId,
    /// `TERMINATED`, unless it was created anew meanwhile.
    pub status: AgentActivity,
    /// Version of the configuration, from 1; absent of a removed agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u64>,
    /// True where its sessions and documents were deleted and its name is free; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
    /// Number of unfinished tasks that were cancelled.
    pub cancelled: usize,
    /// Why it was suspended; absent of an agent that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An agent with the configuration and state of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkedAgentView {
    /// Name of the new agent.
    pub agent_id: AgentId,
    /// Whether it runs now, and whether it takes work.
    pub status: AgentActivity,
    /// Version of the configuration, from 1.
    pub config_version: u64,
    /// The agent that was forked.
    pub from: AgentId,
    /// Why it is suspended; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The same as `from`, under Covia's name.
    pub forked_from: AgentId,
    /// False where it replaced the configuration and state of an agent of that name.
    pub created: bool,
}

/// A task of an agent after it was asked to be cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelledTaskView {
    /// Agent of the task.
    pub agent_id: AgentId,
    /// Job of the task.
    pub task_id: JobId,
    /// Status of the job.
    pub status: JobStatus,
    /// False where the job had ended before.
    pub cancelled: bool,
}

/// A task that was ended for its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedTaskView {
    /// Agent of the task.
    pub agent_id: AgentId,
    /// Job of the task.
    pub task_id: JobId,
    /// Status of the job.
    pub status: JobStatus,
}

/// Receipt of a task or a message that was accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptView {
    /// Id of the job of a task; of a message the same as `event`.
    pub id: String,
    /// Idempotency key of the submission: the one that the sender gave, or one that was made for it.
    pub event: String,
    /// Agent that it was sent to.
    pub agent: AgentId,
    /// Session that serves it.
    pub session: SessionId,
    /// Whether the same submission was accepted before.
    pub duplicate: bool,
    /// Job of the task; absent of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Parts of the request that had no effect; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<IgnoredView>,
    /// What is perhaps a mistake in the grants of the request: abilities that nothing needs; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Status of the job; absent of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<JobStatus>,
    /// Output of a complete job; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// True where the output is a text that the model's limit of tokens cut off; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Why the job ended without an output; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Code of the error; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::AgentActivity;
    use crate::domain::decode;
    use crate::view::to_json;
    use serde_json::Value;

    #[test]
    fn the_status_of_an_agent_has_one_word_everywhere() {
        for (activity, word) in [
            (AgentActivity::Sleeping, "SLEEPING"),
            (AgentActivity::Running, "RUNNING"),
            (AgentActivity::Suspended, "SUSPENDED"),
            (AgentActivity::Terminated, "TERMINATED"),
        ] {
            assert_eq!((activity.as_str(), to_json(&activity)), (word, Value::from(word)));
            assert_eq!(decode::into_type::<AgentActivity>(word.into()), Ok(activity));
        }
    }
}
