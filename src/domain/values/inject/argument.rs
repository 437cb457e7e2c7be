//! The arguments that a tool's schema names, against which a binding is checked.

use crate::nearest::{nearest, suggestion};
use crate::visible::quote_foreign;
use serde_json::{Map, Value};

/// A bound argument that the schema of a tool doesn't name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`toolArgInjection` binds argument `{}`, which the operation doesn't name{}",
    quote_foreign(.argument),
    suggestion(.nearest.as_deref())
)]
pub struct UnknownArgumentError {
    /// Name of the argument.
    pub argument: String,
    /// Argument of the tool with a name like it.
    pub nearest: Option<String>,
}

/// Checks that a tool has an argument of this name; returns a report if its schema allows any.
pub fn accepts(schema: &Value, argument: &str) -> Result<Option<UnknownArgumentError>, UnknownArgumentError> {
    let mut known = Vec::new();
    let is_open = collect_properties(schema, &mut known);
    if known.contains(&argument) {
        return Ok(None);
    }
    let nearest = nearest(argument, &known).map(str::to_owned);
    let unknown = UnknownArgumentError { argument: argument.to_owned(), nearest };
    if is_open || known.is_empty() { Ok(Some(unknown)) } else { Err(unknown) }
}

/// Collects the arguments that a schema names, also inside `allOf`, `anyOf` and `oneOf`. Returns whether the schema
/// allows others, too; an absent `additionalProperties` doesn't.
fn collect_properties<'s>(schema: &'s Value, known: &mut Vec<&'s str>) -> bool {
    let Value::Object(map) = schema else { return *schema == Value::Bool(true) };
    known.extend(map.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).map(String::as_str));
    let mut is_open = map.contains_key("$ref")
        || map.contains_key("patternProperties")
        || map.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
    for part in ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| map.get(*key)?.as_array()).flatten() {
        is_open |= collect_properties(part, known);
    }
    is_open
}
