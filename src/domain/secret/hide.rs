//! Hidden arguments, which may be used and never shown: fields whose schema says `"writeOnly": true`.

use crate::chat::ToolSpec;
use crate::lines;
use serde_json::Value;
use std::collections::BTreeSet;

/// Text that records hold in place of a hidden argument.
pub const HIDDEN: &str = lines::HIDDEN.text();

const MARK: &str = "writeOnly";

/// Whether a schema has a hidden field.
pub fn has_hidden(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.get(MARK) == Some(&Value::Bool(true)) || map.values().any(has_hidden),
        Value::Array(items) => items.iter().any(has_hidden),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Replaces the hidden arguments. A value that isn't a map of arguments is replaced whole, because its content is
/// unknown.
pub fn hide(schema: &Value, arguments: &mut Value) {
    if !has_hidden(schema) || arguments.is_null() {
        return;
    }
    let Value::Object(map) = arguments else {
        *arguments = HIDDEN.into();
        return;
    };
    let shown = shown_arguments(schema);
    for (key, value) in map {
        // A misspelt name may hold the value of the right one.
        if !shown.contains(key.as_str()) {
            *value = HIDDEN.into();
        }
    }
}

/// Whether a hidden argument has only the text that records hold in its place.
pub fn has_lost_value(schema: &Value, arguments: &Value) -> bool {
    if !has_hidden(schema) {
        return false;
    }
    let Value::Object(map) = arguments else { return *arguments == HIDDEN };
    let shown = shown_arguments(schema);
    map.iter().any(|(key, value)| *value == HIDDEN && !shown.contains(key.as_str()))
}

/// Returns the arguments that a schema names and that no mark can be meant for. A mark outside the schemas of the
/// arguments may be meant for each of them, and a reference may lead to one.
fn shown_arguments(schema: &Value) -> BTreeSet<&str> {
    let mut beside = schema.as_object().into_iter().flatten().filter(|(part, _)| *part != "properties");
    if beside.any(|(part, inner)| (part == MARK && *inner == true) || has_hidden(inner)) {
        return BTreeSet::new();
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let shown = properties.filter(|(_, property)| !has_hidden(property) && !has_reference(property));
    shown.map(|(name, _)| name.as_str()).collect()
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("$ref") || map.values().any(has_reference),
        Value::Array(items) => items.iter().any(has_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the shown part of arguments that can't be parsed: their beginning, unless they may hold a hidden one.
pub fn shown_malformed(text: &str, tool: Option<&ToolSpec>) -> String {
    let names_set = ["secret/set", "secret:set"].iter().any(|name| text.contains(name));
    if names_set || tool.is_some_and(|tool| has_hidden(&tool.schema)) {
        return HIDDEN.to_owned();
    }
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hidden_arguments_are_replaced_under_any_name_and_in_any_form() {
        let schema =
            json!({"properties": {"name": {"type": "string"}, "value": {"type": "string", "writeOnly": true}}});
        for (given, shown) in [
            (json!({"name": "A", "value": "x"}), json!({"name": "A", "value": HIDDEN})),
            (json!({"name": "A", "value": {"y": 1}}), json!({"name": "A", "value": HIDDEN})),
            (json!({"name": "A", "valu": "x"}), json!({"name": "A", "valu": HIDDEN})),
            (json!("x"), json!(HIDDEN)),
            (json!(["x"]), json!(HIDDEN)),
            (json!(null), json!(null)),
        ] {
            let mut arguments = given;
            hide(&schema, &mut arguments);
            assert_eq!(arguments, shown);
        }
        let reference = json!({"$ref": "#/$defs/key"});
        for (schema, shown) in [
            (json!({"properties": {"a": {}, "b": {}}, "$defs": {"key": {"writeOnly": true}}}), [false, false]),
            (
                json!({"properties": {"a": {}, "b": {}}, "allOf": [{"properties": {"b": {"writeOnly": true}}}]}),
                [false, false],
            ),
            (json!({"properties": {"a": {}, "b": reference, "c": {"writeOnly": true}}}), [true, false]),
            (json!({"properties": {"a": {}, "b": reference}}), [true, true]),
        ] {
            let mut arguments = json!({"a": "x", "b": "x"});
            hide(&schema, &mut arguments);
            assert_eq!([arguments["a"] == "x", arguments["b"] == "x"], shown, "{schema}");
            assert_eq!(has_lost_value(&schema, &arguments), shown != [true, true], "{schema}");
            assert!(!has_lost_value(&schema, &json!({"a": "x", "b": "x"})), "{schema}");
        }
        assert!(has_lost_value(&schema, &json!(HIDDEN)) && !has_lost_value(&schema, &json!({"name": HIDDEN})));
        let mut plain = json!({"value": "x"});
        hide(&json!({"properties": {"value": {}}}), &mut plain);
        assert_eq!(plain, json!({"value": "x"}));
    }
}
