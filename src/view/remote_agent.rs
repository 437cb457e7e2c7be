//! Answers about agents elsewhere that agents give work to by the Agent2Agent protocol, and what they have answered.

use crate::domain::a2a::answer::RemoteState;
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An agent elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteAgentView {
    /// Name of the agent in the configuration.
    pub name: String,
    /// Agent that has declared it; absent for one of the venue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// URL of the configuration.
    pub url: String,
    /// Path of the operation that sends it a message.
    pub operation: String,
    /// Time at which its card was approved, in milliseconds since the epoch; absent before its first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub approved: Option<Millis>,
    /// Who approved it; `first use` stands for the card that was found first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// Whether its card differs from what was approved, so that it isn't called until the change is approved.
    pub changed: bool,
    /// Why this process could not ask it for its card last; absent if it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The agents elsewhere that an owner's agents may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteAgentsView {
    /// Agents of the venue and of the agent that was named, by name.
    pub items: Vec<RemoteAgentView>,
}

/// An agent elsewhere with its card, and the change that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteAgentDetailView {
    /// State of the agent, as in the list.
    pub agent: RemoteAgentView,
    /// Name on its approved card; absent before its first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description on its approved card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Skills that models read of.
    pub skills: Vec<CardSkillView>,
    /// Addresses of its approved card that can be asked, the preferred one first.
    pub addresses: Vec<String>,
    /// Change that waits for approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<CardChangeView>,
}

/// A skill on a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CardSkillView {
    /// Id of the skill.
    pub id: String,
    /// What it does, in the agent's words.
    pub description: String,
}

/// A change of a card that waits for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CardChangeView {
    /// Hash of the change, which its approval names.
    pub hash: String,
    /// Time at which it was first seen, in milliseconds since the epoch.
    #[schemars(with = "u64")]
    pub found: Millis,
    /// Differences, key by key.
    pub differences: Vec<CardDifferenceView>,
}

/// A difference between the approved card and that of now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CardDifferenceView {
    /// Key of the card that differs, such as `description`.
    pub key: String,
    /// Approved value; null if there is none.
    pub before: Value,
    /// Value of now; null if there is none.
    pub after: Value,
}

/// Output of a job that stands for a task of an agent elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteResultView {
    /// Name of the agent in the configuration.
    pub agent: String,
    /// `completed`, `input-required` or `auth-required`.
    pub state: RemoteState,
    /// Id of the task at the agent; absent for a message without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Id of the context at the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// What the caller may do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Asset with the whole answer, where that is larger than a result may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// What is missing in this result, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Texts of the agent, one below the other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Values of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<Value>,
    /// Files of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RemoteFileView>,
}

/// A file of an agent elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteFileView {
    /// Name of the file; absent if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Media type of the file.
    pub media_type: String,
    /// Address of the file, which the venue doesn't call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Asset with its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset: Option<String>,
    /// Why its bytes weren't stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}
