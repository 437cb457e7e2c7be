//! Manifests of agntz of `kind: sequential`, `parallel` and `tool`, and the typed inputs of every kind.

use super::agntz_http;
use super::agntz_mcp::{McpParts, refuse_other_keys};
use super::config_map::{ConfigMap, invalid};
use crate::decode::DataError;
use crate::lattice::value::type_name;
use crate::values::placeholder::escape;
use crate::visible::quote_foreign;
use serde_json::{Map, Value, json};

/// Kinds that are pipelines.
pub(super) const KINDS: [&str; 3] = ["sequential", "parallel", "tool"];

/// Keys of a model that a pipeline doesn't ask, and of what only such a model uses.
const OF_MODELS: [&str; 10] = [
    "instruction",
    "prompt",
    "model",
    "tools",
    "examples",
    "outputSchema",
    "resources",
    "maxSteps",
    "context",
    "toolArgInjection",
];

/// Keys of a step.
const STEP_KEYS: [&str; 5] = ["ref", "agent", "input", "stateKey", "when"];

/// Keys of a tool that an agntz process runs itself.
const LOCAL_KEYS: [&str; 4] = ["kind", "name", "description", "params"];

/// Moves what the kind says into `pipeline`.
pub(super) fn move_pipeline(kind: &str, config: &mut ConfigMap) -> Result<(), DataError> {
    if let Some(key) = OF_MODELS.iter().find(|key| config.contains_key(**key)) {
        return invalid(format!(
            "`{key}` has no meaning with `kind: {kind}`, which asks no model; it belongs to the agents of its steps"
        ));
    }
    let mut pipeline = Map::from_iter([("kind".to_owned(), Value::from(kind))]);
    let list = if kind == "parallel" { "branches" } else { "steps" };
    for key in [list, "until", "maxIterations", "output"] {
        if let Some(value) = config.shift_remove(key) {
            let name = if key == list { "steps" } else { key };
            pipeline.insert(name.to_owned(), value);
        }
    }
    if let Some(other) = ["steps", "branches"].iter().find(|key| config.contains_key(**key)) {
        return invalid(format!("`{other}` has no meaning with `kind: {kind}`"));
    }
    match pipeline.get_mut("steps") {
        Some(Value::Array(steps)) => {
            for (at, step) in steps.iter_mut().enumerate() {
                *step = read_step(&format!("{list}[{at}]"), step)?;
            }
        }
        Some(other) => return invalid(format!("`{list}`: expected a list, got {}", type_name(other))),
        None => {}
    }
    if kind == "tool" {
        if config.contains_key("params") {
            return invalid("`params`: belongs into `tool`, as `tool: {kind: …, name: …, params: {…}}`");
        }
        read_tool(config, &mut pipeline)?;
    }
    config.insert("pipeline".into(), Value::Object(pipeline));
    Ok(())
}

/// Returns a step with the name of its output: its own, that of its agent, or one made of the agent's id.
fn read_step(place: &str, step: &Value) -> Result<Value, DataError> {
    let Value::Object(step) = step else {
        return invalid(format!("`{place}`: expected a map, got {}", type_name(step)));
    };
    refuse_other_keys(place, step, &STEP_KEYS)?;
    let mut step = step.clone();
    let (mut named, mut id) = (step.shift_remove("stateKey"), step.get("ref").cloned());
    if let Some(Value::Object(agent)) = step.get_mut("agent") {
        let inner = agent.shift_remove("stateKey");
        named = named.or(inner);
        id = agent.shift_remove("id").or(id);
    }
    let key = match (named, id) {
        (Some(Value::String(key)), _) => key,
        (None, Some(Value::String(id))) => state_key(&id),
        (Some(other), _) => return invalid(format!("`{place}.stateKey`: expected a text, got {}", type_name(&other))),
        (None, _) => return invalid(format!("`{place}`: expected `ref`, or `agent` with an `id`")),
    };
    step.insert("stateKey".into(), key.into());
    Ok(Value::Object(step))
}

/// Returns the name of an agent's output: `web-researcher` → `webResearcher`.
fn state_key(id: &str) -> String {
    let mut key = String::with_capacity(id.len());
    let mut rest = id.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.next_if(|next| c == '-' && next.is_ascii_lowercase()) {
            Some(next) => key.push(next.to_ascii_uppercase()),
            None => key.push(c),
        }
    }
    key
}

/// Moves `tool` into the one entry of `tools`, and its `params` into the pipeline.
fn read_tool(config: &mut ConfigMap, pipeline: &mut ConfigMap) -> Result<(), DataError> {
    let Some(Value::Object(mut tool)) = config.shift_remove("tool") else {
        return invalid("`tool`: expected a map with `kind`, `name` and `params`");
    };
    match tool.shift_remove("params") {
        None | Some(Value::Null) => {}
        Some(Value::Object(params)) => {
            pipeline.insert("params".into(), Value::Object(params));
        }
        Some(other) => return invalid(format!("`tool.params`: expected a map, got {}", type_name(&other))),
    }
    let mut parts = McpParts::default();
    let kind = tool.get("kind").cloned().unwrap_or_default();
    let entry = match kind.as_str() {
        Some("mcp") => {
            let Some(name) = tool.shift_remove("name").filter(Value::is_string) else {
                return invalid("`tool.name`: expected the name of a tool of the server");
            };
            tool.insert("tools".into(), json!([name]));
            parts.read_entry(0, &tool)?.into_iter().next().unwrap_or_default()
        }
        Some("http") => agntz_http::read_entry(0, &tool, &mut parts)?,
        Some("local") => local_job(&tool)?,
        Some("callback" | "agent" | "client") => {
            return invalid(format!("`tool.kind`: {kind} is for models; expected `mcp`, `http` or `local`"));
        }
        _ => return invalid(format!("`tool.kind`: expected `mcp`, `http` or `local`, got {kind}")),
    };
    pipeline.insert("tool".into(), entry["name"].clone());
    config.insert("tools".into(), json!([entry]));
    parts.add_to(config)
}

/// Returns a function of an agntz process as a job for an external worker, which takes it from the queue of its name.
fn local_job(tool: &ConfigMap) -> Result<Value, DataError> {
    refuse_other_keys("tool", tool, &LOCAL_KEYS)?;
    let Some(name) = tool.get("name").and_then(Value::as_str) else {
        return invalid("`tool.name`: expected the name of a function");
    };
    let about = format!("Runs `{name}` in the worker that takes the queue of this name.");
    let description = tool.get("description").cloned().unwrap_or_else(|| about.into());
    let input = json!({"type": "object", "properties": {}});
    Ok(json!({"name": name, "description": description, "input": input, "jobs": {"queue": name}}))
}

/// Replaces the schema of an input in short, `topic: string`, by one whose properties are null where they are absent, and
/// which has no others.
pub(super) fn set_input_schema(
    config: &mut ConfigMap,
    property_schema: impl Fn(&Value) -> Value,
) -> Result<(), DataError> {
    let given = match config.get("inputSchema") {
        None => return Ok(()),
        Some(Value::Object(given)) => given,
        Some(other) => return invalid(format!("`inputSchema`: expected a map, got {}", type_name(other))),
    };
    if given.contains_key("$schema")
        || (given.get("type") == Some(&"object".into()) && given.get("properties").is_some_and(Value::is_object))
    {
        return Ok(());
    }
    let properties: ConfigMap = given.iter().map(|(name, of)| (name.clone(), nullable(property_schema(of)))).collect();
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    config.insert("inputSchema".into(), schema);
    Ok(())
}

/// Returns the schema of a property that may be null. An `object` of a manifest in short may be a list, too.
fn nullable(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").and_then(Value::as_str) {
        schema["type"] = match kind {
            "object" if schema.get("properties").is_none() => json!(["object", "array", "null"]),
            kind => json!([kind, "null"]),
        };
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    schema
}

/// Returns examples as text for the system prompt.
pub(super) fn examples_text(examples: &Value) -> Result<String, DataError> {
    let Value::Array(examples) = examples else {
        return invalid(format!("`examples`: expected a list, got {}", type_name(examples)));
    };
    let mut texts = Vec::with_capacity(examples.len());
    for (at, example) in examples.iter().enumerate() {
        let place = format!("examples[{at}]");
        let Value::Object(example) = example else {
            return invalid(format!("`{place}`: expected a map, got {}", type_name(example)));
        };
        refuse_other_keys(&place, example, &["input", "output"])?;
        let shown = |key: &str| match example.get(key) {
            Some(Value::String(text)) if text.contains("{{#") || text.contains("{{/") => {
                invalid(format!("`{place}.{key}`: `{}`: examples have no blocks", quote_foreign(text)))
            }
            Some(Value::String(text)) => Ok(escape(text)),
            Some(other) => Ok(escape(&other.to_string())),
            None => invalid(format!("`{place}.{key}`: expected the {key} of the example")),
        };
        texts.push(format!("\nInput: {}\nOutput: {}\n", shown("input")?, shown("output")?));
    }
    Ok(format!("\n\nExamples:\n{}", texts.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentConfig;

    fn config(manifest: &Value) -> Result<AgentConfig, String> {
        AgentConfig::parse(manifest).map_err(|error| error.to_string())
    }

    fn inline(id: &str, instruction: &str) -> Value {
        json!({"id": id, "kind": "llm", "model": {"provider": "openai", "name": "x"}, "instruction": instruction})
    }

    #[test]
    fn a_sequence_is_a_pipeline_with_names_for_its_outputs() {
        let mut keyed = inline("c", "C");
        keyed["stateKey"] = json!("third");
        let config = config(&json!({
            "kind": "sequential", "inputSchema": {"topic": "string", "tone": {"type": "string", "default": "plain"}},
            "steps": [
                {"ref": "web-researcher-2", "input": {"q": "{{topic}}"}},
                {"agent": inline("b", "B {{topic}}"), "stateKey": "second", "when": "{{tone}} != plain"},
                {"agent": keyed}
            ],
            "until": "{{third.ok}} == true", "maxIterations": 3, "output": {"o": "{{second}}"}
        }))
        .unwrap();
        let pipeline = config.pipeline.unwrap();
        let keys: Vec<_> = pipeline.steps.iter().map(|step| step.state_key.as_str()).collect();
        assert_eq!(keys, ["webResearcher-2", "second", "third"]);
        assert_eq!(pipeline.steps[1].agent.as_ref().unwrap()["systemPrompt"], "B {{topic}}");
        assert_eq!((pipeline.max_iterations, config.default_tools), (Some(3), false));
        assert_eq!(
            config.input_schema,
            Some(json!({"type": "object", "properties": {
                "topic": {"type": ["string", "null"]}, "tone": {"type": ["string", "null"], "default": "plain"}
            }, "additionalProperties": false}))
        );
    }

    #[test]
    fn the_one_call_of_a_tool_agent_is_an_entry_of_tools() {
        for (tool, name, operation, params) in [
            (
                json!({"kind": "local", "name": "send_slack", "params": {"channel": "#c", "n": "{{n}}"}}),
                "send_slack",
                "v/ops/jobs/send_slack",
                json!({"channel": "#c", "n": "{{n}}"}),
            ),
            (
                json!({"kind": "mcp", "server": "mail", "name": "send_email", "params": {"to": "{{n}}"}}),
                "send_email",
                "v/ops/mcp/mail/send_email",
                json!({"to": "{{n}}"}),
            ),
            (
                json!({"kind": "http", "name": "hook", "url": "https://a.example/{n}", "params": {"n": "{{n}}"}}),
                "http__hook",
                "v/ops/own/http__hook",
                json!({"n": "{{n}}"}),
            ),
        ] {
            let given = json!({"kind": "tool", "inputSchema": {"n": "number"}, "tool": tool});
            let config = config(&given).unwrap_or_else(|error| panic!("{given}: {error}"));
            let pipeline = config.pipeline.unwrap();
            assert_eq!((pipeline.tool.as_deref(), Value::Object(pipeline.params)), (Some(name), params));
            assert_eq!((config.tools.len(), config.tools[0].operation()), (1, Some(operation)));
        }
    }

    #[test]
    fn what_a_pipeline_can_not_do_is_refused_by_name() {
        let step = json!({"ref": "a"});
        for (given, expected) in [
            (json!({"kind": "sequential", "steps": [step], "instruction": "x"}), "`instruction` has no meaning with"),
            (
                json!({"kind": "sequential", "steps": [step], "model": "x/y"}),
                "`model` has no meaning with `kind: sequential`",
            ),
            (json!({"kind": "sequential", "branches": [step]}), "`branches` has no meaning with `kind: sequential`"),
            (json!({"kind": "parallel", "steps": [step]}), "`steps` has no meaning with `kind: parallel`"),
            (json!({"kind": "sequential", "steps": []}), "`pipeline.steps`: expected at least one step"),
            (
                json!({"kind": "sequential", "steps": [{"agent": {"kind": "llm"}}]}),
                "`steps[0]`: expected `ref`, or `agent`",
            ),
            (json!({"kind": "sequential", "steps": [{"ref": "a", "retries": 2}]}), "`steps[0].retries`: unknown key"),
            (
                json!({"kind": "sequential", "steps": [{"agent": {"id": "x", "kind": "image"}}]}),
                "`pipeline.steps[0].agent`: `kind`: expected",
            ),
            (json!({"kind": "tool"}), "`tool`: expected a map"),
            (
                json!({"kind": "tool", "tool": {"kind": "local", "name": "x"}, "params": {"n": 1}}),
                "`params`: belongs into `tool`",
            ),
            (json!({"kind": "tool", "tool": {"kind": "callback", "name": "x"}}), "is for models"),
            (json!({"kind": "tool", "tool": {"kind": "shell"}}), "`tool.kind`: expected `mcp`, `http` or `local`"),
            (
                json!({"kind": "tool", "tool": {"kind": "local", "name": "x", "params": {"k": "{{secrets.K}}"}}}),
                "`pipeline.params.k`: `secrets`: credentials are no values",
            ),
            (
                json!({"kind": "tool", "tool": {"kind": "http", "name": "x", "url": "https://h/", "body": {}}}),
                "`tools[0].body`: ",
            ),
        ] {
            let error = config(&given).unwrap_err();
            assert!(error.contains(expected), "{given}: {error}");
        }
    }
}
