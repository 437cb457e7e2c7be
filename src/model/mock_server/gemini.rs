//! The wire format of Gemini's contents.

use super::error::MockRequestError;
use super::parts::{MockRequest, read_list, read_text, request, sse, string, tool_name};
use crate::domain::chat::{Arguments, ChatMessage, Reply, TokenUsage, ToolCall};
use crate::model::scripted::chunks;
use serde_json::{Value, json};

/// Adds to the body what other protocols have in it. `call` is the last part of the path, `MODEL:METHOD`.
pub(super) fn complete(body: &mut Value, call: &str) -> Result<(), MockRequestError> {
    let (model, stream) = match call.rsplit_once(':') {
        Some((model, "streamGenerateContent")) => (model, true),
        Some((model, "generateContent")) => (model, false),
        _ => return Err(MockRequestError::UnknownMethod { call: call.to_owned() }),
    };
    let body = body.as_object_mut().ok_or(MockRequestError::NotAnObject)?;
    body.insert("model".into(), model.into());
    body.insert("stream".into(), stream.into());
    Ok(())
}

pub(super) fn read(body: &Value) -> Result<MockRequest, MockRequestError> {
    let contents = read_list(body, "contents")?;
    let mut messages = Vec::new();
    for content in contents {
        let parts = content.get("parts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let text = read_text(content.get("parts"));
        if content.get("role").and_then(Value::as_str) == Some("model") {
            let calls = parts.iter().filter_map(|part| part.get("functionCall"));
            let calls = calls.enumerate().map(|(at, call)| read_call(at, call)).collect();
            messages.push(ChatMessage::assistant(text, calls));
            continue;
        }
        let results: Vec<&Value> = parts.iter().filter_map(|part| part.get("functionResponse")).collect();
        for result in &results {
            let call = string(result, "/id");
            let named = string(result, "/name");
            let name = if named.is_empty() { tool_name(&messages, &call) } else { named };
            messages.push(ChatMessage::Tool { call, name, text: string(result, "/response/result") });
        }
        if results.is_empty() || !text.is_empty() {
            messages.push(ChatMessage::user(text));
        }
    }
    Ok(MockRequest {
        request: request("gemini", body, read_text(body.pointer("/systemInstruction/parts")), messages)?,
        stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
        stream_usage: true,
    })
}

fn read_call(at: usize, call: &Value) -> ToolCall {
    let id = call.get("id").and_then(Value::as_str).map_or_else(|| format!("call_{at}"), str::to_owned);
    let arguments = Arguments::Json(call.get("args").cloned().unwrap_or_default());
    ToolCall { id, name: string(call, "/name"), arguments }
}

fn candidate(model: &str, parts: &Value, finish: Value, reply: &Reply) -> Value {
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if !finish.is_null() {
        candidate["finishReason"] = finish;
    }
    let TokenUsage { input, output, cache_read, reasoning, .. } = reply.usage;
    json!({
        "candidates": [candidate],
        "modelVersion": model,
        "usageMetadata": {
            "promptTokenCount": input,
            "cachedContentTokenCount": cache_read,
            "candidatesTokenCount": output.saturating_sub(reasoning),
            "thoughtsTokenCount": reasoning,
            "totalTokenCount": input + output,
        },
    })
}

fn finish_reason(reply: &Reply) -> &'static str {
    if reply.truncated { "MAX_TOKENS" } else { "STOP" }
}

/// Makes a call without an id: most Gemini models send none.
fn call_part(call: &ToolCall) -> Value {
    let args = match &call.arguments {
        Arguments::Json(value) => value.clone(),
        Arguments::Malformed(text) => Value::String(text.clone()),
    };
    json!({"functionCall": {"name": call.name, "args": args}})
}

pub(super) fn full_reply(model: &str, reply: &Reply) -> Value {
    let text = (!reply.text.is_empty()).then(|| json!({"text": reply.text}));
    let parts: Value = text.into_iter().chain(reply.calls.iter().map(call_part)).collect();
    candidate(model, &parts, finish_reason(reply).into(), reply)
}

pub(super) fn events(model: &str, reply: &Reply) -> Vec<String> {
    let texts = chunks(&reply.text).into_iter().map(|piece| json!([{"text": piece}]));
    let parts = texts.chain(reply.calls.iter().map(|call| json!([call_part(call)])));
    let mut events: Vec<Value> = parts.map(|parts| candidate(model, &parts, Value::Null, reply)).collect();
    events.push(candidate(model, &json!([{"text": ""}]), finish_reason(reply).into(), reply));
    events.iter().map(|event| sse(None, &event.to_string())).collect()
}
