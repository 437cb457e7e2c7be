//! Decodes a reply in this format, streamed or in one body.

use super::super::frames::ReplyLimitError;
use super::super::openai_chat::parse_usage;
use super::super::reply::{ReplyBuilder, StopReason};
use super::super::{DecodeError, ProviderReport};
use super::items::{OutputItemKind, OutputItems};
use serde_json::Value;

/// Adds one frame to the reply.
pub(crate) fn take_frame(reply: &mut ReplyBuilder, items: &mut OutputItems, value: &Value) -> Result<(), DecodeError> {
    let Some(kind) = value.get("type").and_then(Value::as_str) else { return take_body(reply, items, value) };
    if items.are_too_many() {
        return Err(ReplyLimitError::Pieces.into());
    }
    let event = ItemEvent { value, place: value.get("output_index").and_then(Value::as_u64) };
    match kind {
        "response.output_text.delta" => {
            let at = event.find(items, OutputItemKind::Message);
            items.push_text(at, event.text("delta"), reply)
        }
        "response.output_text.done" => {
            let at = event.find(items, OutputItemKind::Message);
            if items.has_content(at) { Ok(()) } else { items.push_text(at, event.text("text"), reply) }
        }
        "response.refusal.delta" => {
            let at = event.find(items, OutputItemKind::Message);
            items.push_refusal(at, event.text("delta"), reply)
        }
        "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" | "response.reasoning.delta" => {
            let at = event.find(items, OutputItemKind::Reasoning);
            items.push_thought(at, event.text("delta"), reply)
        }
        "response.function_call_arguments.delta" => {
            let at = event.find(items, OutputItemKind::Call);
            items.push_arguments(at, value.get("delta").unwrap_or(&Value::Null), false, reply)
        }
        "response.function_call_arguments.done" => {
            let at = event.find(items, OutputItemKind::Call);
            items.push_arguments(at, value.get("arguments").unwrap_or(&Value::Null), true, reply)
        }
        "response.output_item.added" => event.take_item(items, reply, false),
        "response.output_item.done" => event.take_item(items, reply, true),
        "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" | "response.done" => {
            let status = kind.trim_start_matches("response.");
            take_end(reply, items, value.get("response").unwrap_or(&Value::Null), status)
        }
        "error" => Err(DecodeError::Reported(ProviderReport::from_body(value))),
        // Other events repeat the content of the events above.
        _ if kind.starts_with("response.") => take_failure(value),
        _ => take_words(value),
    }
}

/// An event of one output item.
#[derive(Clone, Copy)]
struct ItemEvent<'v> {
    value: &'v Value,
    place: Option<u64>,
}

impl<'v> ItemEvent<'v> {
    fn text(&self, key: &str) -> &'v str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn find(&self, items: &mut OutputItems, kind: OutputItemKind) -> usize {
        items.find_or_begin(kind, self.place, self.value.get("item_id").and_then(Value::as_str))
    }

    fn take_item(&self, items: &mut OutputItems, reply: &mut ReplyBuilder, is_whole: bool) -> Result<(), DecodeError> {
        let Some(item) = self.value.get("item") else { return Ok(()) };
        let Some(kind) = OutputItemKind::from_item(item) else { return Ok(()) };
        let at = items.find_or_begin(kind, self.place, item.get("id").and_then(Value::as_str));
        if is_whole {
            return items.finish(at, item, reply);
        }
        if kind == OutputItemKind::Call { items.name_call(at, item, reply) } else { Ok(()) }
    }
}

/// Takes a frame that is no event: a whole reply, or a failure.
fn take_body(reply: &mut ReplyBuilder, items: &mut OutputItems, value: &Value) -> Result<(), DecodeError> {
    if value.get("output").is_some_and(Value::is_array) || value.get("object").is_some_and(|it| it == "response") {
        return take_end(reply, items, value, "done");
    }
    take_words(value)
}

/// Returns the failure that a frame describes without naming it an error.
fn take_words(value: &Value) -> Result<(), DecodeError> {
    let has_words = ["message", "detail"].iter().any(|key| value.get(*key).is_some_and(|it| !it.is_null()));
    if has_words { Err(DecodeError::Reported(ProviderReport::from_body(value))) } else { take_failure(value) }
}

fn take_failure(value: &Value) -> Result<(), DecodeError> {
    match value.get("error").filter(|error| !error.is_null()) {
        Some(_) => Err(DecodeError::Reported(ProviderReport::from_body(value))),
        None => Ok(()),
    }
}

/// Takes the end of a reply. `event` is the status if the reply has none.
fn take_end(
    reply: &mut ReplyBuilder,
    items: &mut OutputItems,
    response: &Value,
    event: &str,
) -> Result<(), DecodeError> {
    take_failure(response)?;
    if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
        reply.set_usage(parse_usage(usage));
    }
    if let Some(output) = response.get("output").and_then(Value::as_array) {
        items.finish_all(output, reply)?;
    }
    let is_bound = |item: &Value| item.get("encrypted_content").is_some() || item.get("phase").is_some();
    if !reply.reasoning().iter().any(is_bound) {
        reply.reasoning_mut(0)?.clear();
    }
    let status = response.get("status").and_then(Value::as_str).unwrap_or(event);
    reply.set_stop(match status {
        "completed" | "done" => StopReason::Complete,
        "incomplete" => match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("max_output_tokens" | "max_tokens" | "length") => StopReason::Length,
            Some("content_filter") => StopReason::Filtered("content_filter".to_owned()),
            Some(reason) => StopReason::Unfinished(reason.to_owned()),
            None => StopReason::Unfinished(status.to_owned()),
        },
        _ => StopReason::Unfinished(status.to_owned()),
    });
    reply.mark_done();
    Ok(())
}
