//! Parts of requests and replies that all protocols share.

use super::error::MockRequestError;
use crate::domain::chat::{ChatMessage, ModelRequest, ModelSettings};
use serde_json::Value;

/// A parsed request, with its options of streaming.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MockRequest {
    pub(crate) request: ModelRequest,
    pub(crate) stream: bool,
    /// Whether the stream ends with its usage; `OpenAI` clients must ask for it.
    pub(crate) stream_usage: bool,
}

/// Makes a request of the parts that all protocols share.
pub(crate) fn request(
    provider: &str,
    body: &Value,
    system: String,
    messages: Vec<ChatMessage>,
) -> Result<ModelRequest, MockRequestError> {
    let name = body.get("model").and_then(Value::as_str).ok_or(MockRequestError::NoModel)?;
    Ok(ModelRequest {
        model: ModelSettings::new(provider, name),
        system,
        messages,
        tools: Vec::new().into(),
        turn: String::new(),
        stable: 0,
        output: None,
    })
}

/// Returns the list of messages.
pub(crate) fn read_messages(body: &Value) -> Result<&Vec<Value>, MockRequestError> {
    read_list(body, "messages")
}

/// Returns the list at a key.
pub(crate) fn read_list<'b>(body: &'b Value, key: &'static str) -> Result<&'b Vec<Value>, MockRequestError> {
    body.get(key).and_then(Value::as_array).ok_or(MockRequestError::NoList { key })
}

/// Returns a text, or the joined texts of a list of parts.
pub(crate) fn read_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    }
}

/// Returns the text at a JSON pointer; empty if there is none.
pub(crate) fn string(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the tool of the call that a result answers.
pub(crate) fn tool_name(messages: &[ChatMessage], id: &str) -> String {
    let calls = messages.iter().rev().flat_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.as_slice(),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => &[],
    });
    calls.into_iter().find(|call| call.id == id).map(|call| call.name.clone()).unwrap_or_default()
}

/// Formats one server-sent event.
pub(crate) fn sse(event: Option<&str>, data: &str) -> String {
    match event {
        Some(event) => format!("event: {event}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}
