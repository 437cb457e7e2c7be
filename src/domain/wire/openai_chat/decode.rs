//! Decodes a reply in this format, streamed or in one body, with the deviations of many servers.

use super::super::reply::{CallPiece, ReplyBuilder, StopReason};
use super::super::{DecodeError, ProviderReport};
use super::usage::{parse_timings, parse_usage};
use serde_json::{Map, Value, json};

/// Adds one frame to the reply.
pub(crate) fn take_frame(reply: &mut ReplyBuilder, value: &Value) -> Result<(), DecodeError> {
    let Some(frame) = value.as_object() else { return Ok(()) };
    if let Some(report) = reported_failure(frame) {
        return Err(DecodeError::Reported(report));
    }
    if let Some(found) = frame.get("timings") {
        reply.set_usage(parse_timings(found));
    }
    for place in ["/usage", "/x_groq/usage"] {
        if let Some(usage) = value.pointer(place).filter(|usage| usage.is_object()) {
            reply.set_usage(parse_usage(usage));
        }
    }
    let choices = frame.get("choices").and_then(Value::as_array);
    // Requests ask for one reply only.
    let is_first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
    for choice in choices.into_iter().flatten().filter(is_first) {
        take_choice(reply, choice)?;
    }
    Ok(())
}

/// Returns the failure that a frame reports, in any of the forms that servers use.
fn reported_failure(frame: &Map<String, Value>) -> Option<ProviderReport> {
    let is_told = |error: &Value| match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    };
    if frame.get("error").is_some_and(is_told) {
        return Some(ProviderReport::from_body(&json!(frame)));
    }
    if frame.get("choices").is_some_and(Value::is_array) {
        return None;
    }
    // The form of MiniMax and Baidu.
    let status = frame.get("base_resp").and_then(|it| it.get("status_code")?.as_i64()).filter(|status| *status != 0);
    if status.is_some() {
        let message = frame["base_resp"].get("status_msg").and_then(Value::as_str).unwrap_or("no message");
        return Some(ProviderReport::from_body(
            &json!({"message": message, "code": status.map(|status| status.to_string())}),
        ));
    }
    if let Some(message) = frame.get("error_msg").and_then(Value::as_str) {
        let code = frame.get("error_code").map(Value::to_string);
        return Some(ProviderReport::from_body(&json!({"message": message, "code": code})));
    }
    let has_words = ["message", "msg"].iter().any(|key| {
        let text = frame.get(*key).and_then(Value::as_str);
        text.is_some_and(|text| !text.is_empty())
    });
    let is_error = frame.get("object").and_then(Value::as_str) == Some("error") || frame.contains_key("detail");
    (has_words || is_error).then(|| ProviderReport::from_body(&json!(frame)))
}

fn take_choice(reply: &mut ReplyBuilder, choice: &Value) -> Result<(), DecodeError> {
    if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
        return Err(DecodeError::Reported(ProviderReport::from_body(&json!({"error": error}))));
    }
    if let Some(usage) = choice.get("usage").filter(|usage| usage.is_object()) {
        reply.set_usage(parse_usage(usage));
    }
    // If both are present, `message` repeats everything so far.
    let message = ["delta", "message"].iter().find_map(|key| choice.get(*key).filter(|it| it.is_object()));
    if let Some(message) = message {
        take_message(reply, message)?;
    }
    if let Some(stop) = choice.get("finish_reason").and_then(Value::as_str).and_then(parse_stop) {
        reply.set_stop(stop);
    }
    Ok(())
}

fn take_message(reply: &mut ReplyBuilder, message: &Value) -> Result<(), DecodeError> {
    take_reasoning(reply, message)?;
    match message.get("content") {
        Some(Value::String(text)) => reply.push_text(text)?,
        Some(Value::Array(parts)) => {
            for part in parts {
                take_part(reply, part)?;
            }
        }
        Some(_) | None => {}
    }
    if let Some(refusal) = message.get("refusal").and_then(Value::as_str) {
        reply.push_refusal(refusal)?;
    }
    match message.get("tool_calls") {
        Some(Value::Array(calls)) if !calls.is_empty() => {
            for call in calls {
                take_call(reply, call)?;
            }
        }
        Some(call @ Value::Object(_)) => take_call(reply, call)?,
        Some(_) | None => {
            if let Some(function) = message.get("function_call").filter(|function| function.is_object()) {
                let name = function.get("name").and_then(Value::as_str);
                reply.push_call(CallPiece { name, arguments: function.get("arguments"), ..CallPiece::default() })?;
            }
        }
    }
    Ok(())
}

/// Adds a part of a content that is a list; Mistral sends reasoning in one.
fn take_part(reply: &mut ReplyBuilder, part: &Value) -> Result<(), DecodeError> {
    match part.get("type").and_then(Value::as_str) {
        Some("thinking" | "reasoning") => match part.get("thinking").or_else(|| part.get("text")) {
            Some(Value::String(text)) => reply.push_thought(text),
            Some(Value::Array(inner)) => inner
                .iter()
                .filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()))
                .try_for_each(|text| reply.push_thought(text)),
            Some(_) | None => Ok(()),
        },
        Some("refusal") => part.get("refusal").and_then(Value::as_str).map_or(Ok(()), |it| reply.push_refusal(it)),
        Some(_) | None => {
            let text = part.as_str().or_else(|| part.get("text")?.as_str());
            text.map_or(Ok(()), |text| reply.push_text(text))
        }
    }
}

fn take_reasoning(reply: &mut ReplyBuilder, message: &Value) -> Result<(), DecodeError> {
    // Beside the details the same reasoning stands as text.
    if let Some(details) = message.get("reasoning_details").and_then(Value::as_array).filter(|it| !it.is_empty()) {
        return details.iter().try_for_each(|detail| take_detail(reply, detail));
    }
    let keys = ["reasoning_content", "reasoning", "reasoning_text", "thinking"];
    let text = keys.iter().find_map(|key| message.get(*key)?.as_str().filter(|text| !text.is_empty()));
    text.map_or(Ok(()), |text| reply.push_thought(text))
}

/// Adds a piece of `reasoning_details`. Pieces with the same index belong to one block; they are joined, because the
/// signature covers the whole block and the block must go back in one piece.
fn take_detail(reply: &mut ReplyBuilder, detail: &Value) -> Result<(), DecodeError> {
    let kind = detail.get("type").and_then(Value::as_str);
    let key = match kind {
        Some("reasoning.text") => "text",
        Some("reasoning.summary") => "summary",
        Some(_) | None => return reply.push_reasoning(detail.clone()),
    };
    let text = detail.get(key).and_then(Value::as_str).unwrap_or_default();
    let index = detail.get("index");
    let items = reply.reasoning_mut(detail.to_string().len())?;
    let begun = items.iter().rposition(|item| item.get("type") == detail.get("type") && item.get("index") == index);
    let last = items.len().checked_sub(1);
    let Some(at) = begun.filter(|at| index.is_some() || Some(*at) == last) else {
        items.push(detail.clone());
        return Ok(());
    };
    let (Some(item), Some(detail)) = (items[at].as_object_mut(), detail.as_object()) else { return Ok(()) };
    for (name, value) in detail {
        match item.get_mut(name) {
            Some(Value::String(before)) if name == key => before.push_str(text),
            Some(before) if !value.is_null() => *before = value.clone(),
            Some(_) => {}
            None => drop(item.insert(name.clone(), value.clone())),
        }
    }
    Ok(())
}

fn take_call(reply: &mut ReplyBuilder, call: &Value) -> Result<(), DecodeError> {
    let function = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
    let piece = CallPiece {
        index: call.get("index").and_then(Value::as_u64),
        id: call.get("id").and_then(Value::as_str),
        name: function.get("name").and_then(Value::as_str),
        arguments: function.get("arguments"),
    };
    if piece.id.is_none() && piece.name.is_none() && piece.arguments.is_none() {
        return Ok(());
    }
    let before = reply.call_count();
    reply.push_call(piece)?;
    let signature = ["google", "vertex"].iter().find_map(|by| {
        call.get("extra_content")?.get(*by)?.get("thought_signature")?.as_str().filter(|it| !it.is_empty())
    });
    let Some(signature) = signature else { return Ok(()) };
    // A signature comes with the first piece of its call, or right behind it.
    let at = if reply.call_count() > before { before } else { before.saturating_sub(1) };
    if reply.reasoning().iter().any(|item| item.get("call") == Some(&json!(at))) {
        return Ok(());
    }
    reply.push_reasoning(json!({"call": at, "thought_signature": signature}))
}

/// Maps a `finish_reason`; `None` if it says nothing.
fn parse_stop(reason: &str) -> Option<StopReason> {
    let name = reason.trim().to_ascii_lowercase();
    Some(match name.as_str() {
        "" | "null" => return None,
        "stop" | "tool_calls" | "function_call" | "tool_call" | "tool_use" | "eos" | "eos_token" | "end_turn"
        | "stop_sequence" | "complete" => StopReason::Complete,
        "length" | "max_tokens" | "max_output_tokens" | "model_length" | "model_context_window_exceeded" => {
            StopReason::Length
        }
        "refusal" => StopReason::Refused(reason.to_owned()),
        "sensitive" | "safety" | "recitation" | "blocklist" | "prohibited_content" | "spii" | "content-filter" => {
            StopReason::Filtered(reason.to_owned())
        }
        _ if name.starts_with("content_filter") => StopReason::Filtered(reason.to_owned()),
        _ => StopReason::Unfinished(reason.to_owned()),
    })
}
