//! Describes the arguments of a tool in one line.

use serde_json::{Map, Value};

/// Returns the arguments of a schema in short: each with its type, `?` behind optional ones.
pub fn outline(schema: &Value) -> Value {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let of = |(name, property): (&String, &Value)| {
        let optional = if required.iter().any(|known| known == name) { "" } else { "?" };
        (format!("{name}{optional}"), Value::String(kind(property)))
    };
    Value::Object(properties.map(of).collect::<Map<_, _>>())
}

fn kind(property: &Value) -> String {
    match (&property["type"], &property["enum"]) {
        (Value::String(kind), _) => kind.clone(),
        (Value::Array(kinds), _) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        (_, Value::Array(values)) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_told_by_its_arguments() {
        let schema = json!({
            "type": "object", "required": ["path"],
            "properties": {
                "path": {"type": ["string", "array"]}, "value": {}, "level": {"enum": ["agent", 1]},
                "limit": {"type": "integer", "minimum": 1}
            }
        });
        let expected =
            json!({"path": "string or array", "value?": "any", "level?": "\"agent\" or 1", "limit?": "integer"});
        assert_eq!(outline(&schema), expected);
        assert_eq!(outline(&json!({"type": "object"})), json!({}));
    }
}
