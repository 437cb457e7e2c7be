//! Schemas in the form that client generators can read.
//!
//! Where JSON Schema has several ways to express a rule, `openapi-python-client`, `openapi-typescript` and Spectral
//! understand only one; `tests/it/api/generated_clients.rs` runs them.

use serde_json::{Map, Value, json};

/// Largest number that is accepted.
pub(in crate::http) const LARGEST_NUMBER: u64 = u64::MAX;

/// Rewrites a schema and all schemas inside it, without changing what is valid.
pub(super) fn make_portable(schema: &mut Value) {
    if let Value::Bool(fits) = schema {
        *schema = if *fits { json!({}) } else { json!({"not": {}}) };
    }
    let Value::Object(map) = schema else { return };
    if let Some(Value::String(about)) = map.get_mut("description") {
        // Line breaks of a comment aren't those of a description.
        *about = about.replace('\n', " ");
    }
    bound_number(map);
    drop_empty_default(map);
    join_constants(map);
    if is_array(map) {
        map.entry("items").or_insert_with(|| json!({}));
    }
    for (key, value) in map {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(schemas)) => {
                schemas.values_mut().for_each(make_portable);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(make_portable);
            }
            // A boolean says whether there may be others; generators understand it.
            ("additionalProperties" | "unevaluatedProperties", Value::Bool(_)) => {}
            (
                "items"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "contains"
                | "not"
                | "if"
                | "then"
                | "else",
                schema,
            ) => make_portable(schema),
            _ => {}
        }
    }
}

/// Replaces formats of Rust's numbers by limits: clients don't know `uint64`.
fn bound_number(map: &mut Map<String, Value>) {
    let most = match map.get("format").and_then(Value::as_str) {
        Some("uint8") => u64::from(u8::MAX),
        Some("uint16") => u64::from(u16::MAX),
        Some("uint32") => u64::from(u32::MAX),
        Some("uint64" | "uint") => LARGEST_NUMBER,
        _ => return,
    };
    map.shift_remove("format");
    map.entry("maximum").or_insert(most.into());
}

/// Removes an empty default, which means absence; its type often differs from the schema's.
fn drop_empty_default(map: &mut Map<String, Value>) {
    let is_empty = match map.get("default") {
        Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(entries)) => entries.is_empty(),
        _ => false,
    };
    if is_empty {
        map.shift_remove("default");
    }
}

/// Replaces a choice of constant texts by an `enum`, of which clients make one type.
fn join_constants(map: &mut Map<String, Value>) {
    for key in ["oneOf", "anyOf"] {
        let Some((texts, about)) = map.get(key).and_then(Value::as_array).and_then(|options| constant_texts(options))
        else {
            continue;
        };
        map.shift_remove(key);
        map.insert("type".to_owned(), "string".into());
        map.insert("enum".to_owned(), texts.into());
        let own = map.get("description").and_then(Value::as_str).map(str::to_owned);
        let about: Vec<String> = own.into_iter().chain(about).collect();
        if !about.is_empty() {
            map.insert("description".to_owned(), about.join(" ").into());
        }
    }
}

/// Returns all texts that these schemas allow, and their descriptions; `None` where one allows something else.
fn constant_texts(options: &[Value]) -> Option<(Vec<Value>, Vec<String>)> {
    let texts: Vec<Vec<Value>> = options.iter().map(texts_of).collect::<Option<_>>()?;
    let about = options.iter().zip(&texts).filter_map(|(option, texts)| {
        let about = option["description"].as_str()?.replace('\n', " ");
        Some(format!("`{}`: {about}", texts.first()?.as_str()?))
    });
    let about = about.collect();
    (!texts.is_empty()).then(|| (texts.concat(), about))
}

/// Returns the texts of a schema that allows only texts.
fn texts_of(schema: &Value) -> Option<Vec<Value>> {
    let allowed = schema["const"].as_str().map(|text| vec![text.into()]);
    let allowed = allowed.or_else(|| schema["enum"].as_array().cloned())?;
    allowed.iter().all(Value::is_string).then_some(allowed)
}

/// Whether arrays are valid, perhaps among other types.
fn is_array(map: &Map<String, Value>) -> bool {
    match map.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.contains(&json!("array")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut schema: Value, expected: &Value) {
        make_portable(&mut schema);
        assert_eq!(&schema, expected);
    }

    #[test]
    fn schemas_use_keywords_that_clients_understand() {
        for (schema, expected) in [
            (json!(true), json!({})),
            (json!({"properties": {"x": true}}), json!({"properties": {"x": {}}})),
            (json!({"additionalProperties": true}), json!({"additionalProperties": true})),
            (json!({"type": "array"}), json!({"type": "array", "items": {}})),
            (json!({"type": ["array", "null"]}), json!({"type": ["array", "null"], "items": {}})),
            (json!({"type": "string", "default": null}), json!({"type": "string"})),
            (json!({"default": {}}), json!({})),
            (json!({"default": 8}), json!({"default": 8})),
            (json!({"format": "uint8"}), json!({"maximum": 255})),
            (json!({"anyOf": [{"oneOf": [{"const": "a"}]}]}), json!({"anyOf": [{"type": "string", "enum": ["a"]}]})),
            (
                json!({"oneOf": [{"type": "string", "const": "a", "description": "One."}, {"enum": ["b", "c"]}]}),
                json!({"type": "string", "enum": ["a", "b", "c"], "description": "`a`: One."}),
            ),
            (json!({"oneOf": [{"const": 1}]}), json!({"oneOf": [{"const": 1}]})),
            (
                json!({"properties": {"default": {"type": "array"}}}),
                json!({"properties": {"default": {"type": "array", "items": {}}}}),
            ),
        ] {
            check(schema, &expected);
        }
    }
}
