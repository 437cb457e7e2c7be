//! The wire format of OpenAI Responses.

use super::error::MockRequestError;
use super::openai::arguments_text;
use super::parts::{MockRequest, read_text, request, sse, string, tool_name};
use crate::domain::chat::{Arguments, ChatMessage, Reply, TokenUsage, ToolCall};
use crate::domain::decode;
use crate::model::scripted::chunks;
use serde_json::{Value, json};

pub(super) fn read(body: &Value) -> Result<MockRequest, MockRequestError> {
    let mut messages = Vec::new();
    match body.get("input") {
        Some(Value::String(text)) => messages.push(ChatMessage::user(text.clone())),
        Some(Value::Array(items)) => items.iter().try_for_each(|item| read_item(&mut messages, item))?,
        _ => return Err(MockRequestError::NoInput),
    }
    Ok(MockRequest {
        request: request("openai_resp", body, string(body, "/instructions"), messages)?,
        stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        stream_usage: true,
    })
}

fn read_item(messages: &mut Vec<ChatMessage>, item: &Value) -> Result<(), MockRequestError> {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    match (kind, item.get("role").and_then(Value::as_str)) {
        ("message", Some("assistant")) => {
            messages.push(ChatMessage::assistant(read_text(item.get("content")), Vec::new()));
        }
        ("message", Some("user" | "system" | "developer")) => {
            messages.push(ChatMessage::user(read_text(item.get("content"))));
        }
        ("function_call", _) => {
            let text = string(item, "/arguments");
            let arguments = decode::lenient_json(text.as_bytes()).map_or(Arguments::Malformed(text), Arguments::Json);
            let call = ToolCall { id: string(item, "/call_id"), name: string(item, "/name"), arguments };
            // Calls of one reply are separate items.
            match messages.last_mut() {
                Some(ChatMessage::Assistant { calls, .. }) => calls.push(call),
                _ => messages.push(ChatMessage::assistant(String::new(), vec![call])),
            }
        }
        ("function_call_output", _) => {
            let call = string(item, "/call_id");
            let (name, text) = (tool_name(messages, &call), read_text(item.get("output")));
            messages.push(ChatMessage::Tool { call, name, text });
        }
        ("reasoning", _) => {}
        (kind, role) => {
            return Err(MockRequestError::UnknownItem { kind: kind.to_owned(), role: role.map(str::to_owned) });
        }
    }
    Ok(())
}

fn usage(reply: &Reply) -> Value {
    let TokenUsage { input, output, cache_read, reasoning, .. } = reply.usage;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cache_read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input + output,
    })
}

fn message(text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"type": "message", "id": "msg_scripted", "role": "assistant", "status": "completed", "content": content})
}

fn function_call(at: usize, call: &ToolCall, arguments: &str) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{at}"), "call_id": call.id, "name": call.name,
        "arguments": arguments, "status": "completed",
    })
}

fn output(reply: &Reply) -> Vec<Value> {
    let text = (!reply.text.is_empty()).then(|| message(&reply.text));
    let calls = reply.calls.iter().enumerate();
    text.into_iter().chain(calls.map(|(at, call)| function_call(at, call, &arguments_text(&call.arguments)))).collect()
}

fn response(model: &str, status: &str, output: &[Value]) -> Value {
    json!({
        "id": "resp_scripted", "object": "response", "created_at": 0, "status": status, "model": model, "error": null,
        "incomplete_details": null, "instructions": null, "metadata": {}, "output": output, "parallel_tool_calls": true,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": null,
    })
}

pub(super) fn full_reply(model: &str, reply: &Reply) -> Value {
    let status = if reply.truncated { "incomplete" } else { "completed" };
    let mut whole = response(model, status, &output(reply));
    whole["usage"] = usage(reply);
    if reply.truncated {
        whole["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    whole
}

pub(super) fn events(model: &str, reply: &Reply) -> Vec<String> {
    let mut events = Vec::new();
    let mut number = 0;
    let mut event = |kind: &str, mut data: Value| {
        data["type"] = kind.into();
        data["sequence_number"] = number.into();
        number += 1;
        events.push(sse(Some(kind), &data.to_string()));
    };
    event("response.created", json!({"response": response(model, "in_progress", &[])}));
    let mut at = 0;
    if !reply.text.is_empty() {
        let place = json!({"item_id": "msg_scripted", "output_index": 0, "content_index": 0});
        let with = |key: &str, value: Value| {
            let mut data = place.clone();
            data[key] = value;
            data
        };
        let mut begun = message("");
        (begun["content"], begun["status"]) = (json!([]), "in_progress".into());
        event("response.output_item.added", json!({"output_index": 0, "item": begun}));
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        event("response.content_part.added", with("part", part("")));
        for piece in chunks(&reply.text) {
            let mut delta = with("delta", piece.into());
            delta["logprobs"] = json!([]);
            event("response.output_text.delta", delta);
        }
        let mut done = with("text", reply.text.clone().into());
        done["logprobs"] = json!([]);
        event("response.output_text.done", done);
        event("response.content_part.done", with("part", part(&reply.text)));
        event("response.output_item.done", json!({"output_index": 0, "item": message(&reply.text)}));
        at = 1;
    }
    for (number, call) in reply.calls.iter().enumerate() {
        let (place, text) = (at + number, arguments_text(&call.arguments));
        let mut begun = function_call(number, call, "");
        begun["status"] = "in_progress".into();
        event("response.output_item.added", json!({"output_index": place, "item": begun}));
        let id = format!("fc_{number}");
        for piece in chunks(&text) {
            let delta = json!({"item_id": id, "output_index": place, "delta": piece});
            event("response.function_call_arguments.delta", delta);
        }
        let done = json!({"item_id": id, "output_index": place, "name": call.name, "arguments": text});
        event("response.function_call_arguments.done", done);
        let item = function_call(number, call, &text);
        event("response.output_item.done", json!({"output_index": place, "item": item}));
    }
    let last = if reply.truncated { "response.incomplete" } else { "response.completed" };
    event(last, json!({"response": full_reply(model, reply)}));
    events
}
