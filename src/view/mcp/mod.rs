//! Answers to programs that speak the Model Context Protocol, for its revisions 2025-11-25 and 2026-07-28. Fields that
//! only one revision has are added where a message is made.

mod elicitation;
mod job;
mod task;

pub use elicitation::{McpElicitation, McpInputRequest};
pub use job::{McpJobView, McpTextContent, McpToolResult, ask_output_schema};
pub use task::{McpTask, McpTaskStatus};

use super::to_json;
use serde::Serialize;
use serde_json::{Map, Value};

/// Returns the parameter of a method that the header `Mcp-Name` repeats.
pub fn named_parameter(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Version of JSON-RPC in every message.
const JSON_RPC: &str = "2.0";

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpFault {
    /// Code of the error: of JSON-RPC, of the protocol, or an HTTP status.
    pub code: i64,
    /// Text of the error.
    pub message: String,
    /// Facts for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// Answer to a request that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpResultMessage {
    jsonrpc: &'static str,
    /// Id of the request.
    pub id: Value,
    /// Result of the method.
    pub result: Map<String, Value>,
}

impl McpResultMessage {
    /// Makes the answer to the request of this id.
    pub const fn new(id: Value, result: Map<String, Value>) -> Self {
        Self { jsonrpc: JSON_RPC, id, result }
    }
}

/// Answer to a request that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpErrorMessage {
    jsonrpc: &'static str,
    /// Id of the request; absent where it couldn't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
    /// Reason of the failure.
    pub error: McpFault,
}

impl McpErrorMessage {
    /// Makes the answer to the request of this id.
    pub const fn new(id: Option<Value>, error: McpFault) -> Self {
        Self { jsonrpc: JSON_RPC, id, error }
    }
}

/// Message that expects no answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpNotification {
    jsonrpc: &'static str,
    /// Kind of the notification.
    pub method: &'static str,
    /// Content of the notification.
    pub params: Value,
}

impl McpNotification {
    /// Makes a notification of these parameters.
    pub fn new(method: &'static str, params: &impl Serialize) -> Self {
        Self { jsonrpc: JSON_RPC, method, params: to_json(params) }
    }
}

/// Progress of a request that runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpProgress {
    /// Token that the request has given.
    pub progress_token: Value,
    /// Seconds that the request has run.
    pub progress: u64,
    /// What it waits for.
    pub message: String,
}

/// Name and version of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpImplementation {
    /// Name for programs.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Version of the program.
    pub version: String,
}

/// Answer to `initialize`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpInitialized {
    /// Revision that client and server speak.
    pub protocol_version: String,
    /// Capabilities of the server by name.
    pub capabilities: Map<String, Value>,
    /// Name and version of the server.
    pub server_info: McpImplementation,
    /// Advice for models.
    pub instructions: String,
}

/// Answer to `server/discover`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpDiscovery {
    /// Revisions that the server speaks.
    pub supported_versions: Vec<&'static str>,
    /// Capabilities of the server by name.
    pub capabilities: Map<String, Value>,
    /// Advice for models.
    pub instructions: String,
}

/// A capability that reports changes of its list or of its things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpCapability {
    /// Whether changes of the list are told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub list_changed: bool,
    /// Whether changes of one thing are told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub subscribe: bool,
}

/// Facts of an unsupported revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpVersionFacts {
    /// Revisions that the server speaks.
    pub supported: Vec<&'static str>,
    /// Revision that the request names.
    pub requested: String,
}

/// Facts of a capability that a client must declare.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpMissingCapability {
    /// Capabilities as the client must declare them.
    pub required_capabilities: Map<String, Value>,
}

/// A tool as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpTool {
    /// Name of the tool.
    pub name: String,
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description for models.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Hints about the effect of a call.
    pub annotations: McpToolHints,
}

/// Hints about the effect of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct McpToolHints {
    /// Whether a call changes nothing.
    #[serde(rename = "readOnlyHint")]
    pub read_only: bool,
    /// Whether a call may take something away.
    #[serde(rename = "destructiveHint")]
    pub destructive: bool,
    /// Whether a second call with the same arguments changes nothing more.
    #[serde(rename = "idempotentHint")]
    pub idempotent: bool,
}

/// A page of tools.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpToolPage {
    /// Tools of the page.
    pub tools: Vec<Value>,
    /// Cursor of the next page; absent after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A resource as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResource {
    /// Address of the resource.
    pub uri: String,
    /// Name for programs.
    pub name: String,
    /// Description for models.
    pub description: String,
    /// Media type of the content.
    pub mime_type: &'static str,
}

/// A page of resources.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResourcePage {
    /// Resources of the page.
    pub resources: Vec<Value>,
    /// Cursor of the next page; absent after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Addresses of resources of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResourceTemplate {
    /// Template of the addresses (RFC 6570).
    pub uri_template: &'static str,
    /// Name for programs.
    pub name: &'static str,
    /// Description for models.
    pub description: &'static str,
    /// Media type of the content.
    pub mime_type: &'static str,
}

/// Templates of all resources.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpTemplatePage {
    /// Templates of the venue.
    pub resource_templates: Vec<Value>,
}

/// Content of a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpResourceContents {
    /// Parts of the content.
    pub contents: Vec<McpResourceText>,
}

/// Text of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpResourceText {
    /// Address of the resource.
    pub uri: String,
    /// Media type of the text.
    pub mime_type: &'static str,
    /// Text of the resource.
    pub text: String,
}

/// Facts of a resource that doesn't exist, or of a change of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpResourceFacts {
    /// Address of the resource.
    pub uri: String,
}

/// Kinds of notifications that a subscription gets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpSubscriptionFilter {
    /// Changes of the list of tools.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tools_list_changed: bool,
    /// Addresses of resources whose changes are told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
    /// Tasks whose changes are told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<String>,
}

/// First notification of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpSubscribed {
    /// Kinds of notifications that the subscription gets.
    pub notifications: McpSubscriptionFilter,
}

/// Address of the server, as Covia's clients read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpAddressView {
    /// Newest revision of the protocol that the server speaks.
    pub mcp_version: &'static str,
    /// Address of the venue.
    pub server_url: String,
    /// Purpose of the server.
    pub description: &'static str,
    /// Address to which messages are sent.
    pub tools_endpoint: String,
    /// Path and transport of that address.
    pub endpoint: McpEndpointView,
}

/// Path and transport of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct McpEndpointView {
    /// Path below the address of the venue.
    pub path: &'static str,
    /// Name of the transport.
    pub transport: &'static str,
}

/// Where tokens for the venue come from (RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProtectedResourceView {
    /// Address that the tokens are for.
    pub resource: String,
    /// Servers that issue tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authorization_servers: Vec<String>,
    /// Ways to send a token.
    pub bearer_methods_supported: [&'static str; 1],
    /// Name of the venue.
    pub resource_name: String,
}
