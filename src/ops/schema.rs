//! `v/ops/schema/*`: check a value against a JSON Schema or coerce it, check a schema, infer one from samples.

use super::json::call_value;
use super::lattice::need;
use crate::domain::decode;
use crate::domain::lattice::Path;
use crate::domain::lattice::value;
use crate::domain::limits::SCHEMA_ERRORS;
use crate::domain::schema::coerce::coerce;
use crate::domain::schema::find_misfits;
use crate::domain::schema::infer::infer;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::view::lattice::{InferredSchemaView, MadeValueView, SchemaCheckView, ValidationView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Default number of listed misfits.
const ERRORS: usize = 20;

/// Covia's names of an operation that lists every misfit.
pub const ALIASES: [(&str, &str); 2] =
    [("v/ops/schema/validate-all", "v/ops/schema/validate"), ("v/ops/schema/validateAll", "v/ops/schema/validate")];

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<Validate>(), operation::<Infer>(), operation::<Coerce>(), operation::<CheckSchema>()]
}

/// Runs pure work on the value of a call. It can take a second, so it runs on a thread for blocking work.
async fn run_on_value<A: Serialize + Send + 'static>(
    call: &Invocation<'_>,
    value: Option<Value>,
    path: Option<Path>,
    work: impl FnOnce(Value) -> Result<A, OpError> + Send + 'static,
) -> Result<OpOutput, OpError> {
    let value = call_value(call, value, path.as_ref()).await?;
    let value = value
        .ok_or_else(|| OpError::NotFound(path.map(|path| format!("nothing is at \"{path}\"")).unwrap_or_default()))?;
    let work = tokio::task::spawn_blocking(move || work(value));
    let answer = work.await.map_err(|error| OpError::Failed(error.to_string()))??;
    Ok(OpOutput::of(&answer))
}

/// Returns a schema that may be JSON in a text, as models often write it.
fn read_schema(schema: Value) -> Value {
    value::normalise(schema)
}

/// Returns a value that the call gives, parsed if it is JSON in a text and the schema takes no text.
fn read_value(schema: &Value, given: Value) -> Result<Value, OpError> {
    if !given.is_string() {
        return Ok(given);
    }
    let (misfits, _) =
        find_misfits(schema, &given, 1).map_err(|error| OpError::Invalid(format!("`schema`: {error}")))?;
    Ok(if misfits.is_empty() { given } else { value::normalise(given) })
}

/// Check `value`, or what is at the lattice path `path`, against a JSON Schema. Returns `valid` and `errors` with the place
/// of each. References stay inside the schema (#/…).
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Validate {
    /// or that JSON as a text
    #[schemars(extend("type" = ["object", "boolean", "string"]))]
    schema: Value,
    #[serde(default, deserialize_with = "decode::nullable_field")]
    value: Option<Value>,
    path: Option<Path>,
    #[schemars(range(min = 1, max = SCHEMA_ERRORS))]
    max_errors: Option<usize>,
}

impl Operation for Validate {
    const PATH: &'static str = "v/ops/schema/validate";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(self.path.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (schema, limit) = (read_schema(self.schema), self.max_errors.unwrap_or(ERRORS));
        let is_given = self.path.is_none();
        let validate = move |value| {
            let value = if is_given { read_value(&schema, value)? } else { value };
            let found = find_misfits(&schema, &value, limit);
            let (errors, more) = found.map_err(|error| OpError::Invalid(error.to_string()))?;
            Ok(ValidationView { valid: errors.is_empty(), errors, truncated: more.then_some(true) })
        };
        run_on_value(call, self.value, self.path, validate).await
    }
}

/// Find a JSON Schema that fits `value`, or what is at the lattice path `path`; with `each` the elements or entries of it
/// are samples of one thing. Properties in all samples are required.
#[derive(Deserialize, JsonSchema)]
struct Infer {
    #[serde(default, deserialize_with = "decode::nullable_field")]
    value: Option<Value>,
    path: Option<Path>,
    #[serde(default)]
    each: bool,
}

impl Operation for Infer {
    const PATH: &'static str = "v/ops/schema/infer";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(self.path.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (each, is_given) = (self.each, self.path.is_none());
        let found = move |value| {
            let value = if is_given { value::normalise(value) } else { value };
            let schema = match (each, &value) {
                (false, value) => infer([value]),
                (true, Value::Array(items)) => infer(items),
                (true, Value::Object(map)) => infer(map.values()),
                (true, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                    return Err(OpError::Invalid("`each` expected an array or a map of samples".to_owned()));
                }
            };
            Ok(InferredSchemaView { schema })
        };
        run_on_value(call, self.value, self.path, found).await
    }
}

/// Bring `value`, or what is at the lattice path `path`, to the types of a JSON Schema: texts that are numbers, true, false or
/// null become such, numbers and booleans become text. What can't be brought to a type stays as it is. Returns `value`.
#[derive(Deserialize, JsonSchema)]
struct Coerce {
    /// or that JSON as a text
    #[schemars(extend("type" = ["object", "boolean", "string"]))]
    schema: Value,
    #[serde(default, deserialize_with = "decode::nullable_field")]
    value: Option<Value>,
    path: Option<Path>,
}

impl Operation for Coerce {
    const PATH: &'static str = "v/ops/schema/coerce";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(self.path.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (schema, is_given) = (read_schema(self.schema), self.path.is_none());
        let work = move |value| {
            let value = if is_given { read_value(&schema, value)? } else { value };
            find_misfits(&schema, &Value::Null, 0).map_err(|error| OpError::Invalid(format!("`schema`: {error}")))?;
            Ok(MadeValueView { value: coerce(&schema, value) })
        };
        run_on_value(call, self.value, self.path, work).await
    }
}

/// Check whether a JSON Schema is one. Returns `valid`, and `error` with the place of what is wrong.
#[derive(Deserialize, JsonSchema)]
struct CheckSchema {
    schema: Value,
}

impl Operation for CheckSchema {
    const PATH: &'static str = "v/ops/schema/check";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let check = |schema: Value| match find_misfits(&schema, &Value::Null, 0) {
            Ok(_) => Ok(SchemaCheckView { valid: true, error: None }),
            Err(error) => Ok(SchemaCheckView { valid: false, error: Some(error.to_string()) }),
        };
        run_on_value(call, Some(read_schema(self.schema)), None, check).await
    }
}
