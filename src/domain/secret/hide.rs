//! Hidden arguments, which may be used and never shown: fields whose schema says `"writeOnly": true`.

use crate::chat::ToolSpec;
use crate::lines;
use serde_json::Value;

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
    for (key, value) in map {
        // A misspelt name may hold the value of the right one.
        let open = schema["properties"].get(key).is_some_and(|property| !has_hidden(property));
        if !open {
            *value = HIDDEN.into();
        }
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
        let mut plain = json!({"value": "x"});
        hide(&json!({"properties": {"value": {}}}), &mut plain);
        assert_eq!(plain, json!({"value": "x"}));
    }
}
