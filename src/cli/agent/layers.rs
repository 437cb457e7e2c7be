//! Agent files that name a stored configuration, such as a template, and their conversion to arguments of
//! `agent/create`.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// Keys that `agent/create` accepts beside `config`.
const BESIDE: [&str; 3] = ["definition", "state", "name"];

/// Content of an agent file, without the id of the agent.
pub(crate) enum AgentFileContent {
    /// A whole configuration, which is checked without the venue.
    Config(Value),
    /// Arguments of `agent/create`, whose stored layers the venue reads.
    Layers(AgentLayers),
}

/// Arguments of `agent/create` that make up a configuration and a state.
#[derive(Debug, Default, Serialize)]
pub(crate) struct AgentLayers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) definition: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Value>,
}

/// Why the content of a file can't be arguments of `agent/create`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AgentLayersError {
    /// A key stands beside `config` that `agent/create` doesn't accept there.
    #[error(
        "`{key}`: what stands beside `config` counts for nothing: put it into the list, \
         `config: [\"v/…\", {{\"{key}\": …}}]`"
    )]
    Beside { key: String },
    /// The file says that an agent that exists stays as it is.
    #[error("`overwrite`: an agent that exists becomes what its file says: expected `true`, or leave the key out")]
    Overwrite,
}

/// Decides whether the content of a file is a whole configuration or names a stored one, and converts it.
pub(crate) fn classify(content: Value) -> Result<AgentFileContent, AgentLayersError> {
    let mut map = match content {
        Value::Object(map) => map,
        layers @ (Value::String(_) | Value::Array(_)) => Map::from_iter([("config".to_owned(), layers)]),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => return Ok(AgentFileContent::Config(other)),
    };
    // Covia's files are whole calls of `agent/create`; applying one overwrites anyway.
    if map.shift_remove("overwrite").is_some_and(|given| given != true) {
        return Err(AgentLayersError::Overwrite);
    }
    let is_call = map.contains_key("config") || map.contains_key("definition");
    if !is_call && !names_stored_config(map.get("state")) {
        return Ok(AgentFileContent::Config(Value::Object(map)));
    }
    let mut state = map.shift_remove("state");
    if !is_call {
        let mut layers = if map.is_empty() { Vec::new() } else { vec![Value::Object(map)] };
        layers.extend(take_config(&mut state));
        return Ok(AgentFileContent::Layers(AgentLayers::new(layers, None, state)));
    }
    if let Some(key) = map.keys().find(|key| *key != "config" && !BESIDE.contains(&key.as_str())) {
        return Err(AgentLayersError::Beside { key: key.clone() });
    }
    let (config, definition) = (map.shift_remove("config"), map.shift_remove("definition"));
    if let (Some(Value::Object(mut config)), None, false) =
        (config.clone(), &definition, names_stored_config(state.as_ref()))
    {
        config.extend(map);
        config.extend(state.map(|state| ("state".to_owned(), state)));
        return Ok(AgentFileContent::Config(Value::Object(config)));
    }
    let mut layers = match config {
        Some(Value::Array(layers)) => layers,
        Some(layer) => vec![layer],
        None => Vec::new(),
    };
    layers.extend(map.shift_remove("name").map(|name| json!({"name": name})));
    layers.extend(take_config(&mut state));
    Ok(AgentFileContent::Layers(AgentLayers::new(layers, definition, state)))
}

/// Whether the `config` of a state is a path, an asset or a list of layers.
fn names_stored_config(state: Option<&Value>) -> bool {
    let config = state.and_then(|state| state.get("config"));
    config.is_some_and(|config| config.is_string() || config.is_array())
}

/// Takes the layers of `state.config`, which override all others.
fn take_config(state: &mut Option<Value>) -> Vec<Value> {
    let Some(map) = state.as_mut().and_then(Value::as_object_mut) else { return Vec::new() };
    let config = map.shift_remove("config");
    if map.is_empty() {
        *state = None;
    }
    match config {
        Some(Value::Array(layers)) => layers,
        Some(layer) => vec![layer],
        None => Vec::new(),
    }
}

impl AgentLayers {
    /// Makes the arguments of a whole configuration.
    pub(crate) fn from_config(config: Value) -> Self {
        Self { config: Some(config), ..Self::default() }
    }

    fn new(layers: Vec<Value>, definition: Option<Value>, state: Option<Value>) -> Self {
        Self { config: (!layers.is_empty()).then_some(layers.into()), definition, state }
    }
}
