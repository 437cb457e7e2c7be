//! An agent of the Agent2Agent protocol that a test writes: it answers as the protocol says, or as the test wants.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request that the agent got.
#[derive(Debug, Clone)]
pub struct A2aAsked {
    /// Path with its query.
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: Value,
}

impl A2aAsked {
    /// Name of the operation, whatever the binding; empty for a card.
    pub fn operation(&self) -> &str {
        match (self.body["method"].as_str(), self.path.as_str()) {
            (Some(method), _) => method,
            (None, path) if path.contains("/message:send") => "SendMessage",
            (None, path) if path.contains(":cancel") => "CancelTask",
            (None, path) if path.contains("/tasks/") => "GetTask",
            (None, _) => "",
        }
    }

    /// The message of a `SendMessage`.
    pub fn message(&self) -> &Value {
        if self.body.get("params").is_some() { &self.body["params"]["message"] } else { &self.body["message"] }
    }

    /// A header's text; empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// How the agent answers.
pub enum A2aReply {
    /// The result of the operation.
    Result(Value),
    /// An error of JSON-RPC.
    Error(i64),
    /// A status with a header and a body.
    Status(u16, &'static str, String),
    /// Bytes without an end.
    Endless,
    /// No answer at all.
    Hang,
}

type Script = Arc<dyn Fn(&A2aAsked) -> Option<A2aReply> + Send + Sync>;

struct AgentState {
    card: Mutex<Value>,
    seen: Mutex<Vec<A2aAsked>>,
    looks: AtomicUsize,
    script: Script,
}

/// The agent; it ends with this value. Its task `t-1` works for `looks` looks, and then has the output `found it`.
pub struct A2aTestServer {
    pub port: u16,
    state: Arc<AgentState>,
    serving: JoinHandle<()>,
}

/// A card with these addresses.
pub fn card(interfaces: &Value) -> Value {
    json!({
        "name": "Partner", "description": "Finds orders.", "version": "1",
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": false},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "orders", "name": "Orders", "description": "Finds orders.", "tags": ["orders"]}],
    })
}

/// An address of a binding.
pub fn interface(binding: &str, url: &str) -> Value {
    json!({"url": url, "protocolBinding": binding, "protocolVersion": "1.0"})
}

/// A task in a state; what the agent says of it is its message, or its output when it is completed.
pub fn task(state: &str, said: &str) -> Value {
    let parts = json!([{"text": said}]);
    let mut task = json!({"id": "t-1", "contextId": "c-1", "status": {"state": format!("TASK_STATE_{state}")}});
    if state == "COMPLETED" {
        task["artifacts"] = json!([{"artifactId": "output", "parts": parts}]);
    } else {
        task["status"]["message"] = json!({"messageId": "a", "role": "ROLE_AGENT", "parts": parts});
    }
    task
}

impl A2aTestServer {
    /// An agent of one binding. `script` answers what it wants to, the card too.
    pub async fn start(
        binding: &str,
        looks: usize,
        script: impl Fn(&A2aAsked) -> Option<A2aReply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let card = card(&json!([interface(binding, &format!("http://127.0.0.1:{port}/agent"))]));
        let state = Arc::new(AgentState {
            card: Mutex::new(card),
            seen: Mutex::default(),
            looks: AtomicUsize::new(looks),
            script: Arc::new(script),
        });
        let pages = Router::new().fallback(asked).with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
        Self { port, state, serving }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/agent", self.port)
    }

    /// Changes the card.
    pub fn change_card(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.state.card.lock().unwrap());
    }

    /// The requests of an operation, the first ones first; an empty text stands for the card.
    pub fn asked(&self, operation: &str) -> Vec<A2aAsked> {
        self.state.seen.lock().unwrap().iter().filter(|asked| asked.operation() == operation).cloned().collect()
    }
}

impl Drop for A2aTestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn asked(State(state): State<Arc<AgentState>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let asked = A2aAsked { path, headers: headers.collect(), body };
    state.seen.lock().unwrap().push(asked.clone());
    let reply = (state.script)(&asked).unwrap_or_else(|| answer(&state, &asked));
    respond(&asked, reply).await
}

fn answer(state: &AgentState, asked: &A2aAsked) -> A2aReply {
    match asked.operation() {
        "" => A2aReply::Result(state.card.lock().unwrap().clone()),
        "SendMessage" => A2aReply::Result(json!({"task": task("WORKING", "on it")})),
        "CancelTask" => A2aReply::Result(task("CANCELED", "as you like")),
        _ => {
            let left = state.looks.load(Ordering::SeqCst);
            state.looks.store(left.saturating_sub(1), Ordering::SeqCst);
            A2aReply::Result(if left > 0 { task("WORKING", "on it") } else { task("COMPLETED", "found it") })
        }
    }
}

async fn respond(asked: &A2aAsked, reply: A2aReply) -> Response {
    let json = [("content-type", "application/json")];
    let is_rpc = asked.body.get("jsonrpc").is_some();
    let id = &asked.body["id"];
    match reply {
        A2aReply::Result(result) if is_rpc => {
            (json, json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()).into_response()
        }
        A2aReply::Result(result) => (json, result.to_string()).into_response(),
        A2aReply::Error(code) => {
            let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no such luck"}});
            (json, error.to_string()).into_response()
        }
        A2aReply::Status(status, header, text) => {
            let (value, body) = text.split_once('\n').map_or((text.as_str(), ""), |(value, body)| (value, body));
            let headers = [("content-type", "application/json"), (header, value)];
            (StatusCode::from_u16(status).unwrap(), headers, body.to_owned()).into_response()
        }
        A2aReply::Endless => {
            let pieces = futures::stream::repeat(Bytes::from(vec![b' '; 64 * 1024]));
            let pieces = futures::StreamExt::map(pieces, Ok::<_, std::convert::Infallible>);
            (json, Body::from_stream(pieces)).into_response()
        }
        A2aReply::Hang => {
            std::future::pending::<()>().await;
            unreachable!("it never ends")
        }
    }
}
