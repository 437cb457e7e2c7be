//! Idealic's tools: what a call carries beside its arguments stands in their schema, as a property with `_`.

use super::config_map::{ConfigMap, invalid};
use crate::decode::DataError;
use crate::scope::{INSTANCE, SCOPES, Scopes};
use serde_json::{Map, Value};

/// Properties whose constant is a key of the entry.
const CONSTANTS: [(&str, &str); 4] =
    [("_tool", "name"), ("_delegate", "delegate"), ("_activity", "operation"), ("_outputPath", "outputPath")];
/// Keys of a property that say nothing of what it may be.
const ANNOTATIONS: [&str; 4] = ["title", "description", "default", "$comment"];

/// Keys of a tool that is a JSON Schema itself; its description stays the tool's.
const SCHEMA_KEYS: [&str; 7] = ["$schema", "$defs", "type", "title", "properties", "required", "additionalProperties"];

/// Puts the reserved properties of each tool's own `input` into the entry: keys of a call that begin with `_` are no
/// arguments, so that in the schema they would do nothing.
pub(super) fn take_reserved(config: &mut ConfigMap) -> Result<(), DataError> {
    let Some(Value::Array(tools)) = config.get_mut("tools") else { return Ok(()) };
    for (at, tool) in tools.iter_mut().enumerate() {
        if let Value::Object(entry) = tool {
            wrap_schema(entry);
            take(at, entry)?;
        }
    }
    Ok(())
}

/// Moves the schema of a tool that is one itself, `{type: object, properties}`, into its `input`.
fn wrap_schema(entry: &mut Map<String, Value>) {
    if entry.contains_key("properties") && !entry.contains_key("input") {
        let schema: ConfigMap = SCHEMA_KEYS.iter().filter_map(|key| entry.shift_remove_entry(*key)).collect();
        entry.insert("input".to_owned(), Value::Object(schema));
    }
}

fn take(at: usize, entry: &mut Map<String, Value>) -> Result<(), DataError> {
    let Some(Value::Object(schema)) = entry.get_mut("input") else { return Ok(()) };
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return Ok(()) };
    let names: Vec<String> = properties.keys().filter(|name| name.starts_with('_')).cloned().collect();
    let taken: Vec<_> = names.iter().filter_map(|name| properties.shift_remove_entry(name)).collect();
    if taken.is_empty() {
        return Ok(());
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !name.as_str().is_some_and(|name| name.starts_with('_')));
        if required.is_empty() {
            schema.shift_remove("required");
        }
    }
    for (name, property) in taken {
        take_property(entry, &name, property)
            .map_err(|why| DataError::from(format!("`tools[{at}].input.properties.{name}`: {why}")))?;
    }
    Ok(())
}

fn take_property(entry: &mut Map<String, Value>, name: &str, mut property: Value) -> Result<(), DataError> {
    if let Value::Object(map) = &mut property {
        map.retain(|key, _| !ANNOTATIONS.contains(&key.as_str()));
    }
    if name == SCOPES {
        let read = |given: &Value| Scopes::try_from(given.clone());
        let scopes = read(&property).map_err(|error| error.to_string())?;
        return put(entry, ["scopes", SCOPES], property, |known| read(known).is_ok_and(|known| known == scopes));
    }
    if name == INSTANCE {
        let is_open = property.as_object().is_none_or(|map| map.keys().all(|key| key == "type"));
        let why = "the model names one of the turn's instances, which it is shown; leave this out";
        return if is_open { Ok(()) } else { invalid(why) };
    }
    if name == "_output" {
        return invalid("the arguments of a tool without an operation are its result: write this without the `_`");
    }
    let Some((_, key)) = CONSTANTS.iter().find(|(property, _)| *property == name) else {
        return invalid("keys of a call that begin with `_` are the venue's: no call has an argument of this name");
    };
    match property.as_object().and_then(|map| map.get("const")) {
        Some(Value::String(text)) => {
            let value = Value::from(text.as_str());
            put(entry, [key, name], value.clone(), |known| *known == value)
        }
        _ => invalid(format!("expected `{{const: text}}`, or `{key}` beside `input`")),
    }
}

/// Puts a value under the first of the spellings of a key, unless the entry says the same already under any.
fn put(
    entry: &mut Map<String, Value>,
    spellings: [&str; 2],
    value: Value,
    is_same: impl Fn(&Value) -> bool,
) -> Result<(), DataError> {
    match spellings.iter().find_map(|key| entry.get(*key)) {
        Some(known) if is_same(known) => Ok(()),
        Some(_) => invalid(format!("`{}` says another, leave one out", spellings[0])),
        None => {
            entry.insert(spellings[0].to_owned(), value);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{AgentConfig, ToolEntry};
    use serde_json::json;

    fn read(tool: &Value) -> Result<Value, String> {
        let mut config = json!({"tools": ["v/ops/json/merge", tool]}).as_object().unwrap().clone();
        take_reserved(&mut config).map_err(|error| error.to_string())?;
        Ok(config["tools"][1].clone())
    }

    fn schema(reserved: &Value, required: &Value) -> Value {
        let mut properties = json!({"q": {"type": "string"}});
        properties.as_object_mut().unwrap().extend(reserved.as_object().unwrap().clone());
        json!({"type": "object", "properties": properties, "required": required})
    }

    #[test]
    fn a_reserved_property_is_what_the_entry_says() {
        let provisioned = json!({"const": ["state"]});
        let requested = json!({"type": "array", "items": {"enum": ["state", "input"]}});
        let plain = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
        for (reserved, entry, expected) in [
            (json!({"_scopes": provisioned}), json!({}), json!({"scopes": provisioned})),
            (json!({"_scopes": requested}), json!({}), json!({"scopes": requested})),
            (
                json!({"_scopes": {"const": ["state"], "description": "d", "title": "t"}}),
                json!({}),
                json!({"scopes": provisioned}),
            ),
            (json!({"_scopes": provisioned}), json!({"_scopes": provisioned}), json!({"_scopes": provisioned})),
            (json!({"_scopes": requested}), json!({"scopes": requested}), json!({"scopes": requested})),
            (
                json!({"_scopes": requested}),
                json!({"scopes": {"enum": ["state", "input"]}}),
                json!({"scopes": {"enum": ["state", "input"]}}),
            ),
            (json!({"_instance": {"type": "string", "description": "which"}}), json!({}), json!({})),
            (
                json!({"_tool": {"const": "sum"}, "_delegate": {"const": "Summarizer"}, "_outputPath": {"const": "w/sum"}}),
                json!({}),
                json!({"name": "sum", "delegate": "Summarizer", "outputPath": "w/sum"}),
            ),
            (json!({"_delegate": {"const": "S"}}), json!({"_delegate": "S"}), json!({"_delegate": "S"})),
        ] {
            let names: Vec<&String> = reserved.as_object().unwrap().keys().collect();
            let mut required = json!(["q"]);
            required.as_array_mut().unwrap().extend(names.into_iter().map(|name| json!(name)));
            let mut given = entry.clone();
            given["input"] = schema(&reserved, &required);
            let mut expected = expected.clone();
            expected["input"] = plain.clone();
            assert_eq!(read(&given), Ok(expected.clone()), "{given}");
            assert_eq!(read(&expected), Ok(expected), "what was mapped stays");
        }
        let alone =
            json!({"input": {"type": "object", "properties": {"_scopes": provisioned}, "required": ["_scopes"]}});
        let expected = json!({"input": {"type": "object", "properties": {}}, "scopes": provisioned});
        assert_eq!(read(&alone), Ok(expected));
    }

    #[test]
    fn a_tool_that_is_a_schema_is_an_entry() {
        let mood = json!({
            "type": "object", "title": "Mood", "description": "Finds the mood.", "required": ["_tool", "text"],
            "properties": {"_tool": {"type": "string", "const": "mood"}, "text": {"type": "string"}},
        });
        let expected = json!({
            "description": "Finds the mood.", "name": "mood",
            "input": {"type": "object", "title": "Mood", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        });
        assert_eq!(read(&mood), Ok(expected));
        let beside = json!({"_tool": "sum", "_delegate": "Summarizer", "_scopes": {"const": ["state"]}});
        let model = json!({"provider": "scripted", "name": "echo"});
        let config = AgentConfig::parse(&json!({"model": model, "tools": [mood, beside]})).unwrap();
        let names: Vec<String> = config.tools.iter().map(ToolEntry::tool_name).collect();
        assert_eq!(names, ["mood", "sum"]);
    }

    #[test]
    fn what_stays_unsaid_is_refused_by_its_place() {
        for (reserved, entry, part) in [
            (
                json!({"_scopes": {"const": ["state"]}}),
                json!({"scopes": {"const": ["input"]}}),
                "`tools[1].input.properties._scopes`: `scopes` says another, leave one out",
            ),
            (json!({"_scopes": {"const": "state"}}), json!({}), "`tools[1].input.properties._scopes`: `scopes.const`"),
            (json!({"_scopes": {"const": ["state"], "minItems": 1}}), json!({}), "unknown key `minItems`"),
            (json!({"_scopes": {"type": "array"}}), json!({}), "expected one of `const` and `enum`"),
            (
                json!({"_instance": {"const": "①"}}),
                json!({}),
                "`tools[1].input.properties._instance`: the model names one of the turn's instances",
            ),
            (json!({"_delegate": {"type": "string"}}), json!({}), "`tools[1].input.properties._delegate`: expected"),
            (json!({"_delegate": {"const": "a"}}), json!({"delegate": "b"}), "`delegate` says another"),
            (
                json!({"_output": {"type": "string"}}),
                json!({}),
                "`tools[1].input.properties._output`: the arguments of a tool without an operation are its result",
            ),
            (json!({"_q": {"type": "string"}}), json!({}), "no call has an argument of this name"),
        ] {
            let mut given = entry.clone();
            given["input"] = schema(&reserved, &json!(["q"]));
            let error = read(&given).unwrap_err();
            assert!(error.contains(part), "{given}: {error}");
        }
        for same in [json!({"input": 1}), json!({"input": {"properties": []}}), json!(1), json!({"delegate": "x"})] {
            assert_eq!(read(&same), Ok(same));
        }
    }

    #[test]
    fn an_agent_keeps_what_was_mapped() {
        let input = schema(&json!({"_scopes": {"const": ["state"]}}), &json!(["q", "_scopes"]));
        let tool = json!({"_delegate": "SummarizerAgent", "name": "inschema", "input": input});
        let config = AgentConfig::parse(&json!({"model": "scripted/echo", "tools": [tool]})).unwrap();
        let ToolEntry::Named(tool) = &config.tools[0] else { panic!("expected options") };
        assert_eq!(json!(tool.scopes), json!({"const": ["state"]}));
        assert_eq!(tool.input, Some(schema(&json!({}), &json!(["q"]))));
    }
}
