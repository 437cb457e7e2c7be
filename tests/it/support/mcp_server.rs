//! A server of the Model Context Protocol whose answers a test scripts: in both revisions, and with faults.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub const HANDSHAKE: &str = "2025-11-25";
pub const STATELESS: &str = "2026-07-28";

/// A request: its HTTP method, its headers by name, and its message.
#[derive(Debug, Clone)]
pub struct McpAsked {
    pub http: Method,
    pub headers: BTreeMap<String, String>,
    pub message: Value,
}

impl McpAsked {
    /// The method of the protocol; empty without a message.
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    pub fn params(&self) -> &Value {
        &self.message["params"]
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// What a request is answered.
pub enum McpReply {
    /// A result, as JSON.
    Result(Value),
    /// An error of the protocol, with this status of HTTP.
    Error(u16, i64),
    /// A status of HTTP with a header and without a message.
    Status(u16, &'static str, String),
    /// Messages of a stream, in order; it ends after them. `Value::Null` stands for a pause of 300 ms.
    Stream(Vec<Value>),
    /// Bytes of a body as they are, as JSON.
    Raw(Vec<u8>),
    /// A stream that never ends, of this text again and again.
    Endless(String),
    /// The head of an answer, and then nothing.
    Hang,
    /// Nothing, ever.
    Mute,
}

type Script = Arc<dyn Fn(&McpAsked) -> Option<McpReply> + Send + Sync>;

struct McpState {
    revision: Mutex<&'static str>,
    tools: Mutex<Vec<Value>>,
    seen: Mutex<Vec<McpAsked>>,
    script: Script,
    sessions: Mutex<Vec<String>>,
    begun: AtomicUsize,
    closed: AtomicUsize,
}

/// The server; it ends with this value.
pub struct McpTestServer {
    pub port: u16,
    state: Arc<McpState>,
    serving: JoinHandle<()>,
}

impl McpTestServer {
    /// A server of this revision with these tools. `script` answers what it wants to; the rest is answered as the
    /// protocol says, and a call by its arguments.
    pub async fn start(
        revision: &'static str,
        tools: Vec<Value>,
        script: impl Fn(&McpAsked) -> Option<McpReply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(McpState {
            revision: Mutex::new(revision),
            tools: Mutex::new(tools),
            seen: Mutex::default(),
            script: Arc::new(script),
            sessions: Mutex::default(),
            begun: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
        });
        let pages = Router::new().fallback(asked).with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
        Self { port, state, serving }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Changes the tools.
    pub fn set_tools(&self, tools: Vec<Value>) {
        *self.state.tools.lock().unwrap() = tools;
    }

    /// Speaks another revision from now on.
    pub fn set_revision(&self, revision: &'static str) {
        *self.state.revision.lock().unwrap() = revision;
    }

    /// The requests of a method, the first ones first.
    pub fn asked(&self, method: &str) -> Vec<McpAsked> {
        self.state.seen.lock().unwrap().iter().filter(|asked| asked.method() == method).cloned().collect()
    }

    /// The requests of a method of HTTP.
    pub fn sent(&self, http: &Method) -> usize {
        self.state.seen.lock().unwrap().iter().filter(|asked| asked.http == http).count()
    }

    /// Answers that their client has left before their end.
    pub fn closed(&self) -> usize {
        self.state.closed.load(Ordering::SeqCst)
    }
}

impl Drop for McpTestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A tool without arguments.
pub fn plain_tool(name: &str) -> Value {
    json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}})
}

/// A tool that takes a text `q`.
pub fn text_tool(name: &str, annotations: Value) -> Value {
    let input = json!({"type": "object", "properties": {"q": {"type": "string"}}, "additionalProperties": false});
    let mut tool = json!({"name": name, "description": format!("Does {name}."), "inputSchema": input});
    tool["annotations"] = annotations;
    tool
}

/// A message with a result.
pub fn answer(asked: &McpAsked, result: Value) -> Value {
    let mut message = json!({"jsonrpc": "2.0", "id": asked.message["id"]});
    message["result"] = result;
    message
}

async fn asked(State(state): State<Arc<McpState>>, http: Method, headers: HeaderMap, body: Bytes) -> Response {
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let asked = McpAsked { http, headers: headers.collect(), message };
    state.seen.lock().unwrap().push(asked.clone());
    if let Some(reply) = (state.script)(&asked) {
        if matches!(reply, McpReply::Mute) {
            return std::future::pending().await;
        }
        return respond(&state, &asked, reply);
    }
    if asked.http != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let revision = *state.revision.lock().unwrap();
    let reply = if revision == HANDSHAKE { with_session(&state, &asked) } else { stateless(&state, &asked) };
    respond(&state, &asked, reply)
}

/// The answer of a server with sessions.
fn with_session(state: &McpState, asked: &McpAsked) -> McpReply {
    if asked.method() == "initialize" {
        let id = format!("session-{}", state.begun.fetch_add(1, Ordering::SeqCst));
        state.sessions.lock().unwrap().push(id.clone());
        let result = json!({
            "protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}
        });
        return McpReply::Status(200, "mcp-session-id", format!("{id}\n{}", answer(asked, result)));
    }
    let session = asked.header("mcp-session-id");
    if session.is_empty() {
        return McpReply::Error(400, -32000);
    }
    if !state.sessions.lock().unwrap().iter().any(|known| known == session) {
        return McpReply::Error(404, -32001);
    }
    if asked.message["id"].is_null() {
        return McpReply::Status(202, "x-accepted", "yes".into());
    }
    method(state, asked)
}

/// The answer of a server without sessions, which insists on what each request says.
fn stateless(state: &McpState, asked: &McpAsked) -> McpReply {
    let meta = &asked.params()["_meta"];
    let is_whole = asked.header("mcp-protocol-version") == STATELESS
        && asked.header("mcp-method") == asked.method()
        && meta["io.modelcontextprotocol/protocolVersion"] == STATELESS
        && meta["io.modelcontextprotocol/clientCapabilities"].is_object();
    if !is_whole {
        return McpReply::Error(400, -32020);
    }
    method(state, asked)
}

fn method(state: &McpState, asked: &McpAsked) -> McpReply {
    match asked.method() {
        "tools/list" => McpReply::Result(json!({"tools": *state.tools.lock().unwrap(), "resultType": "complete"})),
        "tools/call" => {
            let text = format!("{} of {}", asked.params()["name"], asked.params()["arguments"]);
            McpReply::Result(json!({"content": [{"type": "text", "text": text}]}))
        }
        _ => McpReply::Error(404, -32601),
    }
}

/// Counts the answers that are given up.
struct Closing(Arc<McpState>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn respond(state: &Arc<McpState>, asked: &McpAsked, reply: McpReply) -> Response {
    let json = [("content-type", "application/json")];
    let events = [("content-type", "text/event-stream")];
    match reply {
        McpReply::Result(result) => (json, answer(asked, result).to_string()).into_response(),
        McpReply::Error(status, code) => {
            let error = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": code, "message": "no"}});
            (StatusCode::from_u16(status).unwrap(), json, error.to_string()).into_response()
        }
        McpReply::Status(status, header, value) => {
            let (value, body) = value.split_once('\n').map_or((value.as_str(), ""), |(value, body)| (value, body));
            let headers = [("content-type", "application/json"), (header, value)];
            (StatusCode::from_u16(status).unwrap(), headers, body.to_owned()).into_response()
        }
        McpReply::Raw(bytes) => (json, bytes).into_response(),
        McpReply::Stream(messages) => {
            let pieces = futures::stream::iter(messages).then(|message| async move {
                if message.is_null() {
                    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                    return Ok::<_, std::convert::Infallible>(": pause\n\n".to_owned());
                }
                Ok(format!("event: message\ndata: {message}\n\n"))
            });
            (events, Body::from_stream(pieces)).into_response()
        }
        McpReply::Endless(text) => {
            let pieces = futures::stream::repeat(Bytes::from(text)).map(Ok::<_, std::convert::Infallible>);
            (events, Body::from_stream(pieces)).into_response()
        }
        McpReply::Hang | McpReply::Mute => {
            let closing = Closing(Arc::clone(state));
            let never = futures::stream::once(async move {
                let _closing = closing;
                std::future::pending::<Result<String, std::convert::Infallible>>().await
            });
            (events, Body::from_stream(never)).into_response()
        }
    }
}
