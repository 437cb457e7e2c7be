//! What a provider's whole reply says, and whether it is one.

use crate::domain::chat::{self, Arguments, Reply};
use crate::domain::decode;
use crate::model::ModelError;
use crate::model::provider_error::{cut, unfinished};
use genai::adapter::AdapterKind;
use genai::chat::{StopReason, StreamEnd, ToolCall, Usage};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What stands behind a text that the limit of tokens has cut off.
const CUT_OFF: &str = "\n[cut off here: the limit of tokens was reached]";

/// The reply at the end of its stream.
pub(super) fn end_of(end: StreamEnd, kind: AdapterKind, model: &str) -> Result<Reply, ModelError> {
    // These adapters end a stream of their own accord when the connection is cut. Only a finished one has a stop reason
    // (or, from an old Ollama, the counts of its last line); the others end it only when the provider does.
    let unfinished = match kind {
        AdapterKind::Gemini
        | AdapterKind::GeminiIx
        | AdapterKind::OpenAIResp
        | AdapterKind::OpenCodeGo
        | AdapterKind::GithubCopilot => end.captured_stop_reason.is_none(),
        AdapterKind::Ollama | AdapterKind::OllamaCloud => {
            end.captured_stop_reason.is_none() && end.captured_usage.is_none()
        }
        _ => false,
    };
    if unfinished {
        return Err(cut(model));
    }
    let text = end.captured_texts().unwrap_or_default().concat();
    let usage = end.captured_usage.clone();
    let stop = end.captured_stop_reason.clone();
    let calls = calls_of(end.captured_into_tool_calls().unwrap_or_default(), kind);
    finish(text, calls, usage.as_ref(), stop.as_ref(), model)
}

/// The reply of this text and these calls, unless it isn't one.
pub(super) fn finish(
    mut text: String,
    calls: Vec<chat::ToolCall>,
    usage: Option<&Usage>,
    stop: Option<&StopReason>,
    model: &str,
) -> Result<Reply, ModelError> {
    let is_silent = text.is_empty() && calls.is_empty();
    match stop {
        Some(StopReason::ContentFilter(reason)) if is_silent => {
            let reason = format!("the provider's content filter refused an answer (`{reason}`)");
            return Err(ModelError::Permanent { model: model.to_owned(), reason });
        }
        // Half of an answer is none: the rest was taken out.
        Some(StopReason::ContentFilter(reason)) => {
            let said = text.chars().count();
            let reason =
                format!("the provider's content filter (`{reason}`) cut its reply off after {said} characters");
            return Err(unfinished(model, reason));
        }
        // Long work isn't thrown away, and nobody takes it for the whole.
        Some(StopReason::MaxTokens(_)) if !text.is_empty() && calls.is_empty() => text.push_str(CUT_OFF),
        Some(_) | None => {}
    }
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or_default();
    let usage = chat::Usage {
        input: count(usage.and_then(|usage| usage.prompt_tokens)),
        output: count(usage.and_then(|usage| usage.completion_tokens)),
    };
    Ok(Reply { text, calls, usage })
}

/// The calls of a reply, each with an id of its own.
pub(super) fn calls_of(calls: Vec<ToolCall>, kind: AdapterKind) -> Vec<chat::ToolCall> {
    let mut ids = BTreeSet::new();
    let mut found = Vec::with_capacity(calls.len());
    for (at, call) in calls.into_iter().enumerate() {
        // A result is matched to its call by this id alone.
        let usable = !call.call_id.is_empty() && ids.insert(call.call_id.clone());
        let id = match kind {
            _ if usable => call.call_id,
            // An id of this form the adapter knows for its own and keeps from Gemini, which refuses strange ones.
            AdapterKind::Gemini => format!("call#{}#{at}", call.fn_name),
            _ => format!("call_{}_{at}", call.fn_name),
        };
        found.push(chat::ToolCall { id, name: call.fn_name, arguments: received_arguments(call.fn_arguments) });
    }
    found
}

/// The library leaves arguments that are not JSON as text; no arguments are an empty object.
fn received_arguments(value: Value) -> Arguments {
    match value {
        Value::Null => Arguments::Json(Value::Object(Map::new())),
        Value::String(text) if text.trim().is_empty() => Arguments::Json(Value::Object(Map::new())),
        Value::String(text) => match decode::data(text.as_bytes()) {
            Ok(value @ Value::Object(_)) => Arguments::Json(value),
            _ => Arguments::Malformed(text),
        },
        other => Arguments::Json(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_an_object_or_malformed() {
        let table = [
            (json!({"a": 1}), Arguments::Json(json!({"a": 1}))),
            (json!(null), Arguments::Json(json!({}))),
            (json!(" "), Arguments::Json(json!({}))),
            (json!("{\"a\": 1}"), Arguments::Json(json!({"a": 1}))),
            (json!("{\"a\": 1"), Arguments::Malformed("{\"a\": 1".into())),
            (json!("text"), Arguments::Malformed("text".into())),
            (json!([1]), Arguments::Json(json!([1]))),
        ];
        for (given, expected) in table {
            assert_eq!(received_arguments(given.clone()), expected, "{given}");
        }
    }

    #[test]
    fn what_cuts_a_reply_off_is_said() {
        let check = |text: &str, stop: &str| {
            let stop = StopReason::from(stop.to_owned());
            match finish(text.into(), Vec::new(), None, Some(&stop), "openai/m") {
                Ok(reply) => reply.text,
                Err(error) => error.to_string(),
            }
        };
        for (text, stop, expected) in [
            ("whole", "stop", "whole"),
            ("half of", "length", "half of\n[cut off here: the limit of tokens was reached]"),
            ("", "length", ""),
            ("", "stop", ""),
            (
                "",
                "refusal",
                "model `openai/m` refused the request: the provider's content filter refused an answer (`refusal`)",
            ),
            (
                "half of",
                "content_filter",
                "model `openai/m` gave no usable reply: the provider's content filter (`content_filter`) cut its reply off after 7 characters",
            ),
        ] {
            assert_eq!(check(text, stop), expected, "{text} {stop}");
        }
    }

    #[test]
    fn ids_of_calls_are_unique() {
        let call = |id: &str| ToolCall {
            call_id: id.into(),
            fn_name: "f".into(),
            fn_arguments: json!({}),
            thought_signatures: None,
        };
        let ids: Vec<String> = calls_of(vec![call("a"), call("a"), call("")], AdapterKind::OpenAI)
            .into_iter()
            .map(|call| call.id)
            .collect();
        assert_eq!(ids, ["a", "call_f_1", "call_f_2"]);
    }
}
