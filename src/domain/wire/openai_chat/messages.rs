//! Writes the messages of a request in this format.

use super::super::conversation::{Conversation, SentCall, SentMessage, SentPart};
use super::super::dialect::{Dialect, ReasoningReturn, StructuredOutput};
use super::super::offer::RequestOffer;
use crate::chat::ModelRequest;
use serde_json::{Map, Value, json};

/// Text in place of reasoning that was not recorded. While they reason, DeepSeek and Kimi refuse a model's message
/// without it, and for Kimi an empty text is none.
const NO_REASONING: &str = " ";
/// Signature of a call that Gemini didn't sign, as Google documents it.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Writes the system prompt and the conversation.
pub(super) fn messages(
    request: &ModelRequest,
    dialect: &Dialect,
    conversation: &Conversation<'_>,
    offer: &RequestOffer<'_>,
) -> Vec<Value> {
    let mut found = Vec::with_capacity(conversation.messages.len() + 1);
    let system = system_prompt(request, dialect, offer);
    if !system.trim().is_empty() {
        found.push(json!({"role": dialect.system_role, "content": system}));
    }
    for message in &conversation.messages {
        match message {
            SentMessage::User(parts) => found.push(json!({"role": "user", "content": user_content(parts)})),
            SentMessage::Assistant { text, calls, reasoning } => {
                found.push(assistant_message(dialect, text.as_deref(), calls, *reasoning));
            }
            SentMessage::Results(results) => found.extend(
                results.iter().map(|result| json!({"role": "tool", "tool_call_id": result.id, "content": result.text})),
            ),
        }
    }
    found
}

/// Writes a content: one text, because many servers take no list; a list if there are pictures or files.
fn user_content(parts: &[SentPart<'_>]) -> Value {
    let texts: Option<Vec<&str>> = parts.iter().map(SentPart::text).collect();
    if let Some(texts) = texts {
        return texts.join("\n\n").into();
    }
    let part = |part: &SentPart<'_>| match part {
        SentPart::Text(text) => json!({"type": "text", "text": text}),
        SentPart::Media(media) if media.media.is_image() => {
            json!({"type": "image_url", "image_url": {"url": media.data_url()}})
        }
        SentPart::Media(media) => {
            json!({"type": "file", "file": {"filename": media.name, "file_data": media.data_url()}})
        }
    };
    parts.iter().map(part).collect()
}

/// Returns the system prompt. Providers that take only "some JSON" require the word in the prompt, so the schema is
/// added to it.
fn system_prompt(request: &ModelRequest, dialect: &Dialect, offer: &RequestOffer<'_>) -> String {
    match (&request.output, dialect.structured) {
        (Some(output), StructuredOutput::JsonObject) if offer.format.is_some() => {
            let order = format!("Answer with one JSON object of this JSON Schema: {}", output.schema);
            if request.system.trim().is_empty() { order } else { format!("{}\n\n{order}", request.system) }
        }
        (Some(_) | None, _) => request.system.clone(),
    }
}

fn assistant_message(
    dialect: &Dialect,
    text: Option<&str>,
    calls: &[SentCall<'_>],
    reasoning: Option<&[Value]>,
) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), json!("assistant"));
    // `null`, because vLLM, LiteLLM and others refuse an absent field, and Bedrock an empty text.
    message.insert("content".into(), json!(text));
    match dialect.reasoning_return {
        ReasoningReturn::Content => {
            let text = recorded_text(reasoning.unwrap_or_default());
            message.insert("reasoning_content".into(), json!(if text.is_empty() { NO_REASONING } else { &text }));
        }
        ReasoningReturn::Details => {
            let is_detail = |item: &&Value| item.get("type").is_some_and(Value::is_string);
            let details: Vec<&Value> = reasoning.unwrap_or_default().iter().filter(is_detail).collect();
            if !details.is_empty() {
                message.insert("reasoning_details".into(), json!(details));
            }
        }
        ReasoningReturn::ExtraContent
        | ReasoningReturn::Never
        | ReasoningReturn::Blocks
        | ReasoningReturn::Items
        | ReasoningReturn::Signatures => {}
    }
    if !calls.is_empty() {
        let signed = dialect.reasoning_return == ReasoningReturn::ExtraContent;
        let sent = calls.iter().enumerate().map(|(at, call)| {
            let mut sent = json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json!(call.arguments).to_string()},
            });
            if let Some(signature) = signature(reasoning.unwrap_or_default(), at).filter(|_| signed) {
                sent["extra_content"] = json!({"google": {"thought_signature": signature}});
            }
            sent
        });
        message.insert("tool_calls".into(), sent.collect());
    }
    message.into()
}

/// Returns the reasoning that was recorded as text.
fn recorded_text(items: &[Value]) -> String {
    items.iter().filter_map(|item| item.get("text")?.as_str()).collect()
}

/// Returns the signature of a call. Gemini signs only the first call of a message and checks only that one.
fn signature(items: &[Value], at: usize) -> Option<&str> {
    let is_of = |item: &&Value| item.get("call").and_then(Value::as_u64) == u64::try_from(at).ok();
    let recorded = items.iter().find(is_of).and_then(|item| item.get("thought_signature")?.as_str());
    recorded.or((at == 0).then_some(NO_SIGNATURE))
}
