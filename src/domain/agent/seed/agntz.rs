//! Manifests of agntz: an agent of `kind: llm`; pipelines are read beside.

use super::agntz_http;
use super::agntz_mcp::McpParts;
use super::agntz_pipeline;
use super::config_map::{ConfigMap, invalid};
use crate::decode::DataError;
use crate::lattice::value::type_name;
use crate::resource::memory;
use crate::visible::quote_foreign;
use serde_json::{Map, Value, json};

/// Keys that only a manifest has.
const MANIFEST_KEYS: [&str; 2] = ["kind", "instruction"];

/// Names of providers in agntz, and their names here.
const PROVIDERS: [(&str, &str); 2] = [("google", "gemini"), ("togetherai", "together")];

/// Keys that have no meaning here, and what to use instead.
const NO_MEANING: [(&str, &str); 6] = [
    ("stateKey", "it belongs to a step of a pipeline; an agent hands its output to the one that asked"),
    ("retention", "it is the venue's, see `[retention]` in its configuration"),
    ("skills", "put their text into `context`, as assets or paths, and their tools into `tools`"),
    ("spawnable", "name each as a tool: `{delegate: AGENT}`"),
    ("reply", "what a model says between its tool calls is streamed to who watches the job"),
    ("settings", "it belongs to transcription and images"),
];

/// Settings of a model that only some providers have, and where they are written here.
const MODEL_EXTRAS: [(&str, &str); 5] = [
    ("topK", "put it into `model.extra` as the provider names it: `extra: {top_k: 40}`"),
    ("presencePenalty", "put it into `model.extra` as the provider names it: `extra: {presence_penalty: 0.5}`"),
    ("frequencyPenalty", "put it into `model.extra` as the provider names it: `extra: {frequency_penalty: 0.5}`"),
    ("providerOptions", "put what is in it into `model.extra` as the provider names it, or use `model.reasoning`"),
    ("options", "put what is in it into `model.extra` as the provider names it"),
];

/// Keys of a tool that is another agent.
const AGENT_TOOL_KEYS: [&str; 4] = ["kind", "agent", "agentId", "version"];

/// Whether a configuration is a manifest of agntz.
pub(super) fn is_manifest(map: &ConfigMap) -> bool {
    MANIFEST_KEYS.iter().any(|key| map.contains_key(*key))
}

/// Returns the same configuration in the spelling of agent files.
pub(super) fn from_manifest(map: &ConfigMap) -> Result<ConfigMap, DataError> {
    let mut config = map.clone();
    let kind = config.shift_remove("kind");
    let pipeline = kind.as_ref().and_then(Value::as_str).filter(|kind| agntz_pipeline::KINDS.contains(kind));
    if let Some(kind) = kind.as_ref().filter(|kind| *kind != "llm" && pipeline.is_none()) {
        let known = "expected `llm`, `sequential`, `parallel` or `tool`";
        return invalid(format!("`kind`: {known}, got {kind}{}", kind_advice(kind)));
    }
    for (key, instead) in NO_MEANING {
        if config.contains_key(key) {
            return invalid(format!("`{key}` has no meaning here: {instead}"));
        }
    }
    agntz_pipeline::set_input_schema(&mut config, property_schema)?;
    if let Some(kind) = pipeline {
        agntz_pipeline::move_pipeline(kind, &mut config)?;
        move_limits(&mut config)?;
        return Ok(config);
    }
    rename_key(&mut config, "instruction", "systemPrompt", Ok)?;
    move_prompt(&mut config)?;
    move_limits(&mut config)?;
    set_model_settings(&mut config)?;
    set_memory_modes(&mut config);
    if let Some(schema) = config.shift_remove("outputSchema") {
        // Covia's `responseFormat` means the same and has the same checks.
        config.insert("responseFormat".into(), json!({"schema": output_schema(&schema)?}));
    }
    convert_tools(&mut config)?;
    Ok(config)
}

/// Replaces the entries of `tools` by those of agent files, with what they declare and bind.
fn convert_tools(config: &mut ConfigMap) -> Result<(), DataError> {
    let Some(Value::Array(given)) = config.get_mut("tools") else { return Ok(()) };
    let given = std::mem::take(given);
    let (mut tools, mut parts) = (Vec::with_capacity(given.len()), McpParts::default());
    for (at, tool) in given.iter().enumerate() {
        match tool.as_object().map(|map| (map, map.get("kind").and_then(Value::as_str))) {
            Some((entry, Some("mcp"))) => tools.extend(parts.read_entry(at, entry)?),
            Some((entry, Some("http"))) => tools.push(agntz_http::read_entry(at, entry, &mut parts)?),
            Some(_) | None => tools.push(tool_entry(at, tool)?),
        }
    }
    config.insert("tools".into(), Value::Array(tools));
    parts.add_to(config)
}

/// Returns what stands in the place of a kind of agent that isn't here.
fn kind_advice(kind: &Value) -> &'static str {
    match kind.as_str() {
        Some("image" | "transcription") => {
            ": no agent makes pictures or transcripts here; give the work to a program behind `v/ops/http/post` or \
             `v/ops/queue/publish`"
        }
        _ => "",
    }
}

/// Makes a `prompt` that is a template the text of the task, and puts the examples behind the instruction.
fn move_prompt(config: &mut ConfigMap) -> Result<(), DataError> {
    let is_style = |prompt: &Value| prompt == "full" || prompt == "plain";
    if config.get("prompt").is_some_and(|prompt| !is_style(prompt)) {
        rename_key(config, "prompt", "taskPrompt", Ok)?;
    }
    let Some(examples) = config.shift_remove("examples") else { return Ok(()) };
    let text = agntz_pipeline::examples_text(&examples)?;
    let mut whole = config.get("systemPrompt").and_then(Value::as_str).unwrap_or_default().trim_end().to_owned();
    whole.push_str(&text);
    config.insert("systemPrompt".into(), whole.into());
    Ok(())
}

/// Renames provider and settings of the model, and moves `maxRetries` into `retry`.
fn set_model_settings(config: &mut ConfigMap) -> Result<(), DataError> {
    let Some(Value::Object(model)) = config.get_mut("model") else { return Ok(()) };
    if let Some((key, instead)) = MODEL_EXTRAS.iter().find(|(key, _)| model.contains_key(*key)) {
        return invalid(format!("`model.{key}` has no place here: {instead}"));
    }
    if let Some(Value::String(provider)) = model.get_mut("provider")
        && let Some((_, known)) = PROVIDERS.iter().find(|(theirs, _)| theirs == provider)
    {
        (*known).clone_into(provider);
    }
    rename_key(model, "stopSequences", "stop", Ok)?;
    let Some(given) = model.shift_remove("maxRetries") else { return Ok(()) };
    let Some(attempts) = given.as_u64().and_then(|retries| retries.checked_add(1)) else {
        return invalid(format!("`model.maxRetries`: expected a whole number of at least 0, got {given}"));
    };
    if config.contains_key("retry") {
        return invalid("`model.maxRetries`: `retry` says it already, leave one out");
    }
    config.insert("retry".into(), json!({"attempts": attempts}));
    Ok(())
}

/// Sets the mode of a memory that names none: agntz's may be written to.
fn set_memory_modes(config: &mut ConfigMap) {
    let Some(Value::Object(resources)) = config.get_mut("resources") else { return };
    for (name, resource) in resources {
        if let Value::Object(resource) = resource
            && resource.get("kind").map_or(name == memory::KIND, |kind| kind == memory::KIND)
        {
            resource.entry("mode").or_insert_with(|| "read-write".into());
        }
    }
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
    let required: Vec<_> = map.keys().collect();
    let properties = property_schemas(map);
    Ok(json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}))
}

fn property_schemas(short: &ConfigMap) -> ConfigMap {
    short.iter().map(|(name, of)| (name.clone(), property_schema(of))).collect()
}

/// Returns the schema of a property in short, at any depth; an object with properties has no others.
fn property_schema(of: &Value) -> Value {
    let map = match of {
        Value::String(kind) => return json!({"type": kind}),
        Value::Object(map) => map,
        other => return other.clone(),
    };
    let part = |(key, value): (&String, &Value)| match (key.as_str(), value) {
        ("min", _) => ("minimum".to_owned(), value.clone()),
        ("max", _) => ("maximum".to_owned(), value.clone()),
        ("items", _) => (key.clone(), property_schema(value)),
        ("properties", Value::Object(inner)) => (key.clone(), Value::Object(property_schemas(inner))),
        _ => (key.clone(), value.clone()),
    };
    let mut schema: ConfigMap = map.iter().map(part).collect();
    if schema.contains_key("properties") {
        schema.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    Value::Object(schema)
}

/// Returns an entry of `tools`: another agent becomes a delegate; programs of an agntz process are refused.
fn tool_entry(at: usize, tool: &Value) -> Result<Value, DataError> {
    let Value::Object(map) = tool else { return Ok(tool.clone()) };
    let Some(kind) = map.get("kind") else { return Ok(tool.clone()) };
    let name = kind.as_str().unwrap_or_default();
    let program = match name {
        "agent" => return agent_tool(at, map),
        "local" => "a function of an agntz process",
        "callback" => "a route of the application that calls agntz",
        "client" => "a function of the program that asks the agent",
        _ => return invalid(format!("`tools[{at}].kind`: expected `agent`, got {kind}")),
    };
    invalid(format!(
        "`tools[{at}]`: a `{name}` tool is {program}; put it behind HTTP (`v/ops/http/post`) or into an external worker \
         (`v/ops/queue/publish`), and name that operation"
    ))
}

/// Returns another agent as a tool. A version can't be kept, and what else the entry says would be lost.
fn agent_tool(at: usize, tool: &ConfigMap) -> Result<Value, DataError> {
    if let Some(other) = tool.keys().find(|key| !AGENT_TOOL_KEYS.contains(&key.as_str())) {
        return invalid(format!(
            "`tools[{at}].{}`: unknown key, expected `agent` alone; with a name or description of its own the tool is \
             `{{delegate: AGENT, name: …, description: …}}`",
            quote_foreign(other)
        ));
    }
    let Some(agent) = tool.get("agent").or_else(|| tool.get("agentId")).and_then(Value::as_str) else {
        return invalid(format!("`tools[{at}].agent`: expected the id of an agent"));
    };
    let (agent, named) = agent.split_once('@').map_or((agent, None), |(agent, version)| (agent, Some(version)));
    let version = tool.get("version").cloned().or_else(|| named.map(Value::from));
    if version.is_some_and(|version| version != "latest") {
        return invalid(format!("`tools[{at}].version`: an agent is called as it is now, expected `latest`"));
    }
    Ok(json!({"delegate": agent}))
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
                json!({"kind": "llm", "outputSchema": {
                    "who": {"type": "object", "properties": {"name": "string", "age": {"type": "integer", "min": 0}}},
                    "marks": {"type": "array", "items": {"type": "number", "max": 6}}
                }}),
                json!({"responseFormat": {"schema": {
                    "type": "object",
                    "properties": {
                        "who": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
                            "additionalProperties": false
                        },
                        "marks": {"type": "array", "items": {"type": "number", "maximum": 6}}
                    },
                    "required": ["who", "marks"], "additionalProperties": false
                }}}),
            ),
            (
                json!({"kind": "llm", "model": {"provider": "x", "name": "y", "stopSequences": ["END"], "maxRetries": 2}}),
                json!({"model": {"provider": "x", "name": "y", "stop": ["END"]}, "retry": {"attempts": 3}}),
            ),
            (
                json!({"kind": "llm", "resources": {
                    "memory": {}, "notes": {"kind": "memory", "mode": "read"}, "own": {"kind": "memory"}, "docs": {"kind": "rag"}
                }}),
                json!({"resources": {
                    "memory": {"mode": "read-write"}, "notes": {"kind": "memory", "mode": "read"},
                    "own": {"kind": "memory", "mode": "read-write"}, "docs": {"kind": "rag"}
                }}),
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
    fn prompt_examples_and_a_schema_in_short_are_kept() {
        let given = json!({
            "kind": "llm", "instruction": "Help.\n", "prompt": "On {{topic}}",
            "examples": [{"input": "${a} {{b}}", "output": {"c": 1}}],
            "inputSchema": {"topic": "string", "more": "object", "mood": {"type": "string", "enum": ["up"]}}
        });
        let properties = json!({
            "topic": {"type": ["string", "null"]}, "more": {"type": ["object", "array", "null"]},
            "mood": {"type": ["string", "null"], "enum": ["up", null]}
        });
        let expected = json!({
            "inputSchema": {"type": "object", "properties": properties, "additionalProperties": false}, "taskPrompt": "On {{topic}}",
            "systemPrompt": "Help.\n\nExamples:\n\nInput: \\${a} \\{{b}}\nOutput: {\"c\":1}\n"
        });
        assert_eq!(read(&given), Ok(expected));
    }

    #[test]
    fn keys_without_meaning_here_are_refused_by_name() {
        for (given, expected) in [
            (json!({"kind": "loop"}), "`kind`: expected `llm`, `sequential`, `parallel` or `tool`, got \"loop\""),
            (json!({"kind": "llm", "skills": ["x"]}), "`skills` has no meaning here: "),
            (json!({"kind": "llm", "inputSchema": 1}), "`inputSchema`: expected a map, got"),
            (json!({"kind": "llm", "settings": {}}), "`settings` has no meaning here: "),
            (json!({"kind": "llm", "stateKey": "x"}), "`stateKey` has no meaning here: "),
            (json!({"kind": "llm", "examples": [{"input": "a"}]}), "`examples[0].output`: expected the output"),
            (json!({"kind": "llm", "examples": [{"input": "{{#if a}}", "output": ""}]}), "examples have no blocks"),
            (json!({"instruction": "a", "systemPrompt": "b"}), "`instruction`: `systemPrompt` says it already"),
            (json!({"kind": "llm", "maxSteps": 5, "limits": {"turns": 3}}), "`maxSteps`: `turns` says it already"),
            (json!({"kind": "llm", "maxSteps": -1}), "`maxSteps`: expected a whole number"),
            (json!({"kind": "llm", "outputSchema": 1}), "`outputSchema`: expected a map"),
            (json!({"kind": "llm", "tools": [{"kind": "local", "tools": ["x"]}]}), "`tools[0]`: a `local` tool"),
            (
                json!({"kind": "llm", "tools": [{"kind": "callback", "name": "f"}]}),
                "`tools[0]`: a `callback` tool is a route of the application that calls agntz; put it behind HTTP",
            ),
            (json!({"kind": "llm", "tools": [{"kind": "client"}]}), "into an external worker (`v/ops/queue/publish`)"),
            (
                json!({"kind": "llm", "tools": [{"kind": "agent", "agent": "a", "description": "d"}]}),
                "`tools[0].description`: unknown key, expected `agent` alone",
            ),
            (json!({"kind": "llm", "tools": [{"kind": "agent"}]}), "`tools[0].agent`: expected the id of an agent"),
            (
                json!({"kind": "llm", "tools": [{"kind": "agent", "agent": "a", "version": 3}]}),
                "`tools[0].version`: an agent is called as it is now",
            ),
            (json!({"kind": "image", "prompt": "x"}), "got \"image\": no agent makes pictures"),
            (json!({"kind": "llm", "model": {"topK": 5}}), "`model.topK` has no place here: put it into `model.extra`"),
            (json!({"kind": "llm", "model": {"providerOptions": {}}}), "`model.providerOptions` has no place here: "),
            (json!({"kind": "llm", "model": {"maxRetries": -1}}), "`model.maxRetries`: expected a whole number"),
            (json!({"kind": "llm", "model": {"maxRetries": 1}, "retry": {}}), "`model.maxRetries`: `retry` says it"),
            (json!({"kind": "llm", "model": {"stop": [], "stopSequences": []}}), "`stopSequences`: `stop` says it"),
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
