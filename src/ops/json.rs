//! `v/ops/json/*`: combine values, take parts of them, choose between them. They are pure and need only what they read.

use super::lattice::need;
use crate::domain::decode;
use crate::domain::lattice::Path;
use crate::domain::lattice::path::{MAX_SEGMENTS, keys_schema};
use crate::domain::lattice::value::set;
use crate::domain::patch::{Selector, merge};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::tree::value_at;
use crate::view::lattice::{MadeValueView, ResultView, ValueView};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Most cases of one choice.
const CASES: usize = 1000;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<Merge>(), operation::<Pick>(), operation::<Choose>(), operation::<Assoc>()]
}

/// Returns the value of a call: `value` as given, or the one at `path`; `None` if nothing is there.
pub(super) async fn call_value(
    call: &Invocation<'_>,
    value: Option<Value>,
    path: Option<&Path>,
) -> Result<Option<Value>, OpError> {
    match (value, path) {
        (Some(value), None) => Ok(Some(value)),
        (None, Some(path)) => value_at(call, path).await,
        (Some(_), Some(_)) | (None, None) => {
            Err(OpError::Invalid("expected exactly one of `value` and `path`".to_owned()))
        }
    }
}

/// Merge JSON values in order: each one is a merge patch (RFC 7396) of those before, the first one of an empty map: maps are
/// merged, null removes a key, anything else replaces. Returns `value`.
#[derive(Deserialize, JsonSchema)]
struct Merge {
    #[schemars(length(max = 1000))]
    values: Vec<Value>,
}

impl Operation for Merge {
    const PATH: &'static str = "v/ops/json/merge";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let mut merged = Value::Object(Map::new());
        self.values.into_iter().for_each(|value| merge(&mut merged, value));
        Ok(OpOutput::of(&MadeValueView { value: merged }))
    }
}

/// Pick the part at `select` (a JSON pointer such as /lines/0/price, a path such as lines/0/price, or an array of keys) out
/// of `value`, or out of what is at the lattice path `path`. With `key` and `cases` in their place: the case of that key, or
/// `default`, as `result`.
#[derive(Deserialize, JsonSchema)]
struct Pick {
    #[serde(default, deserialize_with = "decode::nullable_field")]
    value: Option<Value>,
    path: Option<Path>,
    #[schemars(schema_with = "keys_schema")]
    #[serde(default)]
    select: Option<Selector>,
    /// which of `cases`
    key: Option<String>,
    /// values by key
    #[schemars(length(max = CASES))]
    cases: Option<Map<String, Value>>,
    /// the result when no case has the key; null when absent
    #[serde(default, deserialize_with = "decode::nullable_field")]
    default: Option<Value>,
}

impl Operation for Pick {
    const PATH: &'static str = "v/ops/json/select";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(self.path.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { value, path, select, key, cases, default } = self;
        let select = match (select, key, cases, default) {
            (Some(select), None, None, None) => select,
            (None, Some(key), Some(mut cases), default) if value.is_none() && path.is_none() => {
                let result = cases.get_mut(&key).map(Value::take).or(default).unwrap_or_default();
                return Ok(OpOutput::of(&ResultView { result }));
            }
            _ => {
                let forms = "expected `select` with one of `value` and `path`, or `key` with `cases`";
                return Err(OpError::Invalid(forms.to_owned()));
            }
        };
        let value = call_value(call, value, path.as_ref()).await?;
        let value = value.as_ref().and_then(|value| select.select(value)).cloned();
        Ok(OpOutput::of(&ValueView { exists: value.is_some(), value, ..ValueView::default() }))
    }
}

/// Choose between values: the `then` of the first case whose `when` is neither null nor false, else `default`, as `result`.
#[derive(Deserialize, JsonSchema)]
struct Choose {
    #[schemars(length(max = CASES))]
    cases: Vec<Case>,
    /// the result when no case holds; null when absent
    #[serde(default)]
    default: Value,
}

#[derive(Deserialize, JsonSchema)]
struct Case {
    /// anything but null and false holds
    when: Value,
    /// the result when it holds
    then: Value,
}

impl Operation for Choose {
    const PATH: &'static str = "v/ops/json/cond";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let holds = |case: &Case| !matches!(case.when, Value::Null | Value::Bool(false));
        let result = self.cases.into_iter().find(holds).map_or(self.default, |case| case.then);
        Ok(OpOutput::of(&ResultView { result }))
    }
}

/// Set `value` at `path` inside `target`, a map; maps on the way are made. `path` is one key, or an array of keys. Returns the
/// map as `result`.
#[derive(Deserialize, JsonSchema)]
struct Assoc {
    #[serde(default)]
    target: Map<String, Value>,
    #[schemars(schema_with = "keys_schema")]
    path: Value,
    #[serde(default)]
    value: Value,
}

impl Operation for Assoc {
    const PATH: &'static str = "v/ops/json/assoc";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let keys = match self.path {
            Value::Array(keys) => keys,
            key => vec![key],
        };
        if keys.is_empty() || keys.len() > MAX_SEGMENTS {
            return Err(OpError::Invalid(format!("`path`: expected 1 to {MAX_SEGMENTS} keys, got {}", keys.len())));
        }
        let text = |key: Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        let keys: Vec<String> = keys.into_iter().map(text).collect();
        let mut target = Value::Object(self.target);
        set(&mut target, &keys, self.value).map_err(|error| OpError::Invalid(error.to_string()))?;
        Ok(OpOutput::of(&ResultView { result: target }))
    }
}
