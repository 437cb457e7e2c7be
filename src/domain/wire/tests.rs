//! Requests and streams for the tests of codecs.

use super::dialect::find_dialect;
use super::{DecodeError, Decoder, EncodeError, EncodedRequest, encode};
use crate::chat::{
    Arguments, ChatMessage, ModelRequest, ModelSettings, OutputFormat, Reasoning, Reply, TokenUsage, ToolCall, ToolSpec,
};
use crate::ids::AssetId;
use crate::media::{AttachedBytes, Attachment, MediaType};
use serde_json::{Value, json};

mod attachments;

/// A request with one user's message and a system prompt.
pub(super) fn request(provider: &str) -> ModelRequest {
    ModelRequest {
        model: ModelSettings::new(provider, "m"),
        system: "Be brief.".into(),
        messages: vec![user("hello")],
        tools: Vec::new().into(),
        turn: "t/u/a/s/1".into(),
        stable: 0,
        output: None,
    }
}

pub(super) fn user(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

pub(super) fn result(id: &str, text: &str) -> ChatMessage {
    ChatMessage::Tool { call: id.into(), name: "read".into(), text: text.into() }
}

/// A model's message with calls of `read` under these ids, and recorded reasoning of the model `m`.
pub(super) fn assistant(provider: &str, text: &str, ids: &[&str], items: Vec<Value>) -> ChatMessage {
    let call = |id: &&str| ToolCall {
        id: (*id).into(),
        name: "read".into(),
        arguments: Arguments::Json(json!({"path": "a"})),
    };
    let reasoning = (!items.is_empty()).then(|| Reasoning { by: format!("{provider}/m"), items });
    ChatMessage::Assistant { text: text.into(), calls: ids.iter().map(call).collect(), reasoning }
}

pub(super) fn tool(name: &str) -> ToolSpec {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    ToolSpec { name: name.into(), description: "Reads.".into(), schema }
}

pub(super) fn output(tools_optional: bool) -> OutputFormat {
    OutputFormat { schema: json!({"type": "object", "properties": {"a": {"type": "integer"}}}), tools_optional }
}

/// The request as it is sent.
pub(super) fn encoded(request: &ModelRequest) -> Result<EncodedRequest, EncodeError> {
    encode(request, &find_dialect(&request.model.provider).unwrap(), "session-1")
}

/// The body of a request.
pub(super) fn body(request: &ModelRequest) -> Value {
    encoded(request).unwrap().request.body
}

/// The reply to a request with a tool `read` that this stream is, the same however its bytes are cut.
pub(super) fn read(provider: &str, stream: &str) -> Result<Reply, DecodeError> {
    let request = ModelRequest { tools: vec![tool("read")].into(), ..request(provider) };
    let dialect = find_dialect(provider).unwrap();
    let encoded = encoded(&request).unwrap();
    let read = |pieces: &[&[u8]]| {
        let mut decoder = Decoder::new(&dialect, &encoded, &request.model.id(), None);
        let mut live = String::new();
        for piece in pieces {
            live.push_str(&decoder.feed(piece)?);
        }
        let (rest, reply) = decoder.end()?;
        assert_eq!(live + &rest, reply.text, "what was watched is the text");
        Ok(reply)
    };
    let bytes = stream.as_bytes();
    let whole = read(&[bytes]);
    for at in 0..bytes.len() {
        assert_eq!(read(&[&bytes[..at], &bytes[at..]]), whole, "{stream} cut at {at}");
    }
    whole
}

/// A reply in one line: text, calls, reasoning, usage, what is unusual.
pub(super) fn shown(reply: Result<Reply, DecodeError>) -> String {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return format!("{error:?}"),
    };
    let mut parts = vec![format!("{:?}", reply.text)];
    for call in reply.calls {
        parts.push(match call.arguments {
            Arguments::Json(value) => format!("{} {} {value}", call.id, call.name),
            Arguments::Malformed(text) => format!("{} {} malformed {text}", call.id, call.name),
        });
    }
    if let Some(reasoning) = reply.reasoning {
        parts.push(format!("reasoning {}", json!(reasoning.items)));
    }
    let usage = reply.usage;
    if usage != TokenUsage::default() {
        let classes = [usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning];
        parts.push(format!("{classes:?}"));
    }
    if reply.truncated {
        parts.push("truncated".into());
    }
    parts.join(" | ")
}

/// An event stream of these values, with `[DONE]` behind them.
pub(super) fn stream(frames: &[Value]) -> String {
    let events: Vec<String> = frames.iter().map(|frame| format!("data: {frame}\n\n")).collect();
    events.concat() + "data: [DONE]\n\n"
}

/// What a decoder makes of bytes, in pieces of the given size.
fn outcome(provider: &str, bytes: &str, size: usize) -> Result<crate::chat::Reply, String> {
    let dialect = find_dialect(provider).unwrap();
    let encoded = encoded(&request(provider)).unwrap();
    let mut decoder = Decoder::new(&dialect, &encoded, "x/y", Some(1_000));
    for piece in bytes.as_bytes().chunks(size) {
        decoder.feed(piece).map_err(|error| error.to_string())?;
    }
    decoder.end().map(|(_, reply)| reply).map_err(|error| error.to_string())
}

const STOPPED: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";

#[test]
fn data_after_a_whole_reply_does_not_change_it() {
    for behind in
        ["data: {\"id\":\"x\",\"usa", "data: junk\n\n", "data: [DONE]\n\ndata: junk\n\n", "event: x\ndata: {]\n\n"]
    {
        for size in [7, 10_000] {
            let reply = outcome("openai", &format!("{STOPPED}{behind}"), size).unwrap();
            assert_eq!(reply.text, "hi", "{behind}");
        }
    }
}

#[test]
fn a_call_without_arguments_counts_only_in_a_whole_reply() {
    let call = |arguments: &str, finish: &str| {
        let function = json!({"name": "read", "arguments": arguments});
        let delta = json!({"tool_calls": [{"index": 0, "id": "a", "function": function}]});
        format!("data: {}\n\n{finish}data: [DONE]\n\n", json!({"choices": [{"delta": delta}]}))
    };
    let finish = format!("data: {}\n\n", json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}));
    for arguments in ["", "{}", "{\"path\":"] {
        assert_eq!(
            outcome("openai", &call(arguments, ""), 9).unwrap_err(),
            "the reply ended in the middle",
            "{arguments}"
        );
    }
    assert_eq!(outcome("openai", &call("{\"path\":\"x\"}", ""), 9).unwrap().calls.len(), 1);
    assert_eq!(outcome("openai", &call("", &finish), 9).unwrap().calls.len(), 1, "a call may have none");
}

#[test]
fn a_reply_of_very_many_pieces_is_too_much() {
    let call = |at: usize| json!({"id": format!("c{at}"), "function": {"name": "f", "arguments": ""}});
    let calls: Vec<_> = (0..1_100).map(call).collect();
    let calls = json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let detail = |at: usize| json!({"type": "reasoning.text", "index": at, "x": "y"});
    let details: Vec<_> = (0..1_100).map(detail).collect();
    let details = json!({"choices": [{"delta": {"reasoning_details": details}}]});
    for (provider, event) in [("openai", calls), ("openrouter", details)] {
        let error = outcome(provider, &format!("data: {event}\n\n"), 100_000).unwrap_err();
        assert!(error.contains("more calls or pieces of reasoning than any model makes"), "{provider}: {error}");
    }
}
