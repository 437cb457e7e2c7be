//! JSON Schema as plain data: checks values against schemas, and infers schemas from samples.

mod annotations;
pub mod coerce;
mod validator_cache;
pub(crate) mod cost;
pub mod infer;
mod integers;
mod weight;

use crate::limits::{SCHEMA_BYTES, SCHEMA_ERRORS, SCHEMA_LISTED_CHECKS};
use crate::visible::cut_at;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use std::fmt;

pub use annotations::edit_annotations;
pub use cost::{SchemaCostError, cost};
pub use integers::{IntegerRangeError, integer_from_float, make_whole};
pub use validator_cache::{compile, has_patterns};

/// Why a schema can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema is too large to compile.
    #[error("the schema has {bytes} bytes, expected at most {SCHEMA_BYTES}")]
    TooLarge {
        /// Size of the schema in bytes.
        bytes: usize,
    },
    /// The text is not a schema; the error of the library.
    #[error("not a JSON Schema: at `{at}`: {reason}")]
    NotASchema {
        /// JSON pointer into the schema.
        at: String,
        /// Description of the error.
        reason: String,
    },
    /// The check would take too long.
    #[error(transparent)]
    TooCostly(#[from] SchemaCostError),
}

/// One way in which a value doesn't fit.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchemaMisfit {
    /// JSON pointer into the value; empty for the whole value.
    pub path: String,
    /// JSON pointer into the schema.
    pub schema_path: String,
    /// Description of the misfit.
    pub message: String,
}

/// Returns the first misfits of `value`, at most `limit`, and whether there are more, or may be. References may only lead
/// into the schema itself: nothing is fetched. Of a check of more than [`SCHEMA_LISTED_CHECKS`] steps only one misfit is
/// returned.
pub fn find_misfits(schema: &Value, value: &Value, limit: usize) -> Result<(Vec<SchemaMisfit>, bool), SchemaError> {
    list_misfits(schema, value, limit, shorten_error)
}

/// Returns the first misfits of a value, at most `limit`, in messages that never quote the value.
pub fn veiled_misfits(schema: &Value, value: &Value, limit: usize) -> Result<Vec<SchemaMisfit>, SchemaError> {
    let message = |error: &ValidationError<'_>| cut_at(&error.masked_with("the value").to_string(), MESSAGE_BYTES);
    list_misfits(schema, value, limit, message).map(|(found, _)| found)
}

fn list_misfits(
    schema: &Value,
    value: &Value,
    limit: usize,
    message: impl Fn(&ValidationError<'_>) -> String,
) -> Result<(Vec<SchemaMisfit>, bool), SchemaError> {
    let text = serde_json::to_vec(schema).unwrap_or_default();
    if text.len() > SCHEMA_BYTES {
        return Err(SchemaError::TooLarge { bytes: text.len() });
    }
    let steps = cost(schema, value)?;
    let validator = validator_cache::validator(schema, text)?;
    let limit = limit.min(SCHEMA_ERRORS);
    let (errors, more) = first_errors(&validator, value, steps, limit);
    let found = errors.into_iter().map(|error| SchemaMisfit {
        path: error.instance_path().to_string(),
        schema_path: error.schema_path().to_string(),
        message: message(&error),
    });
    Ok((found.collect(), more))
}

/// Returns the first errors of a check that takes `steps`, at most `limit`, and whether there are more, or may be. The
/// library makes all errors before it gives the first, and each takes half a kilobyte: of a check of more than
/// [`SCHEMA_LISTED_CHECKS`] steps only one is made.
pub fn first_errors<'v>(
    validator: &'v Validator,
    value: &'v Value,
    steps: u64,
    limit: usize,
) -> (Vec<ValidationError<'v>>, bool) {
    if steps > SCHEMA_LISTED_CHECKS {
        let mut found: Vec<ValidationError<'v>> = validator.validate(value).err().into_iter().collect();
        let more = !found.is_empty();
        found.truncate(limit);
        return (found, more);
    }
    let mut errors = validator.iter_errors(value);
    let found = errors.by_ref().take(limit).collect();
    let more = errors.next().is_some();
    (found, more)
}

impl fmt::Display for SchemaMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "at `{}`: {}", self.path, self.message)
    }
}

/// Returns the error of arguments with these misfits, which names the first five; `None` if there are none.
pub fn arguments_error(called: &str, found: &[SchemaMisfit]) -> Option<String> {
    let named: Vec<String> = found.iter().take(5).map(ToString::to_string).collect();
    (!named.is_empty()).then(|| format!("arguments of `{called}` are not valid: {}", named.join("; ")))
}

/// Most bytes of a message: what fits on some lines.
const MESSAGE_BYTES: usize = 400;

/// The library quotes values whole; a message that would be long shows none.
fn shorten_error(error: &ValidationError<'_>) -> String {
    let text = error.to_string();
    if text.len() <= MESSAGE_BYTES { text } else { cut_at(&error.masked_with("the value").to_string(), MESSAGE_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(schema: &Value, value: &Value) -> Vec<String> {
        let (found, more) = find_misfits(schema, value, 10).unwrap();
        assert!(!more);
        found.into_iter().map(|misfit| format!("{}: {}", misfit.path, misfit.message)).collect()
    }

    #[test]
    fn misfits_say_where_and_what() {
        let schema = json!({
            "type": "object", "required": ["name"],
            "properties": {"ages": {"type": "array", "items": {"$ref": "#/$defs/age"}}},
            "$defs": {"age": {"type": "integer", "minimum": 0}}
        });
        for (value, expected) in [
            (json!({"name": "x", "ages": [1, 2]}), vec![]),
            (
                json!({"name": "x", "ages": [1, -2, "3"]}),
                vec!["/ages/1: -2 is less than the minimum of 0", "/ages/2: \"3\" is not of type \"integer\""],
            ),
            (json!({}), vec![": \"name\" is a required property"]),
            (json!(null), vec![": null is not of type \"object\""]),
        ] {
            assert_eq!(messages(&schema, &value), expected, "{value}");
        }
    }

    #[test]
    fn no_more_misfits_than_asked_for_are_listed() {
        let value = json!(["a", "b", "c"]);
        let (found, more) = find_misfits(&json!({"items": {"type": "integer"}}), &value, 2).unwrap();
        assert_eq!((found.len(), more), (2, true));
        let long = "x".repeat(1_000_000);
        let (found, _) = find_misfits(&json!({"type": "integer"}), &json!(long), 1).unwrap();
        assert!(found[0].message.len() < 500, "{} bytes", found[0].message.len());
    }

    #[test]
    fn what_is_no_schema_is_refused_with_its_place() {
        for (schema, part) in [
            (json!({"type": "text"}), "at `/type`"),
            (json!({"properties": {"a": {"minimum": "1"}}}), "at `/properties/a/minimum`"),
            (json!("x"), "not a JSON Schema"),
            (json!({"pattern": "("}), "at `/pattern`"),
            (json!({"$ref": "https://example.com/schema"}), "`#/…`"),
            (json!({"$ref": "#/$defs/none"}), "leads to nothing"),
            (json!({"description": "x".repeat(SCHEMA_BYTES)}), "expected at most"),
        ] {
            let error = find_misfits(&schema, &json!({}), 1).unwrap_err().to_string();
            assert!(error.contains(part), "expected `{part}` in: {error}");
        }
    }

    #[test]
    fn parts_that_no_value_reaches_cost_no_more_than_their_text() {
        let step = |n: usize| {
            let next = json!({"$ref": format!("#/$defs/{}", n + 1)});
            (n.to_string(), json!({"allOf": [next, next]}))
        };
        let mut chain: serde_json::Map<String, Value> = (0..60).map(step).collect();
        chain.insert("60".into(), json!({"type": "string"}));
        let schema = json!({"properties": {"absent": {"$ref": "#/$defs/0"}}, "$defs": chain});
        assert_eq!(find_misfits(&schema, &json!({}), 1).unwrap().0, []);
    }

    /// A list of them would take half a gigabyte.
    #[test]
    fn of_a_long_check_one_misfit_is_listed() {
        let names: Vec<Value> = (0..20_000).map(|n| json!(format!("n{n}"))).collect();
        let schema = json!({"items": {"allOf": [{"type": "integer"}, {"minimum": 5}, {"type": "null"}]}});
        let (found, more) = find_misfits(&schema, &Value::Array(names.clone()), 10).unwrap();
        assert_eq!((found.len(), more), (1, true));
        assert_eq!(found[0].path, "/0");
        let fitting = json!({"items": {"allOf": [{"type": "string"}, {"minLength": 2}, {"maxLength": 9}]}});
        assert_eq!(find_misfits(&fitting, &Value::Array(names), 10).unwrap(), (vec![], false));
    }

    #[test]
    fn patterns_take_linear_time() {
        let schema = json!({"pattern": "^(a+)+$"});
        let value = json!(format!("{}b", "a".repeat(5_000)));
        assert_eq!(find_misfits(&schema, &value, 1).unwrap().0.len(), 1);
    }
}
