//! Encodes a request in this format. What stays the same from turn to turn stands before the input.

use super::super::conversation::{Conversation, SentMessage, SentPart};
use super::super::dialect::{Dialect, ReasoningRequest, ReasoningReturn, StructuredOutput};
use super::super::names::{SentTool, ToolNames};
use super::super::offer::{RequestOffer, setting_error};
use super::super::openai_chat::{OUTPUT_NAME, insert_limit_and_sampling};
use super::super::{EncodeError, HttpRequest};
use super::echo;
use crate::chat::ModelRequest;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Writes the request.
pub(crate) fn encode(
    request: &ModelRequest,
    dialect: &Dialect,
    conversation: &Conversation<'_>,
    names: &ToolNames,
    cache_key: &str,
) -> Result<HttpRequest, EncodeError> {
    let offer = RequestOffer::new(request, dialect, names);
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model.name));
    body.insert("stream".into(), json!(true));
    body.insert("store".into(), json!(false));
    if dialect.reasoning_return == ReasoningReturn::Items && may_reason(request) {
        body.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if dialect.prompt_cache_key {
        body.insert("prompt_cache_key".into(), json!(cache_key));
    }
    insert_settings(&mut body, request, dialect)?;
    if !request.system.trim().is_empty() {
        body.insert("instructions".into(), json!(request.system));
    }
    if !offer.tools.is_empty() {
        body.insert("tools".into(), offer.tools.iter().map(tool).collect());
    }
    let choose = |name: &str| json!({"type": "function", "name": name});
    if let Some(choice) = offer.tool_choice(request, dialect, choose)? {
        body.insert("tool_choice".into(), choice);
    }
    if let Some(parallel) = offer.parallel_tool_calls(request, dialect)? {
        body.insert("parallel_tool_calls".into(), json!(parallel));
    }
    if let Some(format) = offer.format.as_ref().and_then(|schema| text_format(schema, dialect)) {
        body.insert("text".into(), json!({"format": format}));
    }
    body.insert("input".into(), input(conversation).into());
    Ok(HttpRequest { path: "responses".into(), headers: Vec::new(), body: body.into() })
}

fn insert_settings(
    body: &mut Map<String, Value>,
    request: &ModelRequest,
    dialect: &Dialect,
) -> Result<(), EncodeError> {
    let model = &request.model;
    insert_limit_and_sampling(body, model, dialect);
    if !model.stop.is_empty() {
        return Err(setting_error(
            dialect,
            "model.stop",
            "its format has no such texts; use `openai` or leave the setting out",
        ));
    }
    if model.seed.is_some() {
        return Err(setting_error(
            dialect,
            "model.seed",
            "its format has no seed; use `openai` or leave the setting out",
        ));
    }
    match (model.reasoning, dialect.reasoning) {
        (None, _) => {}
        (Some(effort), ReasoningRequest::Effort | ReasoningRequest::Object) => {
            body.insert("reasoning".into(), json!({"effort": effort.word()}));
        }
        (
            Some(_),
            ReasoningRequest::Unsupported
            | ReasoningRequest::Budget
            | ReasoningRequest::Switch
            | ReasoningRequest::EnableThinking
            | ReasoningRequest::ThinkingConfig,
        ) => {
            let reason = "the model decides by itself how much it reasons; leave the setting out";
            return Err(setting_error(dialect, "model.reasoning", reason));
        }
    }
    Ok(())
}

/// Whether the request may ask for encrypted reasoning. Models without reasoning refuse it ("Encrypted content is not
/// supported with this model"), and only their names show which models these are.
fn may_reason(request: &ModelRequest) -> bool {
    if let Some(effort) = request.model.reasoning {
        return effort.tokens() > 0;
    }
    let name = request.model.name.rsplit('/').next().unwrap_or_default();
    let generation = |prefix: &str| {
        let digits: String = name.strip_prefix(prefix)?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let is_gpt = generation("gpt-").is_some_and(|number| number >= 5) && !name.contains("-chat");
    is_gpt || generation("o").is_some() || name.starts_with("codex-")
}

fn tool(tool: &SentTool) -> Value {
    // Strict mode takes only schemas without optional properties.
    let mut sent = Map::new();
    sent.insert("type".into(), json!("function"));
    sent.insert("name".into(), json!(tool.name));
    if !tool.description.trim().is_empty() {
        sent.insert("description".into(), json!(tool.description));
    }
    sent.insert("parameters".into(), tool.schema.clone());
    sent.insert("strict".into(), json!(false));
    sent.into()
}

fn text_format(schema: &Value, dialect: &Dialect) -> Option<Value> {
    match dialect.structured {
        StructuredOutput::Unsupported => None,
        StructuredOutput::Schema => {
            Some(json!({"type": "json_schema", "name": OUTPUT_NAME, "schema": schema, "strict": false}))
        }
        StructuredOutput::JsonObject => Some(json!({"type": "json_object"})),
    }
}

/// Writes a content: one text, or a list if there are pictures or files.
fn user(parts: &[SentPart<'_>]) -> Value {
    let texts: Option<Vec<&str>> = parts.iter().map(SentPart::text).collect();
    if let Some(texts) = texts {
        return texts.join("\n\n").into();
    }
    let part = |part: &SentPart<'_>| match part {
        SentPart::Text(text) => json!({"type": "input_text", "text": text}),
        SentPart::Media(media) if media.media.is_image() => {
            json!({"type": "input_image", "detail": "auto", "image_url": media.data_url()})
        }
        SentPart::Media(media) => {
            json!({"type": "input_file", "filename": media.name, "file_data": media.data_url()})
        }
    };
    parts.iter().map(part).collect()
}

fn input(conversation: &Conversation<'_>) -> Vec<Value> {
    let (mut found, mut ids) = (Vec::with_capacity(conversation.messages.len()), BTreeSet::new());
    for message in &conversation.messages {
        match message {
            SentMessage::User(parts) => {
                found.push(json!({"type": "message", "role": "user", "content": user(parts)}));
            }
            SentMessage::Assistant { text, calls, reasoning } => {
                found.extend(echo::items(text.as_deref(), calls, *reasoning, &mut ids));
            }
            SentMessage::Results(results) => found.extend(
                results
                    .iter()
                    .map(|result| json!({"type": "function_call_output", "call_id": result.id, "output": result.text})),
            ),
        }
    }
    found
}
