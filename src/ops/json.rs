//! `v/ops/json/*`: put values together and take them apart. Pure: needs nothing but what it reads.

use super::lattice::{need, path_of, path_schema, schema};
use crate::domain::patch::{merge, place, select};
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use crate::venue::tree::value_at;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Merge,
    Select,
}

struct Json(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    [Verb::Merge, Verb::Select].into_iter().map(|verb| Arc::new(Json(verb)) as Arc<dyn Operation>).collect()
}

/// The value that a call is about: `value` as given, or what lies at `path`; `None` when nothing
/// does.
pub(super) async fn subject(call: &Invocation<'_>, arguments: &mut Value) -> Result<Option<Value>, OpError> {
    match (arguments.get("value").is_some(), arguments.get("path").is_some()) {
        (true, false) => Ok(Some(arguments["value"].take())),
        (false, true) => value_at(call, &path_of(arguments, "path")?).await,
        (true, true) | (false, false) => Err(OpError::Invalid("expected exactly one of `value` and `path`".to_owned())),
    }
}

/// What a call with `value` or `path` needs.
pub(super) fn subject_needs(arguments: &Value) -> Result<Vec<Need>, OpError> {
    if arguments.get("path").is_none() {
        return Ok(Vec::new());
    }
    Ok(vec![need("crud/read", &path_of(arguments, "path")?)])
}

#[async_trait]
impl Operation for Json {
    fn spec(&self) -> Spec {
        let (path, description, input) = match self.0 {
            Verb::Merge => (
                "v/ops/json/merge",
                "Merge JSON values in order: each next one is a merge patch (RFC 7396) of those before: maps are \
                 merged, null removes a key, anything else replaces. Returns `value`.",
                schema(&json!({"values": {"type": "array", "minItems": 1, "maxItems": 1000}}), &["values"]),
            ),
            Verb::Select => (
                "v/ops/json/select",
                "Pick the part at `select` (a JSON pointer such as /lines/0/price, a path such as lines/0/price, or an \
                 array of keys) out of `value`, or out of what is at the lattice path `path`.",
                schema(
                    &json!({
                        "value": {},
                        "path": path_schema(),
                        "select": {"anyOf": [
                            {"type": "string"}, {"type": "array", "items": {"type": ["string", "integer"]}}
                        ]}
                    }),
                    &["select"],
                ),
            ),
        };
        Spec { path, description, input, effect: Effect::Read }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        match self.0 {
            Verb::Merge => Ok(Vec::new()),
            Verb::Select => subject_needs(arguments),
        }
    }

    async fn invoke(&self, call: &Invocation<'_>, mut arguments: Value) -> Result<Output, OpError> {
        match self.0 {
            Verb::Merge => {
                let Value::Array(values) = arguments["values"].take() else {
                    return Err(OpError::Invalid("expected an array `values`".to_owned()));
                };
                let mut merged = Value::Null;
                for (number, value) in values.into_iter().enumerate() {
                    // The first is the target: its nulls are values.
                    if number == 0 { merged = value } else { merge(&mut merged, value) }
                }
                Ok(json!({"value": merged}).into())
            }
            Verb::Select => {
                let place = place(&arguments["select"]).map_err(OpError::Invalid)?;
                let value = subject(call, &mut arguments).await?;
                Ok(match value.as_ref().and_then(|value| select(value, &place)) {
                    Some(found) => json!({"exists": true, "value": found}).into(),
                    None => json!({"exists": false}).into(),
                })
            }
        }
    }
}
