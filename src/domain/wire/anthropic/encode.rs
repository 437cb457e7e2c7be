//! Encodes a request in this format.

use super::super::conversation::Conversation;
use super::super::dialect::{Dialect, StructuredOutput};
use super::super::names::ToolNames;
use super::super::{EncodeError, HttpRequest, schema};
use super::blocks::{BlockMessages, mark_cache_end};
use super::claude::ModelTraits;
use super::output;
use super::thinking::{Thinking, ThinkingInputs};
use crate::chat::{ModelRequest, ModelSettings, ToolChoice};
use serde_json::{Map, Value, json};

/// The version of the API. The next version, 2026-10-21, takes no `temperature` and no `top_p`; other servers of this
/// format know only this one.
const VERSION: &str = "2023-06-01";
/// Least `top_p` of a model that thinks.
const THINKING_TOP_P_LEAST: f64 = 0.95;

/// Writes the request. What stays the same from turn to turn stands first.
pub(crate) fn encode(
    request: &ModelRequest,
    dialect: &Dialect,
    conversation: &Conversation<'_>,
    names: &ToolNames,
) -> Result<HttpRequest, EncodeError> {
    let settings = &request.model;
    let traits = ModelTraits::for_model(&settings.name);
    let format = output_format(request, dialect, traits);
    let offers_tools = !names.tools.is_empty() && !leaves_tools(request, dialect, format.is_some());
    let format = format.filter(|_| !offers_tools || dialect.structured_with_tools);
    let choice = if offers_tools { tool_choice(settings, dialect, names)? } else { None };
    let max_tokens = settings.max_tokens.unwrap_or(traits.reply_tokens).max(1);
    let is_forced = choice.as_ref().is_some_and(|choice| choice["type"] == "any" || choice["type"] == "tool");
    let circumstances = ThinkingInputs { conversation, max_tokens, is_forced };
    let thinking = Thinking::for_request(settings.reasoning, dialect, traits, circumstances)?;

    let mut body = Map::new();
    body.insert("model".into(), settings.name.clone().into());
    body.insert("stream".into(), true.into());
    let mut tools = if offers_tools { tools(names) } else { Vec::new() };
    let mut system = Vec::new();
    if !request.system.trim().is_empty() {
        system.push(json!({"type": "text", "text": request.system}));
    }
    // A mark behind the system prompt covers the tools too.
    if let Some(last) = system.last_mut().or(tools.last_mut()).filter(|_| dialect.caches) {
        mark_cache_end(last);
    }
    insert_filled(&mut body, "tools", tools);
    insert_filled(&mut body, "system", system);
    let mut messages = BlockMessages::from_conversation(conversation, thinking.returns, traits.signed_thinking);
    if dialect.caches {
        messages.mark_cache_ends(conversation.stable);
    }
    body.insert("messages".into(), messages.into_value());
    body.insert(dialect.token_limit.into(), max_tokens.into());
    body.extend(choice.map(|choice| ("tool_choice".to_owned(), choice)));
    write_sampling(&mut body, settings, dialect, traits)?;
    let mut output = Map::new();
    output.extend(thinking.effort.map(|effort| ("effort".to_owned(), effort.into())));
    output.extend(format.map(|schema| ("format".to_owned(), json!({"type": "json_schema", "schema": schema}))));
    if !output.is_empty() {
        body.insert("output_config".into(), Value::Object(output));
    }
    body.extend(thinking.config.map(|config| ("thinking".to_owned(), config)));
    let headers = vec![("anthropic-version", VERSION.to_owned())];
    Ok(HttpRequest { path: "messages".into(), headers, body: Value::Object(body) })
}

/// Returns the error for a setting that this format or this model does not take.
pub(super) fn setting_error(dialect: &Dialect, setting: &'static str, reason: &str) -> EncodeError {
    EncodeError::Setting { provider: dialect.provider.to_owned(), setting, reason: reason.to_owned() }
}

fn insert_filled(body: &mut Map<String, Value>, key: &str, items: Vec<Value>) {
    if !items.is_empty() {
        body.insert(key.to_owned(), items.into());
    }
}

fn tools(names: &ToolNames) -> Vec<Value> {
    let tool = |tool: &super::super::names::SentTool| {
        let mut sent = json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema});
        if let Some(map) = sent.as_object_mut().filter(|_| tool.description.trim().is_empty()) {
            map.shift_remove("description");
        }
        sent
    };
    names.tools.iter().map(tool).collect()
}

/// Returns the schema of the text that is asked for, if the provider and the model take one and it can be projected.
fn output_format(request: &ModelRequest, dialect: &Dialect, traits: ModelTraits) -> Option<Value> {
    let output = request.output.as_ref()?;
    let takes = match dialect.structured {
        StructuredOutput::Schema => traits.structured,
        StructuredOutput::Unsupported | StructuredOutput::JsonObject => false,
    };
    let projected = schema::project(&output.schema, dialect.schema).ok().filter(|_| takes)?;
    if projected.renames.is_empty() { output::close_schema(&projected.schema) } else { None }
}

/// Whether the request leaves out its tools because it asks for a typed text.
fn leaves_tools(request: &ModelRequest, dialect: &Dialect, is_typed: bool) -> bool {
    is_typed && !dialect.structured_with_tools && request.output.as_ref().is_some_and(|output| output.tools_optional)
}

fn tool_choice(settings: &ModelSettings, dialect: &Dialect, names: &ToolNames) -> Result<Option<Value>, EncodeError> {
    let is_single = settings.parallel_tool_calls == Some(false);
    if is_single && !dialect.parallel_tool_calls {
        return Err(setting_error(dialect, "model.parallelToolCalls", "it may always call several; leave it out"));
    }
    let mut choice = match &settings.tool_choice {
        None if is_single => json!({"type": "auto"}),
        None => return Ok(None),
        Some(ToolChoice::Auto) => json!({"type": "auto"}),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::None) => return Ok(Some(json!({"type": "none"}))),
        Some(ToolChoice::Tool(ours)) => {
            let sent = names.tools.iter().find(|tool| tool.own_name == *ours).map(|tool| &tool.name);
            let Some(name) = sent else {
                return Err(setting_error(dialect, "model.toolChoice", &format!("the agent has no tool `{ours}`")));
            };
            json!({"type": "tool", "name": name})
        }
    };
    if is_single {
        choice["disable_parallel_tool_use"] = true.into();
    }
    Ok(Some(choice))
}

fn write_sampling(
    body: &mut Map<String, Value>,
    settings: &ModelSettings,
    dialect: &Dialect,
    traits: ModelTraits,
) -> Result<(), EncodeError> {
    let refused = |setting, reason| Err(setting_error(dialect, setting, reason));
    if settings.seed.is_some() && !dialect.seed {
        return refused("model.seed", "this provider has none; leave it out");
    }
    // The default is left out, because some models refuse even that.
    let is_default = |value: f64| (value - 1.0).abs() < f64::EPSILON;
    let temperature = settings.temperature.filter(|value| !is_default(*value) || !traits.narrow_sampling);
    let top_p = settings.top_p.filter(|value| !is_default(*value) || !traits.narrow_sampling);
    let asks_thinking = settings.reasoning.is_some_and(|effort| effort.word() != "none");
    if temperature.is_some() && !traits.sampling {
        return refused("model.temperature", "this model has none; leave it out");
    }
    if top_p.is_some() && !traits.sampling {
        return refused("model.topP", "this model has none; leave it out");
    }
    if traits.narrow_sampling {
        if temperature.is_some() && asks_thinking {
            return refused("model.temperature", "a model that thinks has none; leave it out");
        }
        if temperature.is_some_and(|value| value > 1.0) {
            return refused("model.temperature", "it takes at most 1");
        }
        if top_p.is_some_and(|value| value < THINKING_TOP_P_LEAST) && asks_thinking {
            return refused("model.topP", "a model that thinks takes at least 0.95");
        }
        if temperature.is_some() && top_p.is_some() {
            return refused("model.topP", "it is refused beside `temperature`; use one of them");
        }
    }
    if settings.stop.iter().any(|stop| stop.trim().is_empty()) {
        return refused("model.stop", "a text of blanks is refused");
    }
    body.extend(temperature.map(|value| ("temperature".to_owned(), value.into())));
    body.extend(top_p.map(|value| ("top_p".to_owned(), value.into())));
    body.extend(settings.seed.map(|seed| ("seed".to_owned(), seed.into())));
    insert_filled(body, "stop_sequences", settings.stop.iter().map(|stop| stop.clone().into()).collect());
    Ok(())
}

#[cfg(test)]
mod tests;
