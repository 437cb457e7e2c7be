//! The seeds' spelling of a configuration: `operation` and `state.config`.

use super::{AgentConfigError, merge};
use crate::domain::lattice::value::type_name;
use crate::domain::tools::guard::catalog_path;
use serde_json::{Map, Value};

/// The same configuration in the spelling of agent files: `state.config` wins over the keys beside
/// it, key by key; `operation` names the loop.
pub(super) fn mapped(map: &Map<String, Value>) -> Result<Map<String, Value>, AgentConfigError> {
    let bad = |text: String| AgentConfigError::Value(text);
    let mut config = map.clone();
    let state = config.shift_remove("state").map(|state| state_config(&state)).transpose()?;
    if let Some(state) = state {
        let mut merged = Value::Object(config);
        merge::shallow(&mut merged, &state);
        config = if let Value::Object(merged) = merged { merged } else { Map::new() };
    }
    let Some(operation) = config.shift_remove("operation") else { return Ok(config) };
    let Some(name) = operation.as_str() else {
        return Err(bad(format!("`operation`: expected text, got {}", type_name(&operation))));
    };
    match catalog_path(name).as_str() {
        "v/ops/llmagent/chat" => {}
        "v/ops/goaltree/chat" => {
            config.entry("loop").or_insert_with(|| "goalTree".into());
        }
        _ => return Err(bad(format!("`operation`: expected `llmagent:chat` or `goaltree:chat`, got `{name}`"))),
    }
    Ok(config)
}

/// The configuration in a `state`, which may hold nothing else.
pub fn state_config(state: &Value) -> Result<Map<String, Value>, AgentConfigError> {
    let bad = |text: String| AgentConfigError::Value(text);
    let Some(map) = state.as_object() else {
        return Err(bad(format!("`state`: expected a map, got {}", type_name(state))));
    };
    if let Some(other) = map.keys().find(|key| *key != "config") {
        return Err(bad(format!("`state.{other}`: expected `state.config` alone, an agent's state is its own")));
    }
    match map.get("config") {
        None => Ok(Map::new()),
        Some(Value::Object(config)) => Ok(config.clone()),
        Some(other) => Err(bad(format!("`state.config`: expected a map, got {}", type_name(other)))),
    }
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
                Ok(json!({"systemPrompt": "b"})),
            ),
            (json!({"operation": "v/ops/goaltree/chat"}), Ok(json!({"loop": "goalTree"}))),
            (json!({"operation": "goaltree:chat", "loop": "chat"}), Ok(json!({"loop": "chat"}))),
            (json!({"model": {"a": 1}, "state": {"config": {"model": {"b": 1}}}}), Ok(json!({"model": {"b": 1}}))),
            (json!({"state": {}}), Ok(json!({}))),
            (json!({"operation": 1}), Err("`operation`: expected text")),
            (json!({"operation": "other:chat"}), Err("`llmagent:chat` or `goaltree:chat`, got `other:chat`")),
            (json!({"state": []}), Err("`state`: expected a map")),
            (json!({"state": {"cursor": 1}}), Err("`state.cursor`")),
            (json!({"state": {"config": 1}}), Err("`state.config`: expected a map")),
        ] {
            match (mapped(given.as_object().unwrap()).map(Value::Object), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{given}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, expected) => panic!("{given}: expected {expected:?}, got {got:?}"),
            }
        }
    }
}
