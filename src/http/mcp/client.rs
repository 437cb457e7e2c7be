//! What a request says of its client: the revision, its capabilities, and the headers that repeat parts of the body.

use super::message::RpcRequest;
use super::refusal::{INVALID_PARAMS, RpcRefusal};
use crate::domain::visible::quote_foreign;
use crate::http::json_rpc::is_id;
use crate::view::mcp::named_parameter;
use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// The revision whose requests stand alone.
const STATELESS: &str = "2026-07-28";
/// Revisions that begin with `initialize`, the newest first.
const HANDSHAKE: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Extension by which a call is answered with a task.
const TASKS: &str = "io.modelcontextprotocol/tasks";

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// The client of one request. It is small: a wait and a subscription keep it for as long as they last.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct McpClient {
    /// The revision is 2026-07-28; else it is one with a handshake, whose capabilities are not kept.
    pub(super) is_stateless: bool,
    /// The client takes a task in place of a result.
    pub(super) takes_tasks: bool,
    /// A person before the client answers forms.
    pub(super) asks_people: bool,
    /// Token with which progress is told.
    pub(super) progress_token: Option<Value>,
}

/// Lists the revisions that are spoken here.
pub(super) fn supported_versions() -> Vec<&'static str> {
    [STATELESS].into_iter().chain(HANDSHAKE).collect()
}

/// Returns the revision for a client that asks for one by `initialize`.
pub(super) fn negotiate(asked: &str) -> &'static str {
    HANDSHAKE.into_iter().find(|version| *version == asked).unwrap_or(HANDSHAKE[0])
}

/// Returns the tasks extension as clients and the server declare it.
pub(super) fn tasks_extension() -> Map<String, Value> {
    let tasks = Map::from_iter([(TASKS.to_owned(), Value::Object(Map::new()))]);
    Map::from_iter([("extensions".to_owned(), Value::Object(tasks))])
}

impl McpClient {
    fn with_capabilities(capabilities: &Map<String, Value>, progress_token: Option<Value>) -> Self {
        let takes_tasks = capabilities.get("extensions").is_some_and(|extensions| extensions.get(TASKS).is_some());
        // An empty map stands for forms; a client may also open addresses alone.
        let forms = capabilities.get("elicitation").and_then(Value::as_object);
        let asks_people = forms.is_some_and(|modes| modes.is_empty() || modes.contains_key("form"));
        Self { is_stateless: true, takes_tasks, asks_people, progress_token }
    }

    /// Fails unless the client has declared the tasks extension.
    pub(super) fn require_tasks(&self) -> Result<(), RpcRefusal> {
        if self.takes_tasks { Ok(()) } else { Err(RpcRefusal::missing_capability(TASKS, tasks_extension())) }
    }
}

/// Returns the capabilities that a request declares.
pub(super) fn declared_capabilities(request: &RpcRequest) -> Option<&Map<String, Value>> {
    request.params.get("_meta")?.get(CAPABILITIES_KEY)?.as_object()
}

/// Reads the client of a request. A request names its revision in `_meta` and in a header, or in the header alone.
pub(super) fn read(headers: &HeaderMap, request: &RpcRequest) -> Result<McpClient, RpcRefusal> {
    let meta = request.params.get("_meta").and_then(Value::as_object);
    // A token is like an id, and goes into every message about progress.
    let progress_token = meta.and_then(|meta| meta.get("progressToken")).filter(|token| is_id(token)).cloned();
    let handshake = McpClient { progress_token: progress_token.clone(), ..McpClient::default() };
    let header = single_header(headers, "mcp-protocol-version")?;
    let named = meta.and_then(|meta| meta.get(VERSION_KEY));
    if named.is_none() && header != Some(STATELESS) && request.method != "server/discover" {
        return match header {
            // Revisions before 2025-06-18 have no such header.
            None => Ok(handshake),
            Some(version) if HANDSHAKE.contains(&version) => Ok(handshake),
            Some(version) => Err(RpcRefusal::unsupported_version(version, supported_versions())),
        };
    }
    let missing =
        |key: &str| RpcRefusal::malformed_message(INVALID_PARAMS, format!("expected `{key}` in `params._meta`"));
    let named = named.and_then(Value::as_str).ok_or_else(|| missing(VERSION_KEY))?;
    let Some(header) = header else {
        return Err(RpcRefusal::header_mismatch("`MCP-Protocol-Version` is missing"));
    };
    if header != named {
        let text = format!("`MCP-Protocol-Version` is `{header}`, and `_meta` says `{}`", quote_foreign(named));
        return Err(RpcRefusal::header_mismatch(text));
    }
    if HANDSHAKE.contains(&named) {
        return Ok(handshake);
    }
    if named != STATELESS {
        return Err(RpcRefusal::unsupported_version(named, supported_versions()));
    }
    let capabilities = declared_capabilities(request).ok_or_else(|| missing(CAPABILITIES_KEY))?;
    check_headers(headers, request)?;
    Ok(McpClient::with_capabilities(capabilities, progress_token))
}

/// Checks the headers that repeat the method, and the name of what it is about.
fn check_headers(headers: &HeaderMap, request: &RpcRequest) -> Result<(), RpcRefusal> {
    let method = request.method.as_str();
    check_header("Mcp-Method", single_header(headers, "mcp-method")?, method)?;
    let Some(key) = named_parameter(method) else { return Ok(()) };
    // A name that is missing in the body is reported by the method.
    let Some(name) = request.params.get(key).and_then(Value::as_str) else { return Ok(()) };
    let given = single_header(headers, "mcp-name")?;
    let decoded = given.map(decode_sentinel).transpose()?;
    check_header("Mcp-Name", decoded.as_deref(), name)
}

fn check_header(header: &str, given: Option<&str>, expected: &str) -> Result<(), RpcRefusal> {
    if given == Some(expected) {
        return Ok(());
    }
    let found = given.map_or_else(|| "missing".to_owned(), |given| format!("`{}`", quote_foreign(given)));
    let text = format!("`{header}` is {found}, and the body says `{}`", quote_foreign(expected));
    Err(RpcRefusal::header_mismatch(text))
}

/// Returns the value of a header that may be written as `=?base64?…?=`.
fn decode_sentinel(value: &str) -> Result<String, RpcRefusal> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(value.to_owned());
    };
    let decoded = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.ok_or_else(|| {
        RpcRefusal::header_mismatch(format!("`Mcp-Name` is `{}`, which is not base64 of a text", quote_foreign(value)))
    })
}

fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, RpcRefusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(RpcRefusal::header_mismatch(format!("`{name}` is given more than once")));
    }
    value.to_str().map(Some).map_err(|_| RpcRefusal::header_mismatch(format!("`{name}` is not visible ASCII")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::mcp::refusal::{HEADER_MISMATCH, UNSUPPORTED_VERSION};
    use serde_json::json;

    fn client(headers: &[(&'static str, &str)], method: &str, params: Value) -> Result<McpClient, i64> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let Value::Object(params) = params else { panic!("expected a map") };
        let request = RpcRequest { id: json!(1), method: method.to_owned(), params };
        read(&map, &request).map_err(|refusal| refusal.fault.code)
    }

    fn meta(version: &str) -> Value {
        json!({VERSION_KEY: version, CAPABILITIES_KEY: {"elicitation": {}, "extensions": {TASKS: {}}}})
    }

    #[test]
    fn a_request_names_its_revision_in_header_and_body() {
        let version = |version: &'static str| ("mcp-protocol-version", version);
        let (list, get) = (("mcp-method", "tools/list"), ("mcp-method", "tasks/get"));
        let era = |headers: &[(&'static str, &str)], method: &str, params: Value| {
            client(headers, method, params).map(|client| client.is_stateless)
        };
        for (headers, method, params, expected) in [
            (vec![], "tools/list", json!({}), Ok(false)),
            (vec![version("2025-11-25")], "tools/list", json!({}), Ok(false)),
            (vec![version("2025-11-25")], "tools/list", json!({"_meta": meta("2025-11-25")}), Ok(false)),
            (vec![version("1999-01-01")], "tools/list", json!({}), Err(UNSUPPORTED_VERSION)),
            (vec![version("2026-07-28"), list], "tools/list", json!({"_meta": meta("2026-07-28")}), Ok(true)),
            (vec![version("2026-07-28")], "tools/list", json!({"_meta": meta("2026-07-28")}), Err(HEADER_MISMATCH)),
            (vec![list], "tools/list", json!({"_meta": meta("2026-07-28")}), Err(HEADER_MISMATCH)),
            (vec![version("2026-07-28"), list], "tools/list", json!({"_meta": meta("v9")}), Err(HEADER_MISMATCH)),
            (vec![version("v9"), list], "tools/list", json!({"_meta": meta("v9")}), Err(UNSUPPORTED_VERSION)),
            (vec![version("2026-07-28"), list], "tools/list", json!({}), Err(INVALID_PARAMS)),
            (vec![], "server/discover", json!({}), Err(INVALID_PARAMS)),
            (
                vec![version("2026-07-28"), list],
                "tools/list",
                json!({"_meta": {VERSION_KEY: "2026-07-28"}}),
                Err(INVALID_PARAMS),
            ),
            (
                vec![version("2026-07-28"), get, ("mcp-name", "=?base64?YQ==?=")],
                "tasks/get",
                json!({"taskId": "a", "_meta": meta("2026-07-28")}),
                Ok(true),
            ),
            (
                vec![version("2026-07-28"), get, ("mcp-name", "b")],
                "tasks/get",
                json!({"taskId": "a", "_meta": meta("2026-07-28")}),
                Err(HEADER_MISMATCH),
            ),
            (
                vec![version("2026-07-28"), get, ("mcp-name", "=?base64?Y?=")],
                "tasks/get",
                json!({"taskId": "a", "_meta": meta("2026-07-28")}),
                Err(HEADER_MISMATCH),
            ),
        ] {
            assert_eq!(era(&headers, method, params.clone()), expected, "{headers:?} {method} {params}");
        }
    }

    #[test]
    fn capabilities_are_those_of_the_request() {
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
        let known = client(&headers, "tools/list", json!({"_meta": meta("2026-07-28")})).unwrap();
        assert!(known.takes_tasks && known.asks_people && known.require_tasks().is_ok());
        let none = client(&[], "tools/list", json!({})).unwrap();
        assert!(!none.takes_tasks && !none.asks_people && none.require_tasks().is_err());
        for (modes, expected) in [
            (json!({}), true),
            (json!({"form": {}}), true),
            (json!({"form": {}, "url": {}}), true),
            (json!({"url": {}}), false),
            (json!(true), false),
        ] {
            let meta = json!({VERSION_KEY: STATELESS, CAPABILITIES_KEY: {"elicitation": modes}});
            let known = client(&headers, "tools/list", json!({"_meta": meta})).unwrap();
            assert_eq!(known.asks_people, expected, "{meta}");
        }
        assert_eq!((negotiate("2025-06-18"), negotiate("2030-01-01")), ("2025-06-18", "2025-11-25"));
    }

    #[test]
    fn a_progress_token_is_a_number_or_a_short_text() {
        let token = |token: Value| {
            client(&[], "tools/call", json!({"_meta": {"progressToken": token}})).unwrap().progress_token
        };
        for (given, expected) in [
            (json!("p1"), Some(json!("p1"))),
            (json!(7), Some(json!(7))),
            (json!(1.5), None),
            (json!({"a": 1}), None),
            (json!("x".repeat(300)), None),
        ] {
            assert_eq!(token(given.clone()), expected, "{given}");
        }
    }
}
