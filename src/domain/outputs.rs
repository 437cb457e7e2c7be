//! Typed outputs: the schema of a task's result, from its agent's `outputs` or the request's own `responseSchema`.

use crate::limits::SCHEMA_ERRORS;
use crate::schema::{SchemaError, find_misfits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Number of misfits that a model gets at once.
const SHOWN_MISFITS: usize = 5;

/// Types of the results of an agent's tasks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outputs {
    /// Type of the output of a completed task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<OutputType>,
    /// Type of the error of a failed task; the error is its JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<OutputType>,
}

/// Type of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputType {
    /// JSON Schema of the result.
    pub schema: Value,
}

/// Why a value can't be used as the schema of an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputSchemaError {
    /// The value is no map; holds the value.
    #[error("expected a JSON Schema as a map, got {0}")]
    NotAMap(Value),
    /// The map is no schema, or is too large.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// A schema of `outputs` that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`outputs.{key}.schema`: {error}")]
pub struct OutputsError {
    /// Key of the type in `outputs`.
    pub key: &'static str,
    /// What is wrong with its schema.
    pub error: OutputSchemaError,
}

impl Outputs {
    /// Whether no type is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that the schemas can be used.
    pub fn check(&self) -> Result<(), OutputsError> {
        for (key, output) in [("complete", &self.complete), ("fail", &self.fail)] {
            if let Some(output) = output {
                check(&output.schema).map_err(|error| OutputsError { key, error })?;
            }
        }
        Ok(())
    }
}

/// Checks that a value can be used as a schema.
pub fn check(schema: &Value) -> Result<(), OutputSchemaError> {
    if !schema.is_object() {
        return Err(OutputSchemaError::NotAMap(schema.clone()));
    }
    find_misfits(schema, &Value::Null, 1)?;
    Ok(())
}

/// Returns what is wrong with a value, for the model that gave it; `None` if it fits.
pub fn misfit_text(schema: &Value, value: &Value) -> Option<String> {
    let (found, more) = match find_misfits(schema, value, SHOWN_MISFITS.min(SCHEMA_ERRORS)) {
        Ok(found) => found,
        Err(error) => return Some(error.to_string()),
    };
    if found.is_empty() {
        return None;
    }
    let said = found.into_iter().map(|misfit| match misfit.path.as_str() {
        "" => misfit.message,
        path => format!("at `{path}`: {}", misfit.message),
    });
    let more = if more { "; and more" } else { "" };
    Some(format!("{}{more}", said.collect::<Vec<_>>().join("; ")))
}

/// Returns the input schema of a tool whose input is the value itself; a value that is no map is wrapped into one.
pub fn input(schema: &Value) -> Value {
    if is_map(schema) {
        return schema.clone();
    }
    wrap_schema(schema)
}

/// Returns the schema of a map with the value as its `result`. Shared definitions move to the top, where references
/// look for them.
pub fn wrap_schema(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let mut outer = json!({"type": "object", "properties": {}, "required": ["result"]});
    for key in ["$defs", "definitions"] {
        if let Some(shared) = inner.as_object_mut().and_then(|map| map.shift_remove(key)) {
            outer[key] = shared;
        }
    }
    outer["properties"]["result"] = inner;
    outer
}

/// Returns the value that a call of such a tool gives.
pub fn value(schema: Option<&Value>, arguments: &Value) -> Value {
    match schema {
        Some(schema) if !is_map(schema) => arguments.get("result").cloned().unwrap_or(Value::Null),
        Some(_) | None => arguments.clone(),
    }
}

fn is_map(schema: &Value) -> bool {
    schema["type"] == "object"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_is_told_with_what_is_wrong() {
        let schema = json!({
            "type": "object", "properties": {"total": {"type": "number"}, "who": {"type": "string"}},
            "required": ["total"], "additionalProperties": false
        });
        for (given, expected) in [
            (json!({"total": 3}), None),
            (json!({"total": "3"}), Some("at `/total`: \"3\" is not of type \"number\"")),
            (json!({}), Some("\"total\" is a required property")),
            (json!("text"), Some("\"text\" is not of type \"object\"")),
        ] {
            assert_eq!(misfit_text(&schema, &given).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn values_that_are_no_map_are_wrapped_in_one() {
        let list = json!({"type": "array", "items": {"type": "integer"}});
        assert_eq!(input(&list)["properties"]["result"], list);
        assert_eq!(value(Some(&list), &json!({"result": [1]})), json!([1]));
        let map = json!({"type": "object"});
        assert_eq!(input(&map), map);
        assert_eq!(value(Some(&map), &json!({"result": [1]})), json!({"result": [1]}));
        assert_eq!(value(None, &json!({"a": 1})), json!({"a": 1}));
    }

    #[test]
    fn references_lead_to_the_same_place_inside_the_map() {
        let list = json!({"type": "array", "items": {"$ref": "#/$defs/item"}, "$defs": {"item": {"type": "integer"}}});
        assert_eq!(misfit_text(&input(&list), &json!({"result": [1]})), None);
        assert!(misfit_text(&input(&list), &json!({"result": ["x"]})).unwrap().contains("at `/result/0`"));
    }

    #[test]
    fn schemas_that_cannot_be_used_are_named() {
        let of = |schema: Value| Outputs { complete: Some(OutputType { schema }), fail: None }.check();
        assert_eq!(of(json!({"type": "string"})), Ok(()));
        assert_eq!(
            of(json!("string")).unwrap_err().to_string(),
            "`outputs.complete.schema`: expected a JSON Schema as a map, got \"string\""
        );
        let error = of(json!({"type": "text"})).unwrap_err().to_string();
        assert!(error.starts_with("`outputs.complete.schema`: not a JSON Schema: "), "{error}");
    }
}
