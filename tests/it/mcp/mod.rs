//! The venue as a server of the Model Context Protocol, over real HTTP with raw JSON.

mod authority;
mod clients;
mod conformance;
mod fixtures;
mod fleet;
mod limits;
mod listen;
mod requests;
mod resources;
mod stdio;
mod tasks;

use crate::support::http::{Answer, Server};
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use trellis::venue::auth::Auth;

pub const STATELESS: &str = "2026-07-28";
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
const META: &str = "io.modelcontextprotocol/";

/// `echo` repeats its input, `slow` takes its time, `typed` has schemas, `payer` waits for a person; `secret` isn't
/// published.
const RULES: &str = r#"
[[rule]]
when = { agent = "slow" }
then = { text = "at last", delay_ms = 2500 }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
when = { agent = "broken" }
then = { text = "x", fault = "bad_request" }

[[rule]]
then = { text = "done" }
"#;

/// A venue with published agents, behind HTTP.
pub struct Site {
    pub server: Server,
    pub venue: TestVenue,
    _dir: TempDir,
}

impl Site {
    pub async fn new() -> Self {
        let (venue, dir) = TestVenue::embedded(RULES).await;
        Box::pin(Self::of(venue, dir, Arc::default())).await
    }

    /// A venue whose callers are recognised; its agents are those of `acme/ann`.
    pub async fn with_tokens(make: impl FnOnce(&std::path::Path) -> Arc<Auth>) -> Self {
        let (mut venue, dir) = TestVenue::embedded(RULES).await;
        let auth = make(dir.path());
        (venue.owner, venue.auth) = ("acme/ann".parse().unwrap(), Arc::clone(&auth));
        Box::pin(Self::of(venue, dir, auth)).await
    }

    async fn of(venue: TestVenue, dir: TempDir, auth: Arc<Auth>) -> Self {
        let echo = json!({"provider": "scripted", "name": "echo"});
        venue.agent("echo", json!({"description": "Repeats.", "model": echo, "published": {"title": "Echo"}})).await;
        venue.agent("secret", json!({"model": echo})).await;
        let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        venue.agent("typed", json!({"model": echo, "published": {"input": city}})).await;
        for agent in ["slow", "broken"] {
            venue.agent(agent, json!({"published": true})).await;
        }
        let pay = json!([{"operation": "v/ops/lattice/write", "name": "pay", "approval": "ask"}]);
        venue.agent("payer", json!({"published": true, "tools": pay})).await;
        venue.worker();
        let server = Server::with(Arc::clone(&venue.venue), auth).await;
        Self { server, venue, _dir: dir }
    }

    /// A client of the revision 2026-07-28 without capabilities.
    pub fn client(&self) -> McpClient<'_> {
        McpClient { server: &self.server, capabilities: json!({}), token: None }
    }
}

/// A client that says with each request who it is.
pub struct McpClient<'s> {
    pub server: &'s Server,
    pub capabilities: Value,
    pub token: Option<String>,
}

impl McpClient<'_> {
    /// The same with the tasks extension, and perhaps a person before it.
    #[must_use]
    pub fn with_tasks(self, asks_people: bool) -> Self {
        let mut capabilities = json!({"extensions": {TASKS: {}}});
        if asks_people {
            capabilities["elicitation"] = json!({});
        }
        Self { capabilities, ..self }
    }

    #[must_use]
    pub fn with_token(self, token: String) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Sends a request; the answer may be a stream.
    pub async fn send(&self, method: &str, params: Value) -> Answer {
        let (headers, body) = stateless_request(method, params, &self.capabilities);
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        self.server.send(Method::POST, "/mcp", &headers, body.to_string()).await
    }

    /// The message that ends a request.
    pub async fn ask(&self, method: &str, params: Value) -> Value {
        messages(&self.send(method, params).await).pop().unwrap()
    }

    /// The result of a request that succeeds.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        let mut message = self.ask(method, params).await;
        assert!(message.get("error").is_none(), "{method}: {message}");
        message["result"].take()
    }

    /// The code of a request that fails.
    pub async fn code(&self, method: &str, params: Value) -> i64 {
        let message = self.ask(method, params).await;
        message["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {message}"))
    }

    /// The result of a tool.
    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments})).await
    }
}

/// Headers and body of a request of the revision 2026-07-28.
pub fn stateless_request(method: &str, params: Value, capabilities: &Value) -> (Vec<(&'static str, String)>, Value) {
    let Value::Object(mut params) = params else { panic!("expected a map, got {params}") };
    let name = ["name", "uri", "taskId"].iter().find_map(|key| params.get(*key)?.as_str().map(str::to_owned));
    let mut meta = params.remove("_meta").unwrap_or_else(|| json!({}));
    meta[format!("{META}protocolVersion")] = STATELESS.into();
    meta[format!("{META}clientInfo")] = json!({"name": "test", "version": "1"});
    meta[format!("{META}clientCapabilities")] = capabilities.clone();
    params.insert("_meta".to_owned(), meta);
    let mut headers = plain_headers();
    headers.push(("MCP-Protocol-Version", STATELESS.to_owned()));
    headers.push(("Mcp-Method", method.to_owned()));
    headers.extend(name.map(|name| ("Mcp-Name", name)));
    (headers, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
}

/// Headers of every request.
pub fn plain_headers() -> Vec<(&'static str, String)> {
    vec![("Content-Type", "application/json".to_owned()), ("Accept", "application/json, text/event-stream".to_owned())]
}

/// The messages of an answer: one, or those of a stream.
pub fn messages(answer: &Answer) -> Vec<Value> {
    if !answer.header("content-type").starts_with("text/event-stream") {
        return vec![answer.body.clone()];
    }
    let text = answer.body.as_str().unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Whether a value has everything that `expected` has.
pub fn includes(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(key, expected)| includes(found.get(key).unwrap_or(&Value::Null), expected))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() >= expected.len()
                && found.iter().zip(expected).all(|(found, expected)| includes(found, expected))
        }
        (found, expected) => found == expected,
    }
}
