//! Typed inputs of a task: defaults, nulls and the check against the schema.

use super::USER_QUERY;
use super::condition::parse_number;
use crate::lattice::value::type_name;
use crate::limits::pipeline::INPUT_PROPERTIES;
use crate::nearest::did_you_mean;
use crate::outputs::{self, OutputSchemaError};
use crate::visible::{quote_foreign, quote_names};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Why the input of a task is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskInputError {
    /// The input is no map, and the schema has not exactly one property.
    #[error("`inputSchema`: expected a map with {names}, got {found}; send it as JSON")]
    NotAMap {
        /// Names of the properties.
        names: String,
        /// Type of the input.
        found: &'static str,
    },
    /// The schema allows no such input.
    #[error("`inputSchema`: no input is named `{}`{hint}; expected {names}", quote_foreign(.name))]
    Unknown {
        /// Name that the schema doesn't have.
        name: String,
        /// A near name, or nothing.
        hint: String,
        /// Names of the properties.
        names: String,
    },
    /// A value doesn't fit the schema.
    #[error("`inputSchema`: {0}")]
    Misfit(String),
}

/// Why a value can't be the schema of an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputSchemaError {
    /// The value is no schema.
    #[error("`inputSchema`: {0}")]
    Schema(OutputSchemaError),
    /// The schema is not that of a map with properties.
    #[error(
        "`inputSchema`: expected `\"type\": \"object\"` and `properties`, or the properties in short, as `topic: string`"
    )]
    NoProperties,
    /// There are too many properties.
    #[error("`inputSchema`: expected at most {INPUT_PROPERTIES} properties, got {0}; put parts of them into one map")]
    TooMany(usize),
}

/// Checks that a value can be the schema of an input.
pub fn check_schema(schema: &Value) -> Result<(), InputSchemaError> {
    outputs::check(schema).map_err(InputSchemaError::Schema)?;
    match schema["properties"].as_object().filter(|_| schema["type"] == "object").map(Map::len) {
        None => Err(InputSchemaError::NoProperties),
        Some(found) if found > INPUT_PROPERTIES => Err(InputSchemaError::TooMany(found)),
        Some(_) => Ok(()),
    }
}

/// Iterates over the names of the properties of an input.
pub fn names(schema: Option<&Value>) -> impl Iterator<Item = &str> {
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let untyped = schema.is_none().then_some(USER_QUERY);
    properties.into_iter().flat_map(|map| map.keys().map(String::as_str)).chain(untyped)
}

/// Returns the values of an input by name. Without a schema the input is the value `userQuery`. With one, absent values
/// have their default, or are null where the schema allows it; a text is the value of the only property.
pub fn values(schema: Option<&Value>, input: &Value) -> Result<Map<String, Value>, TaskInputError> {
    let Some(schema) = schema else {
        return Ok(Map::from_iter([(USER_QUERY.to_owned(), input.clone())]));
    };
    let no_properties = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&no_properties);
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    let mut given = match (input, properties.keys().next()) {
        (Value::Object(map), _) => map.clone(),
        (Value::Null, _) => Map::new(),
        (value, Some(only)) if properties.len() == 1 => Map::from_iter([(only.clone(), value.clone())]),
        (value, _) => {
            return Err(TaskInputError::NotAMap { names: quote_names(&known), found: type_name(value) });
        }
    };
    let mut values = Map::new();
    for (name, property) in properties {
        if let Some(value) = given.shift_remove(name) {
            values.insert(name.clone(), if is_nullable(property) { coerce(property, value) } else { value });
        } else {
            let absent = is_nullable(property).then_some(Value::Null);
            values.extend(property.get("default").cloned().or(absent).map(|value| (name.clone(), value)));
        }
    }
    if let Some(name) = given.keys().next().filter(|_| is_closed(schema)) {
        let hint = did_you_mean(name, &known);
        return Err(TaskInputError::Unknown { name: name.clone(), hint, names: quote_names(&known) });
    }
    values.extend(given);
    let whole = Value::Object(values);
    if let Some(wrong) = outputs::misfit_text(schema, &whole) {
        return Err(TaskInputError::Misfit(wrong));
    }
    match whole {
        Value::Object(values) => Ok(values),
        _ => Ok(Map::new()),
    }
}

/// Returns an input without the values that the schema doesn't allow: a step without `input` gets all that the step
/// before it returned, and takes what it names.
pub fn keep_known<'v>(schema: Option<&Value>, input: &'v Value) -> Cow<'v, Value> {
    match (schema.filter(|schema| is_closed(schema)), input) {
        (Some(schema), Value::Object(given)) => {
            let known = given.iter().filter(|(name, _)| schema["properties"].get(name.as_str()).is_some());
            Cow::Owned(Value::Object(known.map(|(name, value)| (name.clone(), value.clone())).collect()))
        }
        _ => Cow::Borrowed(input),
    }
}

/// Whether a schema allows no other inputs than its properties, as one that is written in short.
fn is_closed(schema: &Value) -> bool {
    schema["additionalProperties"] == false && schema.get("patternProperties").is_none()
}

/// Whether a property is written in short, or is null where it is absent.
fn is_nullable(property: &Value) -> bool {
    has_type(property, "null")
}

fn has_type(property: &Value, name: &str) -> bool {
    match &property["type"] {
        Value::String(only) => only == name,
        Value::Array(types) => types.iter().any(|one| one == name),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Returns a value in the type of its property where only the spelling differs: JSON as a text, a number or a truth
/// value out of a text. Templates make texts of all they fill in.
fn coerce(property: &Value, value: Value) -> Value {
    let fits = |name| has_type(property, name);
    match &value {
        Value::String(text) if !fits("string") => {
            let parsed = match text.trim() {
                "true" if fits("boolean") => Some(Value::Bool(true)),
                "false" if fits("boolean") => Some(Value::Bool(false)),
                number if fits("number") || fits("integer") => parse_number(number),
                _ => None,
            };
            parsed.unwrap_or(value)
        }
        Value::Bool(_) if fits("string") && !fits("boolean") => value.to_string().into(),
        Value::Number(_) if fits("string") && !fits("number") && !fits("integer") => value.to_string().into(),
        Value::Array(_) if fits("string") && !fits("array") => value.to_string().into(),
        Value::Object(_) if fits("string") && !fits("object") => value.to_string().into(),
        Value::Null | Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "topic": {"type": ["string", "null"]}, "tone": {"type": ["string", "null"], "default": "plain"},
            "count": {"type": ["number", "null"]}, "done": {"type": ["boolean", "null"]}
        }})
    }

    #[test]
    fn absent_values_have_defaults_or_are_null() {
        for (input, expected) in [
            (json!({"topic": "bees"}), json!({"topic": "bees", "tone": "plain", "count": null, "done": null})),
            (
                json!({"tone": null, "topic": {"a": 1}, "count": "2.5", "done": "true"}),
                json!({"topic": "{\"a\":1}", "tone": null, "count": 2.5, "done": true}),
            ),
            (
                json!({"topic": 5, "more": [1]}),
                json!({"topic": "5", "tone": "plain", "count": null, "done": null, "more": [1]}),
            ),
            (json!(null), json!({"topic": null, "tone": "plain", "count": null, "done": null})),
        ] {
            assert_eq!(values(Some(&schema()), &input).map(Value::Object), Ok(expected), "{input}");
        }
        assert_eq!(values(None, &json!("hi")).map(Value::Object), Ok(json!({"userQuery": "hi"})));
        let one = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        assert_eq!(values(Some(&one), &json!("hi")).map(Value::Object), Ok(json!({"text": "hi"})));
    }

    #[test]
    fn an_input_that_does_not_fit_is_refused_with_its_place() {
        let exact = json!({
            "type": "object", "properties": {"n": {"type": "integer", "minimum": 1}, "t": {"type": "string"}},
            "required": ["n"], "additionalProperties": false
        });
        for (input, expected) in [
            (json!({"n": 0}), "at `/n`"),
            (json!({"n": "3"}), "at `/n`"),
            (json!({}), "\"n\" is a required property"),
            (json!({"n": 3, "other": 1}), "no input is named `other`; expected `n`, `t`"),
            (json!({"n": 3, "tt": 1}), "no input is named `tt`, did you mean `t`; expected `n`, `t`"),
            (json!("text"), "expected a map with `n`, `t`, got"),
        ] {
            let error = values(Some(&exact), &input).unwrap_err().to_string();
            assert!(error.contains(expected), "{input}: {error}");
        }
        assert_eq!(values(Some(&exact), &json!({"n": 3})).map(Value::Object), Ok(json!({"n": 3})));
    }

    #[test]
    fn what_a_step_passes_on_is_reduced_to_known_inputs() {
        let mut closed = schema();
        closed["additionalProperties"] = json!(false);
        let passed = json!({"topic": "bees", "notes": 1});
        for (schema, expected) in
            [(Some(&closed), json!({"topic": "bees"})), (Some(&schema()), passed.clone()), (None, passed.clone())]
        {
            assert_eq!(*keep_known(schema, &passed), expected);
        }
        assert_eq!(*keep_known(Some(&closed), &json!("text")), json!("text"));
    }

    #[test]
    fn the_schema_of_an_input_has_properties() {
        assert_eq!(check_schema(&schema()), Ok(()));
        assert_eq!(check_schema(&json!({"type": "object"})), Err(InputSchemaError::NoProperties));
        assert!(matches!(check_schema(&json!("text")), Err(InputSchemaError::Schema(_))));
        assert_eq!(names(Some(&schema())).collect::<Vec<_>>(), ["topic", "tone", "count", "done"]);
        assert_eq!(names(None).collect::<Vec<_>>(), ["userQuery"]);
    }
}
