//! JSON Schemas of arguments as models are shown them: without references, and without null for an optional argument.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// Key of an extension which says that an argument may be null.
const NULLABLE: &str = "nullable";

/// Returns the description of a type from its doc comments, and the schema of its fields.
pub(super) fn describe_type<T: JsonSchema>() -> (String, Value) {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let mut about = String::new();
    if let Some(map) = schema.as_object_mut() {
        map.shift_remove("title");
        if let Some(Value::String(text)) = map.shift_remove("description") {
            about = text.replace('\n', " ");
        }
        // A schema that accepts any map has the key already.
        if map.get("additionalProperties").is_none() {
            map.entry("properties").or_insert_with(|| json!({}));
            map.insert("additionalProperties".into(), false.into());
        }
    }
    simplify(&mut schema);
    (about, schema)
}

/// Removes what only serde and Rust need.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(about)) = map.get_mut("description") {
                *about = about.replace('\n', " ");
            }
            for key in ["items", "additionalProperties"] {
                if map.get(key) == Some(&Value::Bool(true)) {
                    map.shift_remove(key);
                }
            }
            // Formats of Rust's number types.
            if map.get("format").and_then(Value::as_str).is_some_and(|name| name.contains("int") || name == "double") {
                map.shift_remove("format");
            }
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                properties.values_mut().for_each(simplify_argument);
            }
            map.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Reduces the schema of an argument to that of a present value: an optional one is not null, unless it says so.
fn simplify_argument(argument: &mut Value) {
    if *argument == Value::Bool(true) {
        *argument = json!({});
    }
    let Some(map) = argument.as_object_mut() else { return };
    map.shift_remove("default");
    if map.shift_remove(NULLABLE).is_some() {
        return;
    }
    for key in ["type", "enum", "anyOf"] {
        let Some(Value::Array(forms)) = map.get_mut(key) else { continue };
        forms.retain(|form| !form.is_null() && form != "null" && *form != json!({"type": "null"}));
        if let ("type" | "anyOf", [one]) = (key, forms.as_slice()) {
            match one.clone() {
                Value::Object(one) => {
                    map.shift_remove(key);
                    for (key, value) in one {
                        map.entry(key).or_insert(value);
                    }
                }
                one => drop(map.insert(key.to_owned(), one)),
            }
        }
    }
    if let Some(choices) = map.get("oneOf").and_then(enum_names) {
        map.shift_remove("oneOf");
        map.insert("type".into(), "string".into());
        map.insert("enum".into(), choices.into());
    }
}

/// Returns the names of an enum, whose variants may have doc comments.
fn enum_names(forms: &Value) -> Option<Vec<Value>> {
    let names = |form: &Value| match (&form["const"], &form["enum"]) {
        (name @ Value::String(_), _) => Some(vec![name.clone()]),
        (_, Value::Array(names)) => Some(names.clone()),
        _ => None,
    };
    Some(forms.as_array()?.iter().map(names).collect::<Option<Vec<_>>>()?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    enum Colour {
        /// As grass.
        #[serde(rename = "green")]
        Green,
        #[serde(rename = "red")]
        Red,
    }

    /// Paints
    /// a thing.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Paint {
        /// What it is
        /// about.
        subject: String,
        #[schemars(range(max = 9))]
        most_of: Option<u32>,
        any: Option<Value>,
        all: Vec<Value>,
        #[serde(default)]
        is_so: bool,
        /// One.
        colour: Option<Colour>,
        other: Colour,
        #[schemars(extend("nullable" = true))]
        limit: Option<i64>,
        list: Option<Vec<Option<u8>>>,
    }

    #[test]
    fn models_are_shown_a_plain_schema() {
        let expected = json!({
            "type": "object",
            "properties": {
                "subject": {"type": "string", "description": "What it is about."},
                "mostOf": {"type": "integer", "minimum": 0, "maximum": 9},
                "any": {}, "all": {"type": "array"}, "isSo": {"type": "boolean"},
                "colour": {"type": "string", "enum": ["red", "green"], "description": "One."},
                "other": {"type": "string", "enum": ["red", "green"]},
                "limit": {"type": ["integer", "null"]},
                "list": {"type": "array", "items": {"type": ["integer", "null"], "minimum": 0, "maximum": 255}}
            },
            "required": ["subject", "all", "other"],
            "additionalProperties": false,
        });
        assert_eq!(describe_type::<Paint>(), ("Paints a thing.".to_owned(), expected));
        let any = describe_type::<serde_json::Map<String, Value>>();
        assert_eq!(any, (String::new(), json!({"type": "object"})));
    }
}
