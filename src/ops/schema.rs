//! `v/ops/schema/*`: check a value against a JSON Schema, and find one from samples.

use super::json::{subject, subject_needs};
use super::lattice::{number, path_schema, schema};
use crate::domain::limits::SCHEMA_ERRORS;
use crate::domain::schema::infer::infer;
use crate::domain::schema::misfits;
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// Misfits listed when nothing is said.
const ERRORS: usize = 20;

#[derive(Clone, Copy)]
enum Verb {
    Validate,
    Infer,
}

struct Schema(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    [Verb::Validate, Verb::Infer].into_iter().map(|verb| Arc::new(Schema(verb)) as Arc<dyn Operation>).collect()
}

#[async_trait]
impl Operation for Schema {
    fn spec(&self) -> Spec {
        let (path, description, input) = match self.0 {
            Verb::Validate => (
                "v/ops/schema/validate",
                "Check `value`, or what is at the lattice path `path`, against a JSON Schema. Returns `valid` and \
                 `errors` with the place of each. References stay inside the schema (#/…).",
                schema(
                    &json!({
                        "schema": {"type": ["object", "boolean"]},
                        "value": {},
                        "path": path_schema(),
                        "maxErrors": {"type": "integer", "minimum": 1, "maximum": SCHEMA_ERRORS}
                    }),
                    &["schema"],
                ),
            ),
            Verb::Infer => (
                "v/ops/schema/infer",
                "Find a JSON Schema that fits `value`, or what is at the lattice path `path`; with `each` the elements \
                 or entries of it are samples of one thing. Properties in all samples are required.",
                schema(&json!({"value": {}, "path": path_schema(), "each": {"type": "boolean"}}), &[]),
            ),
        };
        Spec { path, description, input, effect: Effect::Read }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        subject_needs(arguments)
    }

    async fn invoke(&self, call: &Invocation<'_>, mut arguments: Value) -> Result<Output, OpError> {
        let value = subject(call, &mut arguments).await?;
        let missing = || OpError::NotFound(format!("nothing is at {}", arguments["path"]));
        let value = value.ok_or_else(missing)?;
        // Both can take a second of pure work: not on a thread that serves others.
        let verb = self.0;
        let work = tokio::task::spawn_blocking(move || match verb {
            Verb::Validate => validate(&arguments, &value),
            Verb::Infer => inferred(&arguments, &value),
        });
        work.await.map_err(|error| OpError::Failed(error.to_string()))?.map(Into::into)
    }
}

fn validate(arguments: &Value, value: &Value) -> Result<Value, OpError> {
    let limit = number(arguments, "maxErrors", ERRORS);
    let (errors, more) =
        misfits(&arguments["schema"], value, limit).map_err(|error| OpError::Invalid(error.to_string()))?;
    let mut answer = json!({"valid": errors.is_empty(), "errors": errors});
    if more {
        answer["truncated"] = true.into();
    }
    Ok(answer)
}

fn inferred(arguments: &Value, value: &Value) -> Result<Value, OpError> {
    let schema = match (arguments["each"].as_bool().unwrap_or(false), value) {
        (false, value) => infer([value]),
        (true, Value::Array(items)) => infer(items),
        (true, Value::Object(map)) => infer(map.values()),
        (true, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            return Err(OpError::Invalid("`each` expected an array or a map of samples".to_owned()));
        }
    };
    Ok(json!({"schema": schema}))
}
