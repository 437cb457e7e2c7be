//! Encodes a request in this format. What stays the same from turn to turn stands before the messages.

use super::super::conversation::Conversation;
use super::super::dialect::{Dialect, ReasoningRequest, SchemaSubset, StructuredOutput};
use super::super::names::{SentTool, ToolNames};
use super::super::offer::{RequestOffer, setting_error};
use super::super::{EncodeError, HttpRequest};
use super::messages::messages;
use crate::chat::{Effort, ModelRequest, ModelSettings};
use serde_json::{Map, Value, json};

/// Name of the schema of a typed text; the format requires one.
pub(in super::super) const OUTPUT_NAME: &str = "output";

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
    if dialect.stream_usage {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if dialect.prompt_cache_key {
        body.insert("prompt_cache_key".into(), json!(cache_key));
    }
    insert_sampling(&mut body, request, dialect)?;
    insert_reasoning(&mut body, request, dialect)?;
    if !offer.tools.is_empty() {
        body.insert("tools".into(), offer.tools.iter().map(|one| tool(one, dialect)).collect());
    }
    let choose = |name: &str| json!({"type": "function", "function": {"name": name}});
    if let Some(choice) = offer.tool_choice(request, dialect, choose)? {
        body.insert("tool_choice".into(), choice);
    }
    if let Some(parallel) = offer.parallel_tool_calls(request, dialect)? {
        body.insert("parallel_tool_calls".into(), json!(parallel));
    }
    if let Some(format) = offer.format.as_ref().and_then(|schema| response_format(schema, dialect)) {
        body.insert("response_format".into(), format);
    }
    body.insert("messages".into(), messages(request, dialect, conversation, &offer).into());
    Ok(HttpRequest { path: "chat/completions".into(), headers: Vec::new(), body: body.into() })
}

/// Writes the token limit and the sampling settings that both of OpenAI's formats have.
pub(in super::super) fn insert_limit_and_sampling(
    body: &mut Map<String, Value>,
    model: &ModelSettings,
    dialect: &Dialect,
) {
    if let Some(tokens) = model.max_tokens {
        body.insert(dialect.token_limit.into(), json!(tokens));
    }
    if let Some(temperature) = model.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if let Some(top_p) = model.top_p {
        body.insert("top_p".into(), json!(top_p));
    }
}

/// Writes the sampling settings and the token limit.
fn insert_sampling(
    body: &mut Map<String, Value>,
    request: &ModelRequest,
    dialect: &Dialect,
) -> Result<(), EncodeError> {
    let model = &request.model;
    insert_limit_and_sampling(body, model, dialect);
    if !model.stop.is_empty() {
        body.insert("stop".into(), json!(model.stop));
    }
    match model.seed {
        Some(seed) if dialect.seed => drop(body.insert("seed".into(), json!(seed))),
        Some(_) => return Err(setting_error(dialect, "model.seed", "it samples without one; leave the setting out")),
        None => {}
    }
    Ok(())
}

/// Writes the setting for the amount of reasoning.
fn insert_reasoning(
    body: &mut Map<String, Value>,
    request: &ModelRequest,
    dialect: &Dialect,
) -> Result<(), EncodeError> {
    let Some(effort) = request.model.reasoning else { return Ok(()) };
    let is_off = effort.tokens() == 0;
    let switch = if is_off { "disabled" } else { "enabled" };
    match dialect.reasoning {
        ReasoningRequest::Effort => drop(body.insert("reasoning_effort".into(), json!(effort.word()))),
        ReasoningRequest::Object => {
            let wanted = match effort {
                Effort::Tokens(tokens) if tokens > 0 => json!({"max_tokens": tokens}),
                Effort::Tokens(_) | Effort::None | Effort::Low | Effort::Medium | Effort::High => {
                    json!({"effort": effort.word()})
                }
            };
            body.insert("reasoning".into(), wanted);
        }
        ReasoningRequest::Budget if !is_off => {
            body.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": effort.tokens()}));
        }
        ReasoningRequest::Budget | ReasoningRequest::Switch => {
            body.insert("thinking".into(), json!({"type": switch}));
        }
        ReasoningRequest::EnableThinking => {
            body.insert("enable_thinking".into(), json!(!is_off));
            if !is_off {
                body.insert("thinking_budget".into(), json!(effort.tokens()));
            }
        }
        ReasoningRequest::Unsupported | ReasoningRequest::ThinkingConfig => {
            let reason = "the model decides by itself how much it reasons; leave the setting out";
            return Err(setting_error(dialect, "model.reasoning", reason));
        }
    }
    Ok(())
}

fn tool(tool: &SentTool, dialect: &Dialect) -> Value {
    let mut function = Map::new();
    function.insert("name".into(), json!(tool.name));
    // Some providers refuse both `null` and an empty text.
    if !tool.description.trim().is_empty() {
        function.insert("description".into(), json!(tool.description));
    }
    // Gemini refuses a map without properties in this format too.
    let is_empty = tool.schema["properties"].as_object().is_none_or(serde_json::Map::is_empty);
    if !(is_empty && dialect.schema == SchemaSubset::Gemini) {
        function.insert("parameters".into(), tool.schema.clone());
    }
    json!({"type": "function", "function": function})
}

fn response_format(schema: &Value, dialect: &Dialect) -> Option<Value> {
    match dialect.structured {
        StructuredOutput::Unsupported => None,
        // Strict mode takes only schemas without optional properties.
        StructuredOutput::Schema => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": OUTPUT_NAME, "schema": schema, "strict": false},
        })),
        StructuredOutput::JsonObject => Some(json!({"type": "json_object"})),
    }
}
