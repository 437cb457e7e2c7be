//! The wire format of `OpenAI` Chat Completions.

use super::error::MockRequestError;
use super::parts::{MockRequest, read_messages, read_text, request, sse, string, tool_name};
use crate::domain::chat::{Arguments, ChatMessage, Reply, TokenUsage, ToolCall};
use crate::model::scripted::chunks;
use serde_json::{Value, json};

pub(super) fn read(body: &Value) -> Result<MockRequest, MockRequestError> {
    let mut system = String::new();
    let mut messages = Vec::new();
    for message in read_messages(body)? {
        let text = read_text(message.get("content"));
        match message.get("role").and_then(Value::as_str) {
            Some("system" | "developer") => system = text,
            Some("user") => messages.push(ChatMessage::user(text)),
            Some("assistant") => {
                let calls = message.get("tool_calls").and_then(Value::as_array);
                messages.push(ChatMessage::assistant(text, calls.into_iter().flatten().map(read_call).collect()));
            }
            Some("tool") => {
                let call = string(message, "/tool_call_id");
                messages.push(ChatMessage::Tool { name: tool_name(&messages, &call), call, text });
            }
            other => return Err(MockRequestError::unknown_role(other)),
        }
    }
    Ok(MockRequest {
        request: request("openai", body, system, messages)?,
        stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        stream_usage: body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or(false),
    })
}

fn read_call(call: &Value) -> ToolCall {
    let text = string(call, "/function/arguments");
    ToolCall {
        id: string(call, "/id"),
        name: string(call, "/function/name"),
        arguments: serde_json::from_str(&text).map_or(Arguments::Malformed(text), Arguments::Json),
    }
}

pub(super) fn arguments_text(arguments: &Arguments) -> String {
    match arguments {
        Arguments::Json(value) => value.to_string(),
        Arguments::Malformed(text) => text.clone(),
    }
}

fn finish_reason(reply: &Reply) -> &'static str {
    match (reply.truncated, reply.calls.is_empty()) {
        (true, _) => "length",
        (false, true) => "stop",
        (false, false) => "tool_calls",
    }
}

fn usage(reply: &Reply) -> Value {
    let TokenUsage { input, output, cache_read, reasoning, .. } = reply.usage;
    json!({
        "prompt_tokens": input,
        "completion_tokens": output,
        "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": cache_read},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    })
}

pub(super) fn full_reply(model: &str, reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    if !reply.calls.is_empty() {
        let calls = reply.calls.iter().map(|call| {
            let function = json!({"name": call.name, "arguments": arguments_text(&call.arguments)});
            json!({"id": call.id, "type": "function", "function": function})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(reply)}],
        "usage": usage(reply),
    })
}

pub(super) fn events(model: &str, reply: &Reply, with_usage: bool) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        let body = json!({
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
            "choices": choices,
            "usage": usage,
        });
        sse(None, &body.to_string())
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    events.extend(chunks(&reply.text).into_iter().map(|piece| delta(json!({"content": piece}))));
    for (index, call) in reply.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let opened = json!({"index": index, "id": call.id, "type": "function", "function": function});
        events.push(delta(json!({"tool_calls": [opened]})));
        for piece in chunks(&arguments_text(&call.arguments)) {
            events.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})));
        }
    }
    let finish = json!([{"index": 0, "delta": {}, "finish_reason": finish_reason(reply)}]);
    events.push(chunk(finish, Value::Null));
    if with_usage {
        events.push(chunk(json!([]), usage(reply)));
    }
    events.push(sse(None, "[DONE]"));
    events
}
