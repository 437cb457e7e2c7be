//! Converts values to the types of a schema where the conversion is clear: `"5"` to 5, 5 to `"5"`, `"true"` to true.

use super::integer_from_float;
use crate::decode;
use serde_json::{Map, Number, Value};

/// Most references followed at one place of a value, because a schema may be circular.
const REFERENCES: usize = 16;

/// Returns the value with the types of the schema. A value that can't be converted stays as it is.
pub fn coerce(schema: &Value, value: Value) -> Value {
    coerce_place(schema, schema, value)
}

/// Converts one place of the value. Of alternatives the first of the value's own type counts, so each place is visited
/// once.
fn coerce_place(root: &Value, schema: &Value, value: Value) -> Value {
    let Some(schema) = follow_references(root, schema) else { return value };
    let alternatives = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array());
    let Some(alternatives) = alternatives else { return coerce_type(root, schema, value) };
    let schemas: Vec<&Value> = alternatives.iter().filter_map(|schema| follow_references(root, schema)).collect();
    let own = schemas.iter().find(|schema| types_of(schema).iter().any(|kind| has_type(kind, &value)));
    let Some(own) = own else {
        let kinds: Vec<&str> = schemas.iter().flat_map(|schema| types_of(schema)).collect();
        return coerce_scalar(&kinds, value);
    };
    coerce_type(root, own, value)
}

fn coerce_type(root: &Value, schema: &Value, value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let part = |key: &str| schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
            let entries = map.into_iter().map(|(key, value)| {
                let value = coerce_place(root, part(&key), value);
                (key, value)
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let first = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
            let item = |(index, item)| coerce_place(root, first.get(index).unwrap_or(&schema["items"]), item);
            items.into_iter().enumerate().map(item).collect()
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            coerce_scalar(&types_of(schema), plain)
        }
    }
}

/// Follows the references of a schema, which lead into the whole schema; `None` if one leads nowhere.
fn follow_references<'s>(root: &'s Value, schema: &'s Value) -> Option<&'s Value> {
    let mut schema = schema;
    for _ in 0..REFERENCES {
        let Some(place) = schema["$ref"].as_str() else { return Some(schema) };
        schema = root.pointer(place.strip_prefix('#')?)?;
    }
    None
}

/// Returns the types that a schema names.
fn types_of(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn has_type(kind: &str, value: &Value) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || (kind == "integer" && !number.is_f64()),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// Converts a scalar to the first type that fits; a scalar that has one of the types already stays.
fn coerce_scalar(kinds: &[&str], value: Value) -> Value {
    if kinds.iter().any(|kind| has_type(kind, &value)) {
        return value;
    }
    kinds.iter().find_map(|kind| convert(kind, &value)).unwrap_or(value)
}

fn convert(kind: &str, value: &Value) -> Option<Value> {
    match (kind, value) {
        ("integer", Value::String(text)) => number(text).and_then(|number| to_integer(&number)),
        ("integer", Value::Number(number)) => to_integer(number),
        ("number", Value::String(text)) => number(text).map(Value::Number),
        ("boolean", Value::String(text)) => text.trim().parse().ok().map(Value::Bool),
        ("null", Value::String(text)) if text.trim().is_empty() || text.trim() == "null" => Some(Value::Null),
        ("string", Value::Number(_) | Value::Bool(_)) => Some(value.to_string().into()),
        _ => None,
    }
}

/// Parses a number as JSON writes it.
fn number(text: &str) -> Option<Number> {
    match decode::lenient_json(text.trim().as_bytes()) {
        Ok(Value::Number(number)) => Some(number),
        Ok(_) | Err(_) => None,
    }
}

fn to_integer(number: &Number) -> Option<Value> {
    if !number.is_f64() {
        return Some(number.clone().into());
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    integer_from_float(float).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_gets_the_types_of_the_schema() {
        let of = |kind: &str| json!({"type": kind});
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        let tree =
            json!({"type": "object", "properties": {"n": {"type": "integer"}, "kids": {"items": {"$ref": "#"}}}});
        for (schema, given, expected) in [
            (of("integer"), json!("5"), json!(5)),
            (of("integer"), json!(" -7 "), json!(-7)),
            (of("integer"), json!("5.0"), json!(5)),
            (of("integer"), json!(5.0), json!(5)),
            (of("integer"), json!("5.5"), json!("5.5")),
            (of("integer"), json!("five"), json!("five")),
            (of("integer"), json!("1e400"), json!("1e400")),
            (of("number"), json!("5.5"), json!(5.5)),
            (of("number"), json!("NaN"), json!("NaN")),
            (of("boolean"), json!("true"), json!(true)),
            (of("boolean"), json!("yes"), json!("yes")),
            (of("boolean"), json!(1), json!(1)),
            (of("string"), json!(5), json!("5")),
            (of("string"), json!(true), json!("true")),
            (of("string"), json!([1]), json!([1])),
            (of("null"), json!("null"), json!(null)),
            (json!({"type": ["integer", "null"]}), json!("5"), json!(5)),
            (json!({"type": ["integer", "string"]}), json!("5"), json!("5")),
            (json!({"anyOf": [of("integer"), of("null")]}), json!("5"), json!(5)),
            (
                json!({"anyOf": [of("array"), {"type": "object", "properties": {"a": of("string")}}]}),
                json!({"a": 1}),
                json!({"a": "1"}),
            ),
            (
                json!({"properties": {"a": of("integer")}, "additionalProperties": of("string")}),
                json!({"a": "1", "b": 2}),
                json!({"a": 1, "b": "2"}),
            ),
            (json!({"prefixItems": [of("string")], "items": of("integer")}), json!([1, "2"]), json!(["1", 2])),
            (tree, json!({"n": "1", "kids": [{"n": "2"}]}), json!({"n": 1, "kids": [{"n": 2}]})),
            (circle, json!("5"), json!("5")),
            (json!(true), json!("5"), json!("5")),
        ] {
            assert_eq!(coerce(&schema, given.clone()), expected, "{schema} {given}");
        }
    }
}
