//! Decodes a reply in this format, streamed or in one body: both have the same shape.

use super::super::reply::{CallPiece, ReplyBuilder, StopReason};
use super::super::{DecodeError, ProviderReport};
use super::SIGNATURE;
use crate::chat::TokenUsage;
use serde_json::{Value, json};

/// Adds one frame to the reply. No frame says that it is the last one.
pub(crate) fn take_frame(reply: &mut ReplyBuilder, value: &Value) -> Result<(), DecodeError> {
    if value.get("error").is_some_and(|error| !error.is_null()) {
        return Err(DecodeError::Reported(ProviderReport::from_body(value)));
    }
    check_prompt(&value["promptFeedback"])?;
    let candidate = &value["candidates"][0];
    for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
        take_part(reply, part)?;
    }
    if let Some(reason) = candidate["finishReason"].as_str() {
        reply.set_stop(parse_stop(reason));
    }
    take_usage(reply, &value["usageMetadata"]);
    Ok(())
}

/// Checks that the provider's filter did not block the prompt; a blocked prompt has no reply.
fn check_prompt(feedback: &Value) -> Result<(), DecodeError> {
    let reason = feedback["blockReason"].as_str().filter(|reason| !reason.ends_with("UNSPECIFIED"));
    let Some(reason) = reason else { return Ok(()) };
    let message = feedback["blockReasonMessage"].as_str().filter(|message| !message.trim().is_empty());
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    Err(DecodeError::Refused(format!("its filter blocked the prompt (`{reason}`){message}")))
}

fn take_part(reply: &mut ReplyBuilder, part: &Value) -> Result<(), DecodeError> {
    let text = part["text"].as_str();
    if part["thought"] == true {
        return text.map_or(Ok(()), |text| reply.push_thought(text));
    }
    let signature = part[SIGNATURE].as_str().filter(|signature| !signature.is_empty());
    if let Some(call) = part.get("functionCall").filter(|call| call.is_object()) {
        let number = reply.call_count();
        reply.push_call(CallPiece {
            // Each part is a call of its own, even if two are equal.
            index: u64::try_from(number).ok(),
            id: call["id"].as_str(),
            name: call["name"].as_str(),
            arguments: call.get("args"),
        })?;
        return signature.map_or(Ok(()), |it| reply.push_reasoning(json!({"call": number, SIGNATURE: it})));
    }
    if let Some(text) = text {
        reply.push_text(text)?;
        return signature.map_or(Ok(()), |it| reply.push_reasoning(json!({"part": "text", SIGNATURE: it})));
    }
    Ok(())
}

fn parse_stop(reason: &str) -> StopReason {
    match reason {
        "STOP" => StopReason::Complete,
        "MAX_TOKENS" => StopReason::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "ESCALATION"
        | "MODEL_ARMOR" => StopReason::Filtered(reason.to_owned()),
        "PUP_LIMITED_DISABLED" => {
            StopReason::Refused("the account is limited or disabled (`PUP_LIMITED_DISABLED`)".into())
        }
        // `OTHER`, `LANGUAGE`, `MALFORMED_FUNCTION_CALL`, `UNEXPECTED_TOOL_CALL`, …, and reasons that are not known
        // yet.
        other => StopReason::Unfinished(other.to_owned()),
    }
}

/// Sets the usage. The numbers are totals so far.
fn take_usage(reply: &mut ReplyBuilder, usage: &Value) {
    let number = |key: &str| usage[key].as_u64().unwrap_or(0);
    let thoughts = number("thoughtsTokenCount");
    reply.set_usage(TokenUsage {
        input: number("promptTokenCount").saturating_add(number("toolUsePromptTokenCount")),
        output: number("candidatesTokenCount").saturating_add(thoughts),
        cache_read: number("cachedContentTokenCount"),
        cache_write: 0,
        reasoning: thoughts,
    });
}

#[cfg(test)]
mod tests;
