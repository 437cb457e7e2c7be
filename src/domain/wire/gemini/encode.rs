//! Encodes a request in this format.

use super::super::conversation::{Conversation, SentCall, SentMessage, SentPart, SentResult};
use super::super::dialect::{Dialect, StructuredOutput};
use super::super::names::{SentTool, ToolNames};
use super::super::{EncodeError, HttpRequest, schema};
use super::{SIGNATURE, thinking};
use crate::chat::{ModelRequest, ModelSettings, ToolChoice};
use serde_json::{Map, Value, json};

/// Signature of a call by another model, or of a call that came without one:
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Most texts that may end a reply.
const STOPS_MOST: usize = 5;

/// Writes the request. What stays the same from turn to turn stands first.
pub(crate) fn encode(
    request: &ModelRequest,
    dialect: &Dialect,
    conversation: &Conversation<'_>,
    names: &ToolNames,
) -> Result<HttpRequest, EncodeError> {
    let settings = &request.model;
    let format = output_format(request, dialect);
    let leaves_tools = format.is_some()
        && !dialect.structured_with_tools
        && request.output.as_ref().is_some_and(|output| output.tools_optional);
    let offers_tools = !names.tools.is_empty() && !leaves_tools;
    let format = format.filter(|_| !offers_tools || dialect.structured_with_tools);

    let mut body = Map::new();
    let mut config = None;
    if offers_tools {
        let declarations: Vec<Value> = names.tools.iter().map(declaration).collect();
        body.insert("tools".into(), json!([{"functionDeclarations": declarations}]));
        config = tool_config(settings, dialect, names)?;
    }
    if !request.system.trim().is_empty() {
        body.insert("systemInstruction".into(), json!({"parts": [{"text": request.system}]}));
    }
    let wants_signatures = thinking::wants_signatures(&settings.name);
    let contents = conversation.messages.iter().map(|message| content(message, wants_signatures));
    body.insert("contents".into(), contents.collect());
    body.extend(config.map(|mode| ("toolConfig".to_owned(), json!({"functionCallingConfig": mode}))));
    let mut generation = generation_config(settings, dialect)?;
    generation.extend(format.into_iter().flatten());
    if !generation.is_empty() {
        body.insert("generationConfig".into(), Value::Object(generation));
    }
    let is_whole = ["models/", "tunedModels/"].iter().any(|prefix| settings.name.starts_with(prefix));
    let place = if is_whole { "" } else { "models/" };
    let path = format!("{place}{}:streamGenerateContent?alt=sse", settings.name);
    Ok(HttpRequest { path, headers: Vec::new(), body: Value::Object(body) })
}

/// Returns the error for a setting that this format or this model does not take.
pub(super) fn setting_error(dialect: &Dialect, setting: &'static str, reason: &str) -> EncodeError {
    EncodeError::Setting { provider: dialect.provider.to_owned(), setting, reason: reason.to_owned() }
}

/// Writes the declaration of a tool. A tool without parameters has no `parameters`, because the API refuses a map
/// without properties.
fn declaration(tool: &SentTool) -> Value {
    let mut sent = json!({"name": tool.name, "description": tool.description});
    if tool.schema.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty()) {
        sent["parameters"] = tool.schema.clone();
    }
    sent
}

fn content(message: &SentMessage<'_>, wants_signatures: bool) -> Value {
    let (role, parts): (_, Vec<Value>) = match message {
        SentMessage::User(parts) => ("user", parts.iter().map(user_part).collect()),
        SentMessage::Results(results) => ("user", results.iter().map(response).collect()),
        SentMessage::Assistant { text, calls, reasoning } => {
            let recorded = reasoning.unwrap_or_default();
            let mut parts = Vec::new();
            if let Some(text) = text {
                parts.push(with_signature(json!({"text": text}), signature(recorded, |item| item["part"] == "text")));
            }
            parts.extend(call_parts(calls, recorded, wants_signatures));
            ("model", parts)
        }
    };
    json!({"role": role, "parts": parts})
}

fn user_part(part: &SentPart<'_>) -> Value {
    match part {
        SentPart::Text(text) => json!({"text": text}),
        SentPart::Media(media) => {
            json!({"inlineData": {"mimeType": media.media.as_str(), "data": media.base64()}})
        }
    }
}

fn response(result: &SentResult<'_>) -> Value {
    json!({"functionResponse": {"id": result.id, "name": result.name, "response": {"result": result.text}}})
}

/// Writes calls as parts. Only the first of parallel calls is signed.
fn call_parts(calls: &[SentCall<'_>], recorded: &[Value], wants_signatures: bool) -> Vec<Value> {
    let own: Vec<Option<&str>> = (0..calls.len())
        .map(|at| signature(recorded, |item| item["call"].as_u64() == u64::try_from(at).ok()))
        .collect();
    let dummy = (wants_signatures && own.iter().all(Option::is_none)).then_some(NO_SIGNATURE);
    let part = |(at, call): (usize, &SentCall<'_>)| {
        let part = json!({"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}});
        with_signature(part, own[at].or(dummy.filter(|_| at == 0)))
    };
    calls.iter().enumerate().map(part).collect()
}

/// Returns the last recorded signature of a part.
fn signature(recorded: &[Value], is_of_part: impl Fn(&Value) -> bool) -> Option<&str> {
    let found = recorded.iter().rev().find(|item| is_of_part(item))?;
    found[SIGNATURE].as_str().filter(|signature| is_base64(signature))
}

/// Whether a text is Base64 of at least one byte. With any other text the API refuses the whole request.
fn is_base64(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_');
    let digits = text.trim_end_matches('=');
    !digits.is_empty() && text.len().is_multiple_of(4) && text.len() - digits.len() <= 2 && digits.chars().all(is_digit)
}

fn with_signature(mut part: Value, signature: Option<&str>) -> Value {
    if let Some(signature) = signature {
        part[SIGNATURE] = signature.into();
    }
    part
}

fn tool_config(settings: &ModelSettings, dialect: &Dialect, names: &ToolNames) -> Result<Option<Value>, EncodeError> {
    if settings.parallel_tool_calls == Some(false) && !dialect.parallel_tool_calls {
        return Err(setting_error(dialect, "model.parallelToolCalls", "a model may always call several; leave it out"));
    }
    Ok(match &settings.tool_choice {
        None => None,
        Some(ToolChoice::Auto) => Some(json!({"mode": "AUTO"})),
        Some(ToolChoice::Required) => Some(json!({"mode": "ANY"})),
        Some(ToolChoice::None) => Some(json!({"mode": "NONE"})),
        Some(ToolChoice::Tool(ours)) => {
            let Some(tool) = names.tools.iter().find(|tool| tool.own_name == *ours) else {
                return Err(setting_error(dialect, "model.toolChoice", &format!("the agent has no tool `{ours}`")));
            };
            Some(json!({"mode": "ANY", "allowedFunctionNames": [tool.name]}))
        }
    })
}

/// Returns the fields for a text of a type, if the provider takes one and its schema can be projected.
fn output_format(request: &ModelRequest, dialect: &Dialect) -> Option<Map<String, Value>> {
    let output = request.output.as_ref()?;
    let mut format = Map::from_iter([("responseMimeType".to_owned(), "application/json".into())]);
    match dialect.structured {
        StructuredOutput::Unsupported => return None,
        StructuredOutput::JsonObject => {}
        StructuredOutput::Schema => {
            let projected = schema::project(&output.schema, dialect.schema).ok()?;
            if !projected.renames.is_empty() {
                return None;
            }
            format.insert("responseSchema".into(), projected.schema);
        }
    }
    Some(format)
}

fn generation_config(settings: &ModelSettings, dialect: &Dialect) -> Result<Map<String, Value>, EncodeError> {
    let mut config = Map::new();
    if let Some(seed) = settings.seed {
        if i32::try_from(seed).is_err() || !dialect.seed {
            return Err(setting_error(dialect, "model.seed", "it takes a whole number of 32 bits"));
        }
        config.insert("seed".into(), seed.into());
    }
    if settings.stop.len() > STOPS_MOST {
        return Err(setting_error(dialect, "model.stop", "it takes at most 5 texts"));
    }
    if !settings.stop.is_empty() {
        config.insert("stopSequences".into(), settings.stop.clone().into());
    }
    config.extend(settings.temperature.map(|value| ("temperature".to_owned(), value.into())));
    config.extend(settings.top_p.map(|value| ("topP".to_owned(), value.into())));
    config.extend(thinking::config(settings, dialect)?.map(|value| ("thinkingConfig".to_owned(), value)));
    config.extend(settings.max_tokens.map(|tokens| (dialect.token_limit.to_owned(), tokens.max(1).into())));
    Ok(config)
}

#[cfg(test)]
mod tests;
