//! The wire format of Anthropic's Messages.

use super::error::MockRequestError;
use super::openai::arguments_text;
use super::parts::{MockRequest, read_messages, read_text, request, sse, string, tool_name};
use crate::domain::chat::{Arguments, ChatMessage, Reply, TokenUsage, ToolCall};
use crate::model::scripted::chunks;
use serde_json::{Value, json};

pub(super) fn read(body: &Value) -> Result<MockRequest, MockRequestError> {
    let mut messages = Vec::new();
    for message in read_messages(body)? {
        let content = message.get("content");
        let blocks = content.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let of_type = |kind: &'static str| blocks.iter().filter(move |block| string(block, "/type") == kind);
        let text = read_text(content);
        match message.get("role").and_then(Value::as_str) {
            Some("user") => {
                for result in of_type("tool_result") {
                    let call = string(result, "/tool_use_id");
                    let text = read_text(result.get("content"));
                    messages.push(ChatMessage::Tool { name: tool_name(&messages, &call), call, text });
                }
                if of_type("tool_result").next().is_none() || !text.is_empty() {
                    messages.push(ChatMessage::user(text));
                }
            }
            Some("assistant") => {
                let calls = of_type("tool_use").map(|block| ToolCall {
                    id: string(block, "/id"),
                    name: string(block, "/name"),
                    arguments: Arguments::Json(block.get("input").cloned().unwrap_or_default()),
                });
                messages.push(ChatMessage::assistant(text, calls.collect()));
            }
            other => return Err(MockRequestError::unknown_role(other)),
        }
    }
    Ok(MockRequest {
        request: request("anthropic", body, read_text(body.get("system")), messages)?,
        stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        stream_usage: true,
    })
}

fn stop_reason(reply: &Reply) -> &'static str {
    match (reply.truncated, reply.calls.is_empty()) {
        (true, _) => "max_tokens",
        (false, true) => "end_turn",
        (false, false) => "tool_use",
    }
}

/// `input_tokens` exclude tokens read from or written to the cache.
fn usage(reply: &Reply) -> Value {
    let TokenUsage { input, output, cache_read, cache_write, .. } = reply.usage;
    json!({
        "input_tokens": input.saturating_sub(cache_read + cache_write),
        "cache_read_input_tokens": cache_read,
        "cache_creation_input_tokens": cache_write,
        "output_tokens": output,
    })
}

pub(super) fn full_reply(model: &str, reply: &Reply) -> Value {
    let mut content = Vec::with_capacity(reply.calls.len() + 1);
    if !reply.text.is_empty() {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    for call in &reply.calls {
        // A whole message can't hold arguments that are not JSON: they are sent as a string.
        let input = match &call.arguments {
            Arguments::Json(value) => value.clone(),
            Arguments::Malformed(text) => Value::String(text.clone()),
        };
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    json!({
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason(reply),
        "stop_sequence": null,
        "usage": usage(reply),
    })
}

pub(super) fn events(model: &str, reply: &Reply) -> Vec<String> {
    let event = |kind: &str, mut data: Value| {
        data["type"] = kind.into();
        sse(Some(kind), &data.to_string())
    };
    let mut message = full_reply(model, &Reply { usage: reply.usage, ..Reply::default() });
    message["stop_reason"] = Value::Null;
    message["usage"]["output_tokens"] = 0.into();
    let mut events = vec![event("message_start", json!({"message": message}))];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        let mut events = vec![event("content_block_start", json!({"index": index, "content_block": start}))];
        for delta in deltas {
            events.push(event("content_block_delta", json!({"index": index, "delta": delta})));
        }
        events.push(event("content_block_stop", json!({"index": index})));
        index += 1;
        events
    };
    if !reply.text.is_empty() {
        let deltas = chunks(&reply.text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        events.extend(block(json!({"type": "text", "text": ""}), deltas.collect()));
    }
    for call in &reply.calls {
        let pieces = chunks(&arguments_text(&call.arguments));
        let deltas = pieces.into_iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        events.extend(block(start, deltas.collect()));
    }
    let delta = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
    events.push(event("message_delta", json!({"delta": delta, "usage": {"output_tokens": reply.usage.output}})));
    events.push(event("message_stop", json!({})));
    events
}
