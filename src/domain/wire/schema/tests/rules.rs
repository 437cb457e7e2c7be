//! What the providers refuse, rule by rule from public error texts (the reports are named).

use super::super::keys::is_legal;
use crate::wire::dialect::SchemaSubset;
use serde_json::Value;

/// What is wrong with a schema that is sent.
pub fn wrong(schema: &Value, subset: SchemaSubset) -> Option<String> {
    if schema["type"] != "object" || !schema["properties"].is_object() {
        return Some("the top is no object with properties".to_owned());
    }
    let found = match subset {
        SchemaSubset::OpenAi | SchemaSubset::Anthropic => {
            let keys = ["oneOf", "anyOf", "allOf", "enum", "not", "const", "$ref", "if"];
            let at_top = keys.iter().find(|key| schema.get(**key).is_some());
            at_top.map(|key| format!("`{key}` at the top")).or_else(|| plain_wrong(schema, "#", schema))
        }
        // A tool without arguments has no `parameters`.
        SchemaSubset::Gemini if schema["properties"] == serde_json::json!({}) => None,
        SchemaSubset::Gemini => gemini_wrong(schema, "#", 0),
    };
    let names = schema["properties"].as_object().into_iter().flatten();
    found.or_else(|| {
        names.map(|(name, _)| name).find(|name| !is_legal(name, subset)).map(|name| format!("key `{name}`"))
    })
}

fn has_type(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::Array(names) => names.iter().any(|one| one == name),
        one => one == name,
    }
}

/// `OpenAI`: docker/mcp-gateway #264 #289; Anthropic: `JSON schema is invalid. It must match JSON Schema draft 2020-12`;
/// Moonshot: `references must start with #/$defs/`, opencodex #2673, `GitNexus` #2703; Responses: can1357/oh-my-pi #920.
fn plain_wrong(schema: &Value, at: &str, root: &Value) -> Option<String> {
    let Value::Object(fields) = schema else {
        return (!schema.is_boolean()).then(|| format!("{at}: no schema"));
    };
    let mut bad = Vec::new();
    let mut rule = |is_broken: bool, text: &str| bad.extend(is_broken.then(|| format!("{at}: {text}")));
    if at == "#" {
        rule(!jsonschema::draft202012::meta::is_valid(schema), "no schema of 2020-12");
    }
    rule(has_type(schema, "array") && !fields.contains_key("items"), "array schema missing items");
    rule(fields.contains_key("oneOf"), "'oneOf' is not permitted");
    rule(fields.contains_key("definitions") || fields.contains_key("$id"), "`definitions` or `$id`");
    rule(fields.contains_key("anyOf") && fields.contains_key("type"), "`type` beside `anyOf`");
    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
        let name = reference.strip_prefix("#/$defs/");
        rule(name.is_none_or(|name| root["$defs"].get(name).is_none()), "`$ref` leads to nothing");
        rule(fields.keys().any(|key| key != "$ref" && key != "description"), "keywords beside `$ref`");
    }
    for key in ["properties", "$defs", "patternProperties"] {
        let inner = fields.get(key).and_then(Value::as_object).into_iter().flatten();
        bad.extend(inner.filter_map(|(name, inner)| plain_wrong(inner, &format!("{at}/{key}/{name}"), root)));
    }
    for key in ["items", "additionalProperties", "contains", "propertyNames", "not"] {
        bad.extend(fields.get(key).and_then(|inner| plain_wrong(inner, &format!("{at}/{key}"), root)));
    }
    for key in ["anyOf", "allOf", "prefixItems"] {
        let inner = fields.get(key).and_then(Value::as_array).into_iter().flatten();
        bad.extend(inner.filter_map(|inner| plain_wrong(inner, &format!("{at}/{key}"), root)));
    }
    bad.into_iter().next()
}

const GEMINI_FIELDS: [&str; 22] = [
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

/// cline #7339, opencode #11889 #43495, agno #2112, probe #569, 9router #359, azure-devops-mcp #145, gemini-cli #3178,
/// Portkey-AI/gateway #1616, google/adk-go #1085.
fn gemini_wrong(schema: &Value, at: &str, levels: usize) -> Option<String> {
    let Value::Object(fields) = schema else { return Some(format!("{at}: no schema")) };
    let mut bad = Vec::new();
    let mut rule = |is_broken: bool, text: &str| bad.extend(is_broken.then(|| format!("{at}: {text}")));
    let unknown = fields.keys().find(|key| !GEMINI_FIELDS.contains(&key.as_str()));
    rule(unknown.is_some(), &format!("Unknown name {unknown:?}"));
    let kind = schema["type"].as_str().unwrap_or_default();
    let is_union = fields.contains_key("anyOf");
    let kinds = ["string", "number", "integer", "boolean", "array", "object"];
    rule(!is_union && !kinds.contains(&kind), "didn't specify the schema type field");
    rule(is_union && fields.len() > 1, "specified other fields alongside any_of");
    rule(is_union && schema["anyOf"].as_array().is_none_or(|list| list.len() < 2), "any_of of one");
    rule(kind == "array" && !fields.contains_key("items"), "items: missing field");
    rule(kind != "array" && ["items", "minItems"].iter().any(|key| fields.contains_key(*key)), "only for ARRAY");
    let properties = fields.get("properties").and_then(Value::as_object);
    let is_map = kind == "object";
    rule(!is_map && ["properties", "required"].iter().any(|key| fields.contains_key(*key)), "only allowed for OBJECT");
    rule(is_map && properties.is_none_or(serde_json::Map::is_empty), "should be non-empty for OBJECT type");
    let required = fields.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_defined = |name: &Value| schema["properties"].get(name.as_str().unwrap_or_default()).is_some();
    rule(required.iter().any(|name| !is_defined(name)), "required: property is not defined");
    if let Some(choices) = fields.get("enum") {
        let texts = choices.as_array().cloned().unwrap_or_default();
        let is_text = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
        rule(kind != "string" || texts.is_empty() || !texts.iter().all(is_text), "enum");
    }
    rule(fields.get("format").is_some_and(|format| kind != "string" || format != "date-time"), "format");
    let levels = levels + usize::from(kind == "object" || kind == "array");
    rule(levels > 4, "exceeds the maximum allowed nesting depth");
    for (name, inner) in properties.into_iter().flatten() {
        let is_named = is_legal(name, SchemaSubset::Gemini);
        let below = gemini_wrong(inner, &format!("{at}/{name}"), levels);
        bad.extend(if is_named { below } else { Some(format!("{at}: key `{name}`")) });
    }
    bad.extend(fields.get("items").and_then(|inner| gemini_wrong(inner, &format!("{at}/items"), levels)));
    let branches = fields.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    bad.extend(branches.filter_map(|inner| gemini_wrong(inner, &format!("{at}/anyOf"), levels)));
    bad.into_iter().next()
}
