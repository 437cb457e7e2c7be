//! Converts whole numbers to integers. In JSON Schema `99.0` and `1e3` are integers, and so is a number that no integer
//! type here can hold. Code that reads an integer from a value would find none, and behave as if the number were
//! absent.

use serde_json::{Number, Value};

/// A number that no integer type here can hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at `{pointer}`: expected a whole number from {} to {}", i64::MIN, u64::MAX)]
pub struct IntegerRangeError {
    /// JSON pointer of the number.
    pub pointer: String,
}

/// Converts whole numbers of `value` to integers wherever `schema` requires an integer.
pub fn make_whole(schema: &Value, value: &mut Value) -> Result<(), IntegerRangeError> {
    make_whole_at("", schema, value)
}

fn make_whole_at(place: &str, schema: &Value, value: &mut Value) -> Result<(), IntegerRangeError> {
    for key in ["anyOf", "oneOf", "allOf"] {
        for part in schema[key].as_array().into_iter().flatten() {
            make_whole_at(place, part, value)?;
        }
    }
    match value {
        Value::Number(number) if wants_integer(schema) => {
            if let Some(float) = number.as_f64().filter(|_| !number.is_i64() && !number.is_u64()) {
                let out_of_range = || IntegerRangeError { pointer: place.to_owned() };
                *number = integer_from_float(float).ok_or_else(out_of_range)?;
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                let part = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
                make_whole_at(&format!("{place}/{key}"), part, value)?;
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter_mut().enumerate() {
                make_whole_at(&format!("{place}/{index}"), &schema["items"], value)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Whether a schema takes integers and no other numbers.
fn wants_integer(schema: &Value) -> bool {
    match &schema["type"] {
        Value::String(one) => one == "integer",
        Value::Array(several) => {
            several.iter().any(|one| one == "integer") && !several.iter().any(|one| one == "number")
        }
        _ => false,
    }
}

/// Converts a whole number to an integer; `None` if no integer type can hold it.
pub fn integer_from_float(float: f64) -> Option<Number> {
    let text = format!("{float:.0}");
    let unsigned = || text.parse::<u64>().ok().map(Number::from);
    text.parse::<i64>().ok().map(Number::from).or_else(unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_numbers_become_integers_where_integers_are_wanted() {
        let schema = json!({
            "properties": {
                "n": {"type": "integer"}, "text": {"type": ["string", "integer"]}, "any": {"type": ["number", "integer"]},
                "list": {"items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
                "in": {"properties": {"n": {"type": "integer"}}}, "free": {}
            },
            "additionalProperties": {"type": "integer"}
        });
        for (given, expected) in [
            (json!({"n": 99.0}), json!({"n": 99})),
            (json!({"n": 1e3, "text": -2.0}), json!({"n": 1000, "text": -2})),
            (json!({"n": -0.0}), json!({"n": 0})),
            (json!({"n": 1e19}), json!({"n": 10_000_000_000_000_000_000_u64})),
            (json!({"any": 2.0, "free": {"n": 2.0}}), json!({"any": 2.0, "free": {"n": 2.0}})),
            (json!({"list": [1.0, "x", 2], "in": {"n": 3.0}}), json!({"list": [1, "x", 2], "in": {"n": 3}})),
            (json!({"other": 4.0}), json!({"other": 4})),
            (json!({"text": "5.0", "n": u64::MAX}), json!({"text": "5.0", "n": u64::MAX})),
        ] {
            let mut value = given.clone();
            assert_eq!(make_whole(&schema, &mut value), Ok(()), "{given}");
            assert_eq!(value.to_string(), expected.to_string(), "{given}");
        }
        for (given, place) in [(json!({"n": 1e20}), "/n"), (json!({"list": [1, -1e30]}), "/list/1")] {
            let error = make_whole(&schema, &mut given.clone()).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("at `{place}`: expected a whole number from -9223372036854775808 to")),
                "{error}"
            );
        }
    }
}
