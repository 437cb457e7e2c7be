//! The message `Schema` of Gemini, which is a small part of JSON Schema.

use super::{Verdict, ensure, list, members, text};
use serde_json::Value;

/// The fields that the message has (`ai.google.dev/api/caching#Schema`); others: 5ire #42, zed-industries/zed #44875,
/// `router-for-me/CLIProxyAPI` #97.
const FIELDS: [&str; 22] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "items",
    "minimum",
    "maximum",
];

const TYPES: [&str; 6] = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"];

/// A schema and all below it.
pub fn check(schema: &Value, place: &str) -> Verdict {
    let Some(fields) = schema.as_object() else {
        return Err(format!(
            "Invalid value at '{place}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Schema)"
        ));
    };
    if let Some(name) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(format!("Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."));
    }
    // taylorwilsdon/google_workspace_mcp #1099, langchainjs #11328.
    ensure(!schema.get("type").is_some_and(Value::is_array), || {
        format!("Invalid value at '{place}.type': Proto field is not repeating, cannot start list.")
    })?;
    let kind = text(schema, "type").to_uppercase();
    let is_union = schema.get("anyOf").is_some();
    ensure(TYPES.contains(&kind.as_str()) || (kind.is_empty() && is_union), || {
        format!("* {place}.type: must be specified, one of {} (got `{kind}`)", TYPES.join(", "))
    })?;
    check_object(schema, &kind, place)?;
    check_string(schema, &kind, place)?;
    // cline/cline #7339.
    ensure(kind != "ARRAY" || schema.get("items").is_some(), || format!("* {place}.items: missing field."))?;
    // anomalyco/opencode #43495.
    ensure(kind == "ARRAY" || schema.get("items").is_none(), || {
        format!("* {place}.items: only allowed for ARRAY type")
    })?;
    if let Some(items) = schema.get("items") {
        check(items, &format!("{place}.items"))?;
    }
    let choices = list(schema, "anyOf").iter().enumerate();
    for (at, choice) in choices {
        check(choice, &format!("{place}.any_of[{at}]"))?;
    }
    members(schema, "properties").try_for_each(|(name, inner)| check(inner, &format!("{place}.properties[{name}]")))
}

fn check_object(schema: &Value, kind: &str, place: &str) -> Verdict {
    // anomalyco/opencode #11889.
    for key in ["properties", "required"] {
        ensure(kind == "OBJECT" || schema.get(key).is_none(), || {
            format!("* {place}.{key}: only allowed for OBJECT type")
        })?;
    }
    // browser-use #7, AstrBot #288, lobehub #5002.
    ensure(kind != "OBJECT" || members(schema, "properties").next().is_some(), || {
        format!("* {place}.properties: should be non-empty for OBJECT type")
    })?;
    // iBUHub/AIStudioToAPI #154, znlsl/Antigravity2Api #22.
    let undefined = list(schema, "required").iter().position(|name| {
        let name = name.as_str().unwrap_or_default();
        members(schema, "properties").all(|(property, _)| property != name)
    });
    match undefined {
        Some(at) => Err(format!("* {place}.required[{at}]: property is not defined")),
        None => Ok(()),
    }
}

fn check_string(schema: &Value, kind: &str, place: &str) -> Verdict {
    // hideya/langchain-mcp-tools-ts #36; formats of numbers: CherryHQ/cherry-studio #4153.
    let format = text(schema, "format");
    let (allowed, said): (&[&str], &str) = match kind {
        "STRING" => (&["", "enum", "date-time"], "only 'enum' and 'date-time' are supported for STRING type"),
        "NUMBER" => (&["", "float", "double"], "only 'float' and 'double' are supported for NUMBER type"),
        "INTEGER" => (&["", "int32", "int64"], "only 'int32' and 'int64' are supported for INTEGER type"),
        _ => (&[""], "not supported for this type"),
    };
    ensure(allowed.contains(&format), || format!("* {place}.format: {said}"))?;
    // elastic/kibana #286302.
    let Some(values) = schema.get("enum") else {
        return ensure(format != "enum", || {
            format!("* {place}.enum: should be non-empty for STRING type with enum format")
        });
    };
    // decolua/9router #359, diegosouzapw/OmniRoute #760.
    ensure(kind == "STRING", || format!("* {place}.enum: only allowed for STRING type"))?;
    let values = values.as_array().map_or(&[][..], Vec::as_slice);
    ensure(!values.is_empty(), || format!("* {place}.enum: should be non-empty for STRING type with enum format"))?;
    // microsoft/azure-devops-mcp #145, Draculabo/AntigravityManager #260.
    if let Some(at) = values.iter().position(|value| !value.is_string()) {
        return Err(format!("Invalid value at '{place}.enum[{at}]' (TYPE_STRING), {}", values[at]));
    }
    // A widely quoted text of the API.
    match values.iter().position(|value| value == "") {
        Some(at) => Err(format!("* {place}.enum[{at}]: cannot be empty")),
        None => Ok(()),
    }
}
