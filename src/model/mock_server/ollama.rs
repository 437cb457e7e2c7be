//! The wire format of Ollama's chats: one JSON object per line.

use super::error::MockRequestError;
use super::parts::{MockRequest, read_messages, read_text, request, string};
use crate::domain::chat::{Arguments, ChatMessage, Reply, ToolCall};
use crate::model::scripted::chunks;
use serde_json::{Value, json};

pub(super) fn read(body: &Value) -> Result<MockRequest, MockRequestError> {
    let mut system = String::new();
    let mut messages = Vec::new();
    // Calls have no ids: a result answers the oldest open call.
    let mut open: Vec<ToolCall> = Vec::new();
    for message in read_messages(body)? {
        let text = read_text(message.get("content"));
        match message.get("role").and_then(Value::as_str) {
            Some("system") => system = text,
            Some("user") => messages.push(ChatMessage::user(text)),
            Some("assistant") => {
                let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
                open = calls.enumerate().map(|(at, call)| read_call(at, call)).collect();
                messages.push(ChatMessage::assistant(text, open.clone()));
            }
            Some("tool") => {
                let answered = (!open.is_empty()).then(|| open.remove(0));
                let (call, called) = answered.map(|call| (call.id, call.name)).unwrap_or_default();
                let name = message.get("tool_name").and_then(Value::as_str).map_or(called, str::to_owned);
                messages.push(ChatMessage::Tool { call, name, text });
            }
            other => return Err(MockRequestError::unknown_role(other)),
        }
    }
    Ok(MockRequest {
        request: request("ollama", body, system, messages)?,
        // Unlike other providers, Ollama streams by default.
        stream: body.get("stream").and_then(Value::as_bool).unwrap_or(true),
        stream_usage: true,
    })
}

fn read_call(at: usize, call: &Value) -> ToolCall {
    ToolCall {
        id: format!("call_{at}"),
        name: string(call, "/function/name"),
        arguments: Arguments::Json(call.pointer("/function/arguments").cloned().unwrap_or_default()),
    }
}

fn reply_line(model: &str, message: &Value) -> Value {
    json!({"model": model, "created_at": "1970-01-01T00:00:00Z", "message": message, "done": false})
}

fn calls(reply: &Reply) -> Value {
    let calls = reply.calls.iter().map(|call| {
        let arguments = match &call.arguments {
            Arguments::Json(value) => value.clone(),
            Arguments::Malformed(text) => Value::String(text.clone()),
        };
        json!({"function": {"name": call.name, "arguments": arguments}})
    });
    calls.collect()
}

fn finish(mut line: Value, reply: &Reply) -> Value {
    line["done"] = true.into();
    line["done_reason"] = if reply.truncated { "length" } else { "stop" }.into();
    line["prompt_eval_count"] = reply.usage.input.into();
    line["eval_count"] = reply.usage.output.into();
    line
}

pub(super) fn full_reply(model: &str, reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    if !reply.calls.is_empty() {
        message["tool_calls"] = calls(reply);
    }
    finish(reply_line(model, &message), reply)
}

pub(super) fn events(model: &str, reply: &Reply) -> Vec<String> {
    let mut lines: Vec<Value> = chunks(&reply.text)
        .into_iter()
        .map(|piece| reply_line(model, &json!({"role": "assistant", "content": piece})))
        .collect();
    if !reply.calls.is_empty() {
        lines.push(reply_line(model, &json!({"role": "assistant", "content": "", "tool_calls": calls(reply)})));
    }
    lines.push(finish(reply_line(model, &json!({"role": "assistant", "content": ""})), reply));
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}
