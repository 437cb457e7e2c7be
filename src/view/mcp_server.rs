//! Answers about the servers of the Model Context Protocol whose tools agents use.

use super::mcp_login::McpLoginView;
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A server whose tools agents use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServerView {
    /// Name of the server.
    pub name: String,
    /// Agent that has declared it; absent for a server of the venue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// URL of the server.
    pub url: String,
    /// Number of approved tools; 0 before the server was first used.
    pub tools: usize,
    /// Time of their approval, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub approved: Option<Millis>,
    /// Who approved them; `first use` stands for the list that was found first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// Number of tools that differ from what was approved, and aren't used until the change is approved.
    pub changed: usize,
    /// Why this process could not ask the server last; absent if it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Login there; absent if nobody has logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<McpLoginView>,
}

/// The servers that an owner's agents may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServersView {
    /// Servers of the venue and of the agents that were named, by name.
    pub items: Vec<McpServerView>,
}

/// A server with its tools, and the change that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServerDetailView {
    /// State of the server, as in the list.
    pub server: McpServerView,
    /// Tools that were approved.
    pub tools: Vec<McpServerToolView>,
    /// Tools that can't be used.
    pub skipped: Vec<McpSkippedToolView>,
    /// Change that waits for approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<McpChangeView>,
}

/// An approved tool of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpServerToolView {
    /// Name of the tool at its server.
    pub name: String,
    /// Path of its operation.
    pub operation: String,
    /// What a call may do: `read`, `repeatable` or `once`.
    pub effect: String,
    /// What the tool does, in the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A tool that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpSkippedToolView {
    /// Name of the tool.
    pub name: String,
    /// Why it can't be used.
    pub reason: String,
}

/// A change of a server's tools that waits for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpChangeView {
    /// Hash of the change, which its approval names.
    pub hash: String,
    /// Time at which it was first seen, in milliseconds since the epoch.
    #[schemars(with = "u64")]
    pub found: Millis,
    /// Differences, tool by tool.
    pub differences: Vec<McpDifferenceView>,
}

/// A difference between an approved tool and the one that the server lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpDifferenceView {
    /// Name of the tool.
    pub tool: String,
    /// `added`, `removed` or `changed`.
    pub kind: String,
    /// Key that differs, such as `description`.
    pub key: String,
    /// Approved value; null if there is none.
    pub before: Value,
    /// Value that the server lists; null if there is none.
    pub after: Value,
}

/// The approved tools of a server, as Covia's clients read them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpListedToolsView {
    /// Tools in the order of the server.
    pub tools: Vec<McpListedToolView>,
    /// Number of the tools.
    pub total: usize,
}

/// A tool with its schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpListedToolView {
    /// Name of the tool at its server.
    pub name: String,
    /// What the tool does, in the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}

/// Input of a job that stands for a call of a tool which goes on after its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpPendingCallView {
    /// Name of the server.
    pub server: String,
    /// Name of the tool at the server.
    pub tool: String,
}
