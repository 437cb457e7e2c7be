//! Configurations as Covia and agntz spell them, turned into the spelling of agent files.
//!
//! | source | what it spells otherwise | where |
//! |---|---|---|
//! | Covia | `state`, `operation`, `model` as text, `llmOperation`, `url`, `apiKey`, `responseFormat`; default tools by its names; goal tools without a loop | here, `model` |
//! | Idealic | `_scopes`, `_instance`, `_delegate` and the like as properties of a tool's `input` | `idealic` |
//! | agntz | `kind`, `instruction`, `outputSchema`, `maxSteps`, `tokenBudget`, `timeoutMs`, tools by `kind`, pipelines, `examples` | `agntz`, `agntz_http`, `agntz_mcp`, `agntz_pipeline` |
//!
//! What has no meaning here is refused by its name and with the reason, never ignored.

mod agntz;
mod agntz_http;
mod agntz_mcp;
mod agntz_pipeline;
mod config_map;
mod idealic;
mod model;

use super::entry::{ContextEntriesError, ContextEntry};
use super::merge;
use super::tool::GOAL_TOOLS;
use crate::decode::{self, DataError};
use crate::lattice::catalog::catalog_path;
use crate::lattice::value::type_name;
use crate::limits::CONTEXT_ENTRIES;
use crate::visible::quote_foreign;
use config_map::{ConfigMap, invalid};
use serde_json::{Map, Value, json};

/// Returns the same configuration in the spelling of agent files.
pub(super) fn to_agent_file(map: &ConfigMap) -> Result<ConfigMap, DataError> {
    let mut config = if agntz::is_manifest(map) { agntz::from_manifest(map)? } else { map.clone() };
    if let Some(state) = config.shift_remove("state") {
        config = with_state(config, &state)?;
    }
    if config.contains_key("operation") || config.contains_key("llmOperation") {
        config.entry("toolNames").or_insert_with(|| "covia".into());
        infer_loop(&mut config);
    }
    if let Some(operation) = config.shift_remove("operation") {
        set_loop(&mut config, &operation)?;
    }
    model::set_model(&mut config)?;
    idealic::take_reserved(&mut config)?;
    if let Some(format) = config.shift_remove("responseFormat") {
        set_output_schema(&mut config, &format)?;
    }
    if let Some(name) = config.shift_remove("name") {
        prepend_title(&mut config, &name)?;
    }
    Ok(config)
}

/// Merges `state` into a configuration. `state.config` wins over the keys beside it, key by key; the entries of
/// `state.context` come after those of `context`, without those that are there already.
fn with_state(config: ConfigMap, state: &Value) -> Result<ConfigMap, DataError> {
    let mut merged = Value::Object(config);
    merge::shallow(&mut merged, &state_config(state)?);
    let Value::Object(mut config) = merged else { return Ok(Map::new()) };
    let more = state_context(state)?;
    if let Value::Array(entries) = config.entry("context").or_insert_with(|| json!([])) {
        add_entries(entries, more)?;
    }
    if config["context"] == json!([]) {
        config.shift_remove("context");
    }
    Ok(config)
}

/// Adds context entries that are not there already, in any of their spellings. Each is compared with all others, so a
/// list that is too long for an agent is refused before.
fn add_entries(entries: &mut Vec<Value>, more: Vec<Value>) -> Result<(), DataError> {
    let longest = entries.len().max(more.len());
    if longest > CONTEXT_ENTRIES {
        return invalid(ContextEntriesError::TooMany { found: longest }.to_string());
    }
    let read = |entry: &Value| decode::into_type::<ContextEntry>(entry.clone()).ok();
    let mut known: Vec<Option<ContextEntry>> = entries.iter().map(read).collect();
    for entry in more {
        let found = read(&entry);
        let is_known = entries.contains(&entry) || (found.is_some() && known.contains(&found));
        if !is_known {
            entries.push(entry);
            known.push(found);
        }
    }
    Ok(())
}

/// Returns the entries of `state.context`; an error if that is no list.
pub fn state_context(state: &Value) -> Result<Vec<Value>, DataError> {
    match state.get("context") {
        None => Ok(Vec::new()),
        Some(Value::Array(entries)) => Ok(entries.clone()),
        Some(other) => invalid(format!("`state.context`: expected a list, got {}", type_name(other))),
    }
}

/// Returns the configuration in a `state`, which may also hold `context`.
pub fn state_config(state: &Value) -> Result<ConfigMap, DataError> {
    let Some(map) = state.as_object() else {
        return invalid(format!("`state`: expected a map, got {}", type_name(state)));
    };
    if let Some(other) = map.keys().find(|key| !["config", "context"].contains(&key.as_str())) {
        return invalid(format!(
            "`state.{}`: expected `state.config` and `state.context` alone, an agent's state is its own",
            quote_foreign(other)
        ));
    }
    match map.get("config") {
        None => Ok(Map::new()),
        Some(Value::Object(config)) => Ok(config.clone()),
        Some(other) => invalid(format!("`state.config`: expected a map, got {}", type_name(other))),
    }
}

/// Sets the loop to a goal tree for a configuration with tools of goals and without an `operation`.
fn infer_loop(config: &mut ConfigMap) {
    let tools = config.get("tools").and_then(Value::as_array);
    let has_goals = tools.into_iter().flatten().filter_map(Value::as_str).any(|name| GOAL_TOOLS.contains(&name));
    if has_goals && !config.contains_key("operation") {
        config.entry("loop").or_insert_with(|| "goalTree".into());
    }
}

/// Sets the loop that `operation` names.
fn set_loop(config: &mut ConfigMap, operation: &Value) -> Result<(), DataError> {
    let Some(name) = operation.as_str() else {
        return invalid(format!("`operation`: expected text, got {}", type_name(operation)));
    };
    match catalog_path(name).as_str() {
        "v/ops/llmagent/chat" => {}
        "v/ops/goaltree/chat" => {
            config.entry("loop").or_insert_with(|| "goalTree".into());
        }
        _ => return invalid(format!("`operation`: expected `llmagent:chat` or `goaltree:chat`, got `{name}`")),
    }
    Ok(())
}

/// Sets the schema of outputs from `responseFormat`: `"text"`, `"json"` or `{name, schema}`.
fn set_output_schema(config: &mut ConfigMap, format: &Value) -> Result<(), DataError> {
    let schema = match format {
        Value::String(text) if text == "text" => return Ok(()),
        Value::String(text) if text == "json" => json!({}),
        Value::Object(map) if map.contains_key("schema") => {
            if let Some(other) = map.keys().find(|key| !["name", "schema", "strict"].contains(&key.as_str())) {
                return invalid(format!(
                    "`responseFormat.{}`: unknown key, expected `name` and `schema`",
                    quote_foreign(other)
                ));
            }
            map["schema"].clone()
        }
        other => {
            return invalid(format!(
                "`responseFormat`: expected \"text\", \"json\" or `{{name, schema}}`, got {other}"
            ));
        }
    };
    if config.get("outputs").is_some_and(|outputs| outputs.get("complete").is_some()) {
        return invalid("`responseFormat`: `outputs.complete` says it already, leave one out");
    }
    let outputs = config.entry("outputs").or_insert_with(|| json!({}));
    let Value::Object(outputs) = outputs else {
        return invalid(format!("`outputs`: expected a map, got {}", type_name(outputs)));
    };
    outputs.insert("complete".into(), json!({"schema": schema}));
    Ok(())
}

/// Puts the title `name`, which is for people, before the description.
fn prepend_title(config: &mut ConfigMap, name: &Value) -> Result<(), DataError> {
    let Some(name) = name.as_str() else {
        return invalid(format!("`name`: expected text, got {}", type_name(name)));
    };
    let whole = match config.get("description").and_then(Value::as_str) {
        Some(text) => format!("{name}: {text}"),
        None => name.to_owned(),
    };
    config.insert("description".into(), whole.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn state_config_wins_and_the_operation_names_the_loop() {
        for (given, expected) in [
            (json!({"systemPrompt": "a"}), Ok(json!({"systemPrompt": "a"}))),
            (
                json!({"operation": "llmagent:chat", "systemPrompt": "a", "state": {"config": {"systemPrompt": "b"}}}),
                Ok(json!({"systemPrompt": "b", "toolNames": "covia"})),
            ),
            (json!({"operation": "v/ops/goaltree/chat"}), Ok(json!({"toolNames": "covia", "loop": "goalTree"}))),
            (json!({"operation": "goaltree:chat", "loop": "chat"}), Ok(json!({"loop": "chat", "toolNames": "covia"}))),
            (
                json!({"llmOperation": "langchain:openai", "toolNames": "own", "tools": ["more_tools", "subgoal"]}),
                Ok(json!({
                    "toolNames": "own", "tools": ["more_tools", "subgoal"], "loop": "goalTree",
                    "model": {"provider": "openai", "name": "gpt-5.4-mini"}
                })),
            ),
            (
                json!({"operation": "llmagent:chat", "tools": ["subgoal"]}),
                Ok(json!({"tools": ["subgoal"], "toolNames": "covia"})),
            ),
            (json!({"model": {"a": 1}, "state": {"config": {"model": {"b": 1}}}}), Ok(json!({"model": {"b": 1}}))),
            (json!({"state": {}}), Ok(json!({}))),
            (
                json!({"context": ["w/a"], "state": {"context": ["w/b"], "config": {"context": ["w/c"]}}}),
                Ok(json!({"context": ["w/c", "w/b"]})),
            ),
            (
                json!({"context": ["w/a", {"label": "l", "text": "t"}], "state": {"context": ["w/b", "w/a", {"type": "l", "text": "t"}, "w/b"]}}),
                Ok(json!({"context": ["w/a", {"label": "l", "text": "t"}, "w/b"]})),
            ),
            (json!({"state": {"context": ["w/b"]}}), Ok(json!({"context": ["w/b"]}))),
            (json!({"responseFormat": "text"}), Ok(json!({}))),
            (json!({"responseFormat": "json"}), Ok(json!({"outputs": {"complete": {"schema": {}}}}))),
            (
                json!({"responseFormat": {"name": "X", "schema": {"type": "object"}}, "outputs": {"fail": {"schema": {}}}}),
                Ok(json!({"outputs": {"fail": {"schema": {}}, "complete": {"schema": {"type": "object"}}}})),
            ),
            (json!({"name": "Reader", "description": "reads"}), Ok(json!({"description": "Reader: reads"}))),
            (json!({"name": "Reader"}), Ok(json!({"description": "Reader"}))),
            (json!({"name": 1}), Err("`name`: expected text")),
            (json!({"responseFormat": "xml"}), Err("`responseFormat`: expected \"text\", \"json\"")),
            (json!({"responseFormat": {"schema": {}, "x": 1}}), Err("`responseFormat.x`")),
            (json!({"responseFormat": "json", "outputs": {"complete": {"schema": {}}}}), Err("says it already")),
            (json!({"state": {"context": 1}}), Err("`state.context`: expected a list")),
            (
                json!({"context": vec!["w/a"; 20_000], "state": {"context": vec!["w/b"; 20_001]}}),
                Err("`context`: expected at most 200 entries, got 20001"),
            ),
            (json!({"operation": 1}), Err("`operation`: expected text")),
            (json!({"operation": "other:chat"}), Err("`llmagent:chat` or `goaltree:chat`, got `other:chat`")),
            (json!({"state": []}), Err("`state`: expected a map")),
            (json!({"state": {"cursor": 1}}), Err("`state.cursor`")),
            (json!({"state": {"config": 1}}), Err("`state.config`: expected a map")),
        ] {
            match (to_agent_file(given.as_object().unwrap()).map(Value::Object), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{given}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, expected) => panic!("{given}: expected {expected:?}, got {got:?}"),
            }
        }
    }
}
