//! The part of JSON Schema that `OpenAI` takes: for functions, and the smaller one of `strict: true`.

use super::{Verdict, ensure, list, members, text};
use serde_json::Value;

/// Keywords that strict schemas may not have (`OpenAI`'s guide "Structured model outputs"; the text: can1357/oh-my-pi
/// #920, openai/openai-agents-python #1884, dotnet/extensions #6266).
const NOT_STRICT: [&str; 15] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "default",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "minProperties",
    "maxProperties",
    "uniqueItems",
];

/// The schema of a function's parameters. `None` is a function without parameters.
pub fn check_parameters(function: &str, schema: Option<&Value>, is_strict: bool) -> Verdict {
    let Some(schema) = schema.filter(|schema| !schema.is_null()) else { return Ok(()) };
    let verdict = check_top(schema).and_then(|()| check_node(schema, &mut Vec::new()));
    let verdict = verdict.and_then(|()| if is_strict { check_strict(schema, &mut Vec::new()) } else { Ok(()) });
    verdict.map_err(|reason| format!("Invalid schema for function '{function}': {reason}"))
}

/// A schema of a reply (`response_format`, `text.format`).
pub fn check_format(name: &str, schema: &Value, is_strict: bool) -> Verdict {
    if !is_strict {
        return Ok(());
    }
    // agentscope-ai/agentscope-java #2548, lfnovo/esperanto #273.
    let verdict = check_top(schema).and_then(|()| check_strict(schema, &mut Vec::new()));
    verdict.map_err(|reason| format!("Invalid schema for response_format '{name}': {reason}"))
}

/// Rules of the outermost schema.
fn check_top(schema: &Value) -> Verdict {
    // opencode #650, docker/mcp-gateway #264.
    ensure(text(schema, "type") == "object", || {
        let found = schema.get("type").map_or_else(|| "None".to_owned(), |kind| kind.to_string().replace('"', ""));
        format!("schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'.")
    })?;
    // charmbracelet/fantasy #138, Lingtai-AI/lingtai-kernel #113.
    ensure(["oneOf", "anyOf", "allOf", "enum", "not"].iter().all(|key| schema.get(*key).is_none()), || {
        "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.".to_owned()
    })?;
    // spring-projects/spring-ai #4776, github/copilot-cli #2223.
    ensure(schema.get("properties").is_some_and(Value::is_object), || {
        "In context=(), object schema missing properties.".to_owned()
    })
}

fn context(at: &[String]) -> String {
    let parts: Vec<String> = at.iter().map(|part| format!("'{part}'")).collect();
    match parts.as_slice() {
        [one] => format!("({one},)"),
        parts => format!("({})", parts.join(", ")),
    }
}

fn has_type(schema: &Value, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|kind| kind == name),
        Some(kind) => kind == name,
        None => false,
    }
}

/// Every schema below one, with its place.
pub fn children(schema: &Value) -> Vec<(Vec<String>, &Value)> {
    let mut found = Vec::new();
    for key in ["properties", "$defs", "definitions", "patternProperties"] {
        found.extend(members(schema, key).map(|(name, inner)| (vec![key.to_owned(), name.clone()], inner)));
    }
    for key in ["items", "additionalProperties", "not", "if", "then", "else"] {
        found.extend(schema.get(key).filter(|inner| inner.is_object()).map(|inner| (vec![key.to_owned()], inner)));
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        let inner = list(schema, key).iter().enumerate();
        found.extend(inner.map(|(at, inner)| (vec![key.to_owned(), at.to_string()], inner)));
    }
    found
}

fn check_node(schema: &Value, at: &mut Vec<String>) -> Verdict {
    // docker/mcp-gateway #264 #289; a list of types too.
    ensure(!has_type(schema, "array") || schema.get("items").is_some(), || {
        format!("In context={}, array schema missing items.", context(at))
    })?;
    descend(schema, at, check_node)
}

fn descend(schema: &Value, at: &mut Vec<String>, check: fn(&Value, &mut Vec<String>) -> Verdict) -> Verdict {
    for (place, inner) in children(schema) {
        let depth = at.len();
        at.extend(place);
        check(inner, at)?;
        at.truncate(depth);
    }
    Ok(())
}

/// The API of Responses takes no `oneOf` at all, unless a function is `strict: false`: can1357/oh-my-pi #920.
pub fn check_no_one_of(function: &str, schema: &Value) -> Verdict {
    fn check(schema: &Value, at: &mut Vec<String>) -> Verdict {
        ensure(schema.get("oneOf").is_none(), || format!("In context={}, 'oneOf' is not permitted.", context(at)))?;
        descend(schema, at, check)
    }
    check(schema, &mut Vec::new()).map_err(|reason| format!("Invalid schema for function '{function}': {reason}"))
}

fn check_strict(schema: &Value, at: &mut Vec<String>) -> Verdict {
    if let Some(key) = NOT_STRICT.iter().find(|key| schema.get(**key).is_some()) {
        return Err(format!("In context={}, '{key}' is not permitted.", context(at)));
    }
    if has_type(schema, "object") {
        // langchain-ai/langchain #25169, google/adk-go #1178.
        ensure(schema.get("additionalProperties") == Some(&Value::Bool(false)), || {
            format!("In context={}, 'additionalProperties' is required to be supplied and to be false.", context(at))
        })?;
        let missing = members(schema, "properties")
            .find(|(name, _)| !list(schema, "required").iter().any(|key| key == name.as_str()));
        if let Some((name, _)) = missing {
            return Err(format!(
                "In context={}, 'required' is required to be supplied and to be an array including every key in properties. Missing '{name}'.",
                context(at)
            ));
        }
    }
    let says_what = ["type", "anyOf", "$ref", "enum", "const"].iter().any(|key| schema.get(*key).is_some());
    ensure(says_what, || format!("In context={}, schema must have a 'type' key.", context(at)))?;
    check_node(schema, &mut at.clone())?;
    descend(schema, at, check_strict)
}
