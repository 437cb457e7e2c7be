//! Tools, resources and prompts that a program adds to the venue's MCP server, on the same route and under the same
//! authority. The tests add the fixtures of the protocol's conformance suite so.

use crate::domain::ids::Owner;
use crate::view::mcp::McpFault;
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::fmt::Debug;
use tokio::sync::mpsc;

/// Things of an MCP server besides the venue's.
#[async_trait]
pub trait McpExtension: Send + Sync + Debug {
    /// Returns capabilities by their names, besides those of the venue.
    fn capabilities(&self) -> Map<String, Value>;

    /// Returns the entries of a list: `tools`, `resources` or `resourceTemplates`.
    fn entries(&self, list: &str) -> Vec<Value>;

    /// Answers a request; `None` if the venue answers it.
    async fn answer(&self, request: &McpExtensionRequest) -> Option<Result<Value, McpFault>>;

    /// Takes a client's response to a request that was sent by [`McpExtensionRequest::messages`]; false if there was no
    /// such request.
    async fn accept_response(&self, owner: &Owner, response: &Value) -> bool;
}

/// A request as an extension sees it.
#[derive(Debug)]
pub struct McpExtensionRequest {
    /// Owner whose data the request is about.
    pub owner: Owner,
    /// Name of the method.
    pub method: String,
    /// Parameters of the method.
    pub params: Map<String, Value>,
    /// Whether the revision is 2026-07-28 or later, whose requests stand alone.
    pub is_stateless: bool,
    /// Capabilities that the client has declared with this request.
    pub client_capabilities: Map<String, Value>,
    /// Messages to the client before the answer.
    pub messages: mpsc::Sender<Value>,
}
