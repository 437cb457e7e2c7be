//! A message of a client on stdin: the headers that go with it over HTTP, and the errors that it is answered with.

use crate::domain::decode;
use crate::view::mcp::{McpErrorMessage, McpFault, named_parameter};
use crate::view::to_json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Key of the revision in a message.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// Code of an error in the venue, or on the way to it.
const INTERNAL_ERROR: i64 = -32_603;

/// A message as it came.
pub(crate) struct ClientMessage {
    /// Bytes of the line.
    pub body: Vec<u8>,
    /// The message; null where the line is no JSON, which the venue reports.
    value: Value,
}

impl ClientMessage {
    /// Reads a line.
    pub fn read(line: &[u8]) -> Self {
        Self { body: line.trim_ascii().to_vec(), value: decode::json(line).unwrap_or_default() }
    }

    fn text(&self, place: &str) -> Option<&str> {
        self.value.pointer(place).and_then(Value::as_str)
    }

    /// Returns the id of a request; `None` of a message without an answer.
    pub fn id(&self) -> Option<&Value> {
        self.value.get("method").and(self.value.get("id"))
    }

    /// Whether the client agrees on a revision by it.
    pub fn is_initialize(&self) -> bool {
        self.text("/method") == Some("initialize")
    }

    /// Returns the id of the request that the client gives up by it.
    pub fn cancelled_request(&self) -> Option<&Value> {
        let is_cancellation = self.text("/method") == Some("notifications/cancelled");
        self.value.pointer("/params/requestId").filter(|_| is_cancellation)
    }

    /// Returns the headers that go with it; `agreed` is the revision of an `initialize` before it.
    pub fn headers(&self, agreed: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let meta = self.value.pointer("/params/_meta").and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str);
        // The first message of a client that agrees on a revision has none yet.
        let version = meta.or(agreed.filter(|_| !self.is_initialize()));
        let key = self.text("/method").and_then(named_parameter);
        let name = key.and_then(|key| self.text(&format!("/params/{key}"))).map(encode_header);
        let given = [(VERSION, version), (METHOD, self.text("/method")), (NAME, name.as_deref())];
        for (header, value) in given {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(header, value);
            }
        }
        headers
    }

    /// Returns the error that the request is answered with, in one line; `None` if it expects no answer.
    pub fn error_line(&self, code: Option<u16>, text: String) -> Option<String> {
        let id = self.id()?.clone();
        let fault = McpFault { code: code.map_or(INTERNAL_ERROR, i64::from), message: text, data: None };
        Some(to_json(&McpErrorMessage::new(Some(id), fault)).to_string())
    }
}

/// Writes a text as the value of a header: as it is where it can be, else in base64.
fn encode_header(text: &str) -> String {
    let is_visible = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let is_sentinel = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_visible && !is_sentinel && text.trim() == text {
        return text.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(line: &str, agreed: Option<&str>, name: &str) -> String {
        let headers = ClientMessage::read(line.as_bytes()).headers(agreed);
        headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    }

    #[test]
    fn headers_repeat_what_the_message_says() {
        let meta = r#"{"id":1,"method":"tools/call","params":{"name":"ask_é","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let plain = r#"{"id":1,"method":"tools/list"}"#;
        let initialize = r#"{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
        for (line, agreed, name, expected) in [
            (meta, None, "mcp-protocol-version", "2026-07-28"),
            (meta, Some("2025-11-25"), "mcp-protocol-version", "2026-07-28"),
            (meta, None, "mcp-method", "tools/call"),
            (meta, None, "mcp-name", "=?base64?YXNrX8Op?="),
            (plain, None, "mcp-protocol-version", ""),
            (plain, Some("2025-11-25"), "mcp-protocol-version", "2025-11-25"),
            (initialize, Some("2025-11-25"), "mcp-protocol-version", ""),
            (r#"{"id":1,"method":"tasks/get","params":{"taskId":"t","name":"x"}}"#, None, "mcp-name", "t"),
            (r#"{"id":1,"method":"tools/list","params":{"name":"x"}}"#, None, "mcp-name", ""),
            ("no json", None, "mcp-method", ""),
        ] {
            assert_eq!(header(line, agreed, name), expected, "{name} of {line}");
        }
    }

    #[test]
    fn only_requests_are_answered_with_errors() {
        let line = |text: &str| ClientMessage::read(text.as_bytes()).error_line(Some(503), "away".to_owned());
        let expected = r#"{"jsonrpc":"2.0","id":1,"error":{"code":503,"message":"away"}}"#;
        assert_eq!(line(r#"{"id":1,"method":"ping"}"#).as_deref(), Some(expected));
        assert_eq!(line(r#"{"method":"notifications/initialized"}"#), None);
        assert_eq!(line("no json"), None);
        let cancelled = ClientMessage::read(br#"{"method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!(cancelled.cancelled_request(), Some(&7.into()));
    }
}
