//! Decodes a reply in this format, streamed or in one body.

use super::super::reply::{CallPiece, ReplyBuilder, StopReason};
use super::super::{DecodeError, ProviderReport};
use super::blocks::POSITION_KEY;
use crate::chat::TokenUsage;
use serde_json::{Value, json};

/// Adds one frame to the reply.
pub(crate) fn take_frame(reply: &mut ReplyBuilder, event: Option<&str>, value: &Value) -> Result<(), DecodeError> {
    let kind = value["type"].as_str().or(event).unwrap_or_default();
    if kind == "error" || value.get("error").is_some_and(|error| !error.is_null()) {
        return Err(DecodeError::Reported(ProviderReport::from_body(value)));
    }
    match kind {
        "message_start" => {
            let message = &value["message"];
            take_usage(reply, &message["usage"]);
            take_content(reply, &message["content"])?;
        }
        "content_block_start" => begin_block(reply, value["index"].as_u64(), &value["content_block"])?,
        "content_block_delta" => grow_block(reply, value["index"].as_u64(), &value["delta"])?,
        "message_delta" => {
            take_usage(reply, &value["usage"]);
            take_stop(reply, &value["delta"]);
        }
        "message_stop" => reply.mark_done(),
        // A reply that was not streamed.
        "message" => {
            take_usage(reply, &value["usage"]);
            take_content(reply, &value["content"])?;
            take_stop(reply, value);
            reply.mark_done();
        }
        // `ping`, `content_block_stop`, and types that are not known yet.
        _ => {}
    }
    Ok(())
}

fn take_content(reply: &mut ReplyBuilder, content: &Value) -> Result<(), DecodeError> {
    if let Some(text) = content.as_str() {
        return reply.push_text(text);
    }
    for (index, block) in (0..).zip(content.as_array().into_iter().flatten()) {
        begin_block(reply, Some(index), block)?;
    }
    Ok(())
}

fn begin_block(reply: &mut ReplyBuilder, index: Option<u64>, block: &Value) -> Result<(), DecodeError> {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    match text("type") {
        "text" => reply.push_text(text("text")),
        "thinking" => begin_thinking(reply, text("thinking"), text("signature")),
        "redacted_thinking" => {
            let item = json!({"type": "redacted_thinking", "data": text("data")});
            reply.push_reasoning(with_position(reply, item))
        }
        "tool_use" => {
            let arguments = block.get("input").filter(|input| input.as_str().is_none_or(|text| !text.is_empty()));
            reply.push_call(CallPiece { index, id: block["id"].as_str(), name: block["name"].as_str(), arguments })
        }
        // Tools that the server runs itself, their results, and types that are not known yet.
        _ => Ok(()),
    }
}

fn begin_thinking(reply: &mut ReplyBuilder, thinking: &str, signature: &str) -> Result<(), DecodeError> {
    let item = json!({"type": "thinking", "thinking": thinking, "signature": signature});
    reply.push_reasoning(with_position(reply, item))
}

/// Adds to a piece of reasoning its place in the reply, unless the piece stands first.
fn with_position(reply: &ReplyBuilder, mut item: Value) -> Value {
    if reply.has_text() || reply.call_count() > 0 {
        item[POSITION_KEY] = json!({"text": reply.has_text(), "calls": reply.call_count()});
    }
    item
}

fn grow_block(reply: &mut ReplyBuilder, index: Option<u64>, delta: &Value) -> Result<(), DecodeError> {
    let text = |key: &str| delta[key].as_str().unwrap_or_default();
    match text("type") {
        "text_delta" => reply.push_text(text("text")),
        "input_json_delta" => {
            // Tools that the server runs itself have arguments too.
            let is_call = index.map_or(reply.call_count() > 0, |index| reply.has_call(index));
            let arguments = delta.get("partial_json").filter(|_| is_call);
            arguments
                .map_or(Ok(()), |it| reply.push_call(CallPiece { index, arguments: Some(it), ..CallPiece::default() }))
        }
        "thinking_delta" if is_thinking(reply) => reply.grow_reasoning("thinking", text("thinking")),
        "thinking_delta" => begin_thinking(reply, text("thinking"), ""),
        "signature_delta" => {
            if let Some(item) = reply.reasoning_mut(0)?.last_mut().filter(|item| item["type"] == "thinking") {
                item["signature"] = json!("");
            }
            reply.grow_reasoning("signature", text("signature"))
        }
        // `citations_delta`, and types that are not known yet.
        _ => Ok(()),
    }
}

/// Whether the last piece of reasoning is a thinking block, which may grow.
fn is_thinking(reply: &ReplyBuilder) -> bool {
    reply.reasoning().last().is_some_and(|item| item["type"] == "thinking")
}

fn take_stop(reply: &mut ReplyBuilder, delta: &Value) {
    let Some(reason) = delta["stop_reason"].as_str() else { return };
    reply.set_stop(match reason {
        "end_turn" | "stop_sequence" | "tool_use" => StopReason::Complete,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => {
            let details = &delta["stop_details"];
            let words = details["explanation"].as_str().or(details["category"].as_str());
            StopReason::Refused(words.unwrap_or(reason).to_owned())
        }
        other => StopReason::Unfinished(other.to_owned()),
    });
}

/// Sets the usage. Numbers are totals; an absent number keeps its earlier value.
fn take_usage(reply: &mut ReplyBuilder, usage: &Value) {
    let before = reply.usage();
    let number = |value: &Value, before: u64| value.as_u64().filter(|tokens| *tokens > 0).unwrap_or(before);
    let read = number(&usage["cache_read_input_tokens"], before.cache_read);
    let written = number(&usage["cache_creation_input_tokens"], before.cache_write);
    let fresh = before.input.saturating_sub(before.cache_read).saturating_sub(before.cache_write);
    reply.set_usage(TokenUsage {
        input: number(&usage["input_tokens"], fresh).saturating_add(read).saturating_add(written),
        output: number(&usage["output_tokens"], before.output),
        cache_read: read,
        cache_write: written,
        reasoning: number(&usage["output_tokens_details"]["thinking_tokens"], before.reasoning),
    });
}

#[cfg(test)]
mod tests;
