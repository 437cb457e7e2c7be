//! Manifests of agntz: an agent of `kind: llm`.

use super::config_map::{ConfigMap, invalid};
use crate::decode::DataError;
use crate::lattice::value::type_name;
use serde_json::{Map, Value, json};

/// Keys that only a manifest has.
const MANIFEST_KEYS: [&str; 2] = ["kind", "instruction"];

/// Names of providers in agntz, and their names here.
const PROVIDERS: [(&str, &str); 2] = [("google", "gemini"), ("togetherai", "together")];

/// Keys that have no meaning here, and what to use instead.
const NO_MEANING: [(&str, &str); 9] = [
    ("inputSchema", "the input of a task has no type here; it stands in the prompt as it came"),
    ("prompt", "the task stands in the prompt in its own form; put what is asked of the model into `instruction`"),
    ("examples", "write them into `instruction`"),
    ("stateKey", "it belongs to a pipeline; an agent hands its output to the one that asked"),
    ("retention", "it is the venue's, see `[retention]` in its configuration"),
    ("skills", "put their text into `context`, as assets or paths, and their tools into `tools`"),
    ("spawnable", "name each as a tool: `{delegate: AGENT}`"),
    ("reply", "what a model says between its tool calls is streamed to who watches the job"),
    ("settings", "it belongs to transcription and images"),
];

/// Whether a configuration is a manifest of agntz.
pub(super) fn is_manifest(map: &ConfigMap) -> bool {
    MANIFEST_KEYS.iter().any(|key| map.contains_key(*key))
}

/// Returns the same configuration in the spelling of agent files.
pub(super) fn from_manifest(map: &ConfigMap) -> Result<ConfigMap, DataError> {
    let mut config = map.clone();
    if let Some(kind) = config.shift_remove("kind")
        && kind != "llm"
    {
        return invalid(format!(
            "`kind`: expected `llm`, got {kind}: steps, branches and tools are no agents here; let one agent call the \
             others as tools, `{{delegate: AGENT}}`"
        ));
    }
    for (key, instead) in NO_MEANING {
        if config.contains_key(key) {
            return invalid(format!("`{key}` has no meaning here: {instead}"));
        }
    }
    rename_key(&mut config, "instruction", "systemPrompt", Ok)?;
    move_limits(&mut config)?;
    if let Some(schema) = config.shift_remove("outputSchema") {
        // Covia's `responseFormat` means the same and has the same checks.
        config.insert("responseFormat".into(), json!({"schema": output_schema(&schema)?}));
    }
    if let Some(Value::Object(model)) = config.get_mut("model")
        && let Some(Value::String(provider)) = model.get_mut("provider")
        && let Some((_, known)) = PROVIDERS.iter().find(|(theirs, _)| theirs == provider)
    {
        (*known).clone_into(provider);
    }
    if let Some(Value::Array(tools)) = config.get_mut("tools") {
        for (at, tool) in tools.iter_mut().enumerate() {
            *tool = tool_entry(at, tool)?;
        }
    }
    Ok(config)
}

/// Renames a key, and refuses a configuration that has both.
fn rename_key(
    config: &mut ConfigMap,
    from: &str,
    to: &str,
    turned: impl Fn(Value) -> Result<Value, DataError>,
) -> Result<(), DataError> {
    let Some(value) = config.shift_remove(from) else { return Ok(()) };
    if config.contains_key(to) {
        return invalid(format!("`{from}`: `{to}` says it already, leave one out"));
    }
    config.insert(to.into(), turned(value)?);
    Ok(())
}

/// Moves `maxSteps`, `tokenBudget` and `timeoutMs` into the limits of a task.
fn move_limits(config: &mut ConfigMap) -> Result<(), DataError> {
    let mut limits = match config.shift_remove("limits") {
        None => Map::new(),
        Some(Value::Object(limits)) => limits,
        Some(other) => return invalid(format!("`limits`: expected a map, got {}", type_name(&other))),
    };
    for (from, to) in [("maxSteps", "turns"), ("tokenBudget", "tokens"), ("timeoutMs", "wallClock")] {
        let Some(given) = config.get(from) else { continue };
        let Some(number) = given.as_u64().filter(|number| *number > 0) else {
            return invalid(format!("`{from}`: expected a whole number of at least 1, got {given}"));
        };
        limits.insert(from.into(), if from == "timeoutMs" { number.div_ceil(1_000) } else { number }.into());
        rename_key(&mut limits, from, to, Ok)?;
        config.shift_remove(from);
    }
    if !limits.is_empty() {
        config.insert("limits".into(), Value::Object(limits));
    }
    Ok(())
}

/// Returns a JSON Schema as it is given. A short map of properties becomes one with all of them required and no others.
fn output_schema(given: &Value) -> Result<Value, DataError> {
    let Value::Object(map) = given else {
        return invalid(format!("`outputSchema`: expected a map, got {}", type_name(given)));
    };
    if map.contains_key("$schema") || (map.get("type") == Some(&"object".into()) && map.contains_key("properties")) {
        return Ok(given.clone());
    }
    let properties: Map<String, Value> = map.iter().map(|(key, of)| (key.clone(), property_schema(of))).collect();
    let required: Vec<_> = map.keys().collect();
    Ok(json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}))
}

fn property_schema(of: &Value) -> Value {
    match of {
        Value::String(kind) => json!({"type": kind}),
        Value::Object(map) => {
            let key = |key: &str| match key {
                "min" => "minimum".to_owned(),
                "max" => "maximum".to_owned(),
                other => other.to_owned(),
            };
            map.iter().map(|(name, value)| (key(name), value.clone())).collect()
        }
        other => other.clone(),
    }
}

/// Returns an entry of `tools`: another agent becomes a delegate; programs of an agntz process are refused.
fn tool_entry(at: usize, tool: &Value) -> Result<Value, DataError> {
    let Some(kind) = tool.get("kind") else { return Ok(tool.clone()) };
    match kind.as_str() {
        Some("agent") => {
            let agent = tool.get("agent").or_else(|| tool.get("agentId")).and_then(Value::as_str).unwrap_or_default();
            let (agent, version) = agent.split_once('@').map_or((agent, None), |(agent, v)| (agent, Some(v)));
            let version = tool.get("version").and_then(Value::as_str).or(version);
            if version.is_some_and(|version| version != "latest") {
                return invalid(format!("`tools[{at}].version`: an agent is called as it is now, expected `latest`"));
            }
            Ok(json!({"delegate": agent}))
        }
        Some("local") => invalid(format!(
            "`tools[{at}]`: a `local` tool is a function of an agntz process; put it behind HTTP (`v/ops/http/post`) or \
             into an external worker (`v/ops/queue/publish`), and name that operation"
        )),
        Some("http") => invalid(format!(
            "`tools[{at}]`: name the operation `v/ops/http/get` or `v/ops/http/post`, its `name`, and bind what the \
             model shall not say by `toolArgInjection`"
        )),
        Some("mcp") => invalid(format!("`tools[{at}]`: tools of MCP servers are not supported by this version")),
        _ => invalid(format!("`tools[{at}].kind`: expected `agent`, got {kind}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &Value) -> Result<Value, String> {
        from_manifest(value.as_object().unwrap()).map(Value::Object).map_err(|error| error.to_string())
    }

    #[test]
    fn a_manifest_is_an_agent() {
        for (given, expected) in [
            (json!({"kind": "llm", "instruction": "Help."}), json!({"systemPrompt": "Help."})),
            (
                json!({"kind": "llm", "maxSteps": 5, "tokenBudget": 900, "timeoutMs": 1500}),
                json!({"limits": {"turns": 5, "tokens": 900, "wallClock": 2}}),
            ),
            (
                json!({"kind": "llm", "model": {"provider": "google", "name": "gemini-2.5-flash"}}),
                json!({"model": {"provider": "gemini", "name": "gemini-2.5-flash"}}),
            ),
            (
                json!({"kind": "llm", "outputSchema": {"mood": {"type": "string", "enum": ["up"]}, "sure": {"type": "number", "min": 0}}}),
                json!({"responseFormat": {"schema": {
                    "type": "object",
                    "properties": {"mood": {"type": "string", "enum": ["up"]}, "sure": {"type": "number", "minimum": 0}},
                    "required": ["mood", "sure"], "additionalProperties": false
                }}}),
            ),
            (
                json!({"kind": "llm", "outputSchema": {"type": "object", "properties": {}}}),
                json!({"responseFormat": {"schema": {"type": "object", "properties": {}}}}),
            ),
            (
                json!({"kind": "llm", "tools": [{"kind": "agent", "agent": "reviewer@latest"}, "v/ops/lattice/read"]}),
                json!({"tools": [{"delegate": "reviewer"}, "v/ops/lattice/read"]}),
            ),
        ] {
            assert_eq!(read(&given), Ok(expected), "{given}");
        }
    }

    #[test]
    fn keys_without_meaning_here_are_refused_by_name() {
        for (given, expected) in [
            (json!({"kind": "sequential", "steps": []}), "`kind`: expected `llm`, got \"sequential\""),
            (json!({"kind": "llm", "prompt": "{{x}}"}), "`prompt` has no meaning here: "),
            (json!({"kind": "llm", "skills": ["x"]}), "`skills` has no meaning here: "),
            (json!({"kind": "llm", "inputSchema": {}}), "`inputSchema` has no meaning here: "),
            (json!({"instruction": "a", "systemPrompt": "b"}), "`instruction`: `systemPrompt` says it already"),
            (json!({"kind": "llm", "maxSteps": 5, "limits": {"turns": 3}}), "`maxSteps`: `turns` says it already"),
            (json!({"kind": "llm", "maxSteps": -1}), "`maxSteps`: expected a whole number"),
            (json!({"kind": "llm", "outputSchema": 1}), "`outputSchema`: expected a map"),
            (json!({"kind": "llm", "tools": [{"kind": "local", "tools": ["x"]}]}), "`tools[0]`: a `local` tool"),
            (json!({"kind": "llm", "tools": ["a", {"kind": "mcp", "server": "x"}]}), "`tools[1]`: tools of MCP"),
            (
                json!({"kind": "llm", "tools": [{"kind": "agent", "agent": "a@2026-05-17T15:30:00.000Z"}]}),
                "`tools[0].version`: an agent is called as it is now",
            ),
        ] {
            let error = read(&given).unwrap_err();
            assert!(error.contains(expected), "{given}: {error}");
        }
    }
}
