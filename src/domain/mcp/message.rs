//! Messages of JSON-RPC as this client sends and reads them, in both revisions.

use crate::decode::{self, Code, DataError};
use crate::foreign::visible_line;
use crate::limits::MCP_ERROR_BYTES;
use crate::mcp::revision::{HANDSHAKE, ProtocolEra, STATELESS};
use crate::mcp::task::TASKS;
use crate::visible::quote_foreign;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Prefix of the protocol's own keys of `_meta`.
const META: &str = "io.modelcontextprotocol/";

/// Name under which this client introduces itself.
const CLIENT_NAME: &str = "trellis";

/// Notification that the list of tools has changed.
const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// A request of this client.
#[derive(Debug, Clone, PartialEq)]
pub struct McpRequest {
    /// Id of the request, which its answer repeats.
    pub id: u64,
    /// Method of the protocol.
    pub method: &'static str,
    /// Parameters without what each request has.
    pub params: Map<String, Value>,
    /// Name in the parameters that goes into a header, too.
    pub name: Option<String>,
    /// Trace of the call, as the Trace Context of the W3C has it; SEP-414 has it in `_meta`.
    pub trace: Option<String>,
    /// What the server may answer besides a result, in the stateless revision.
    pub offers: ClientOffers,
}

/// What a server may answer to a request besides its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientOffers {
    /// A result alone.
    #[default]
    Nothing,
    /// A task, or a question to a person.
    TasksAndQuestions,
}

/// An error of JSON-RPC.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// Code of the error.
    pub code: i64,
    /// Text of the server: one visible line.
    pub message: String,
    /// Data of the error; null if there is none.
    pub data: Value,
}

/// A message of a server, as far as this client reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerMessage {
    /// The answer to a request.
    Answer {
        /// Id of the request; `None` if the server could not read it.
        id: Option<u64>,
        /// Result or error.
        outcome: Result<Value, RpcError>,
    },
    /// A request of the server, which this client answers with an error unless it is a ping.
    Request {
        /// Id as the server gave it.
        id: Value,
        /// Method of the request.
        method: String,
    },
    /// The call makes progress.
    Progress,
    /// The list of the server's tools is another one than before.
    ListChanged,
    /// Any other notification.
    Notice,
}

impl McpRequest {
    /// Makes a request.
    pub fn new(id: u64, method: &'static str, params: Map<String, Value>) -> Self {
        Self { id, method, params, name: None, trace: None, offers: ClientOffers::Nothing }
    }

    /// Returns the request with a name that goes into a header.
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Returns the request with the trace of its call.
    #[must_use]
    pub fn with_trace(self, trace: Option<String>) -> Self {
        Self { trace, ..self }
    }

    /// Returns the request with what the server may answer besides a result.
    #[must_use]
    pub fn with_offers(self, offers: ClientOffers) -> Self {
        Self { offers, ..self }
    }

    /// Returns the request as it is sent. In the stateless revision it says which revision and which client it is of; with
    /// `progress` it asks to be told of progress.
    pub fn body(&self, era: ProtocolEra, progress: bool) -> Value {
        let mut params = self.params.clone();
        let mut meta = Map::new();
        if progress {
            meta.insert("progressToken".to_owned(), self.id.into());
        }
        if let Some(trace) = &self.trace {
            meta.insert("traceparent".to_owned(), trace.as_str().into());
        }
        if era == ProtocolEra::Stateless {
            meta.insert(format!("{META}protocolVersion"), STATELESS.into());
            meta.insert(format!("{META}clientInfo"), client_info());
            meta.insert(format!("{META}clientCapabilities"), self.offers.capabilities());
        }
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Value::Object(meta));
        }
        json!({"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params})
    }

    /// Makes the request that begins a session.
    pub fn initialize(id: u64) -> Self {
        let params = json!({"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": client_info()});
        let Value::Object(params) = params else { return Self::new(id, "initialize", Map::new()) };
        Self::new(id, "initialize", params)
    }

    /// Makes the request for a page of the tools.
    pub fn list_tools(id: u64, cursor: Option<&str>) -> Self {
        let cursor = cursor.map(|cursor| ("cursor".to_owned(), Value::from(cursor)));
        Self::new(id, "tools/list", cursor.into_iter().collect())
    }

    /// Makes the call of a tool.
    pub fn call_tool(id: u64, tool: &str, arguments: Value) -> Self {
        let params = [("name".to_owned(), Value::from(tool)), ("arguments".to_owned(), arguments)];
        Self::new(id, "tools/call", params.into_iter().collect()).with_name(tool)
    }

    /// Returns the call as one that the server may work on as a task, in a revision with a handshake, and keeps so long.
    #[must_use]
    pub fn as_task(self, ttl: Duration) -> Self {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.with_parameter("task", json!({"ttl": millis}))
    }

    /// Returns the call with responses to what the server has asked, and its state if it has given one.
    #[must_use]
    pub fn with_responses(self, responses: Map<String, Value>, state: Option<&str>) -> Self {
        let answered =
            if responses.is_empty() { self } else { self.with_parameter("inputResponses", responses.into()) };
        match state {
            Some(state) => answered.with_parameter("requestState", state.into()),
            None => answered,
        }
    }

    /// Makes a request about a task.
    pub fn of_task(id: u64, method: TaskMethod, task: &str) -> Self {
        let params = [("taskId".to_owned(), Value::from(task))];
        let request = Self::new(id, method.as_str(), params.into_iter().collect()).with_name(task);
        request.with_offers(ClientOffers::TasksAndQuestions)
    }

    fn with_parameter(self, key: &str, value: Value) -> Self {
        let mut params = self.params;
        params.insert(key.to_owned(), value);
        Self { params, ..self }
    }
}

/// Requests about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskMethod {
    /// Asks for its state.
    Get,
    /// Asks for its result, in a revision with a handshake.
    Result,
    /// Brings responses to what it has asked.
    Update,
    /// Has it stopped.
    Cancel,
}

impl TaskMethod {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "tasks/get",
            Self::Result => "tasks/result",
            Self::Update => "tasks/update",
            Self::Cancel => "tasks/cancel",
        }
    }
}

impl ClientOffers {
    fn capabilities(self) -> Value {
        match self {
            Self::Nothing => json!({}),
            Self::TasksAndQuestions => {
                json!({"elicitation": {"form": {}, "url": {}}, "extensions": {(TASKS): {}}})
            }
        }
    }
}

fn client_info() -> Value {
    json!({"name": CLIENT_NAME, "version": env!("CARGO_PKG_VERSION")})
}

/// Returns the notification that the client is ready, which follows the handshake.
pub fn initialized_notice() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// Returns the notification that a request is given up.
pub fn cancelled_notice(id: u64, reason: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": reason}})
}

/// Returns the answer to a request of a server: this client only answers pings, and refuses all else by its name.
pub fn reply_to_server(id: &Value, method: &str) -> Value {
    if method == "ping" {
        return json!({"jsonrpc": "2.0", "id": id, "result": {}});
    }
    let message = format!("this client has not offered `{}`", quote_foreign(method));
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": message}})
}

impl ServerMessage {
    /// Reads a message of a server. `progress` is the token of the request that runs.
    ///
    /// # Errors
    /// The text is no JSON within the limits of all values from outside, or no message of JSON-RPC.
    pub fn read(text: &[u8], progress: u64) -> Result<Self, DataError> {
        let Value::Object(mut message) = decode::answer_json(text)? else {
            return Err(DataError::root(Code::Type, "expected a message of JSON-RPC as a map".to_owned()));
        };
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(DataError::root(Code::Rule, "expected `jsonrpc` with the value \"2.0\"".to_owned()));
        }
        let id = message.remove("id").unwrap_or_default();
        if let Some(Value::String(method)) = message.remove("method") {
            if !id.is_null() {
                return Ok(Self::Request { id, method });
            }
            let is_of_request = method == "notifications/progress"
                && message.get("params").is_some_and(|params| params["progressToken"] == progress);
            return Ok(match method.as_str() {
                _ if is_of_request => Self::Progress,
                LIST_CHANGED => Self::ListChanged,
                _ => Self::Notice,
            });
        }
        let id = id.as_u64();
        if let Some(result) = message.remove("result") {
            return Ok(Self::Answer { id, outcome: Ok(result) });
        }
        match message.remove("error") {
            Some(Value::Object(error)) => Ok(Self::Answer { id, outcome: Err(RpcError::read(&error)) }),
            _ => Err(DataError::root(Code::Missing, "expected `result` or `error`".to_owned())),
        }
    }
}

impl RpcError {
    pub(crate) fn read(error: &Map<String, Value>) -> Self {
        let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            message: visible_line(text, MCP_ERROR_BYTES),
            data: error.get("data").cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_who_asks_where_the_revision_wants_it() {
        let call = McpRequest::call_tool(7, "pay", json!({"sum": 1}));
        let body = call.body(ProtocolEra::Handshake, true);
        assert_eq!(
            body,
            json!({
                "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": {"name": "pay", "arguments": {"sum": 1}, "_meta": {"progressToken": 7}}
            })
        );
        let traced = call.clone().with_trace(Some("00-1-2-01".to_owned())).body(ProtocolEra::Handshake, false);
        assert_eq!(traced["params"]["_meta"], json!({"traceparent": "00-1-2-01"}));
        let meta = &call.body(ProtocolEra::Stateless, false)["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "trellis");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        let page = McpRequest::list_tools(1, Some("c")).body(ProtocolEra::Handshake, false);
        assert_eq!(page["params"], json!({"cursor": "c"}));
        assert_eq!(
            McpRequest::initialize(1).body(ProtocolEra::Handshake, false)["params"]["protocolVersion"],
            "2025-11-25"
        );
    }

    #[test]
    fn a_call_that_goes_on_is_asked_for_as_the_revision_wants_it() {
        let call = McpRequest::call_tool(7, "pay", json!({}));
        let task = call.clone().as_task(Duration::from_secs(2)).body(ProtocolEra::Handshake, false);
        assert_eq!(task["params"]["task"], json!({"ttl": 2_000}));
        let answers: Map<String, Value> = [("a".to_owned(), json!({"action": "decline"}))].into_iter().collect();
        let again = call.clone().with_responses(answers, Some("s")).with_offers(ClientOffers::TasksAndQuestions);
        let params = &again.body(ProtocolEra::Stateless, false)["params"];
        assert_eq!(
            (&params["requestState"], &params["inputResponses"]["a"]["action"]),
            (&json!("s"), &json!("decline"))
        );
        let offered = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(offered["extensions"], json!({"io.modelcontextprotocol/tasks": {}}));
        assert_eq!(offered["elicitation"], json!({"form": {}, "url": {}}));
        let plain = call.with_responses(Map::new(), None).body(ProtocolEra::Handshake, false);
        assert!(plain["params"].get("requestState").is_none() && plain["params"].get("inputResponses").is_none());
        let look = McpRequest::of_task(1, TaskMethod::Get, "t-1");
        assert_eq!((look.name.as_deref(), &look.params["taskId"]), (Some("t-1"), &json!("t-1")));
    }

    #[test]
    fn messages_of_a_server_are_told_apart() {
        let answer = |outcome| ServerMessage::Answer { id: Some(3), outcome };
        let failure = RpcError { code: -5, message: "no way".into(), data: json!([1]) };
        for (text, expected) in [
            (json!({"jsonrpc": "2.0", "id": 3, "result": {"a": 1}}), Some(answer(Ok(json!({"a": 1}))))),
            (
                json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -5, "message": "no\nway", "data": [1]}}),
                Some(answer(Err(failure))),
            ),
            (
                json!({"jsonrpc": "2.0", "id": "x", "method": "ping"}),
                Some(ServerMessage::Request { id: json!("x"), method: "ping".into() }),
            ),
            (
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 9}}),
                Some(ServerMessage::Progress),
            ),
            (
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 8}}),
                Some(ServerMessage::Notice),
            ),
            (json!({"jsonrpc": "2.0", "method": "notifications/message"}), Some(ServerMessage::Notice)),
            (json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), Some(ServerMessage::ListChanged)),
            (json!({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}), Some(ServerMessage::Notice)),
            (json!({"jsonrpc": "1.0", "id": 3, "result": {}}), None),
            (json!({"jsonrpc": "2.0", "id": 3}), None),
            (json!({"jsonrpc": "2.0", "id": 3, "error": "x"}), None),
            (json!([{"jsonrpc": "2.0", "id": 3, "result": {}}]), None),
            (json!("x"), None),
        ] {
            assert_eq!(ServerMessage::read(text.to_string().as_bytes(), 9).ok(), expected, "{text}");
        }
        assert!(ServerMessage::read("[".repeat(200).as_bytes(), 9).is_err());
        let reply = |method: &str| reply_to_server(&json!(1), method);
        assert_eq!(
            (reply("ping")["result"].clone(), reply("roots/list")["error"]["code"].clone()),
            (json!({}), json!(-32601))
        );
    }
}
