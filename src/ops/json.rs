//! `v/ops/json/*`: put values together and take them apart. Pure: needs nothing but what it reads.

use super::lattice::need;
use crate::domain::decode;
use crate::domain::lattice::Path;
use crate::domain::lattice::path::keys;
use crate::domain::patch::{Selector, merge};
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, RegisteredOperation, operation};
use crate::venue::tree::value_at;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<Merge>(), operation::<Pick>()]
}

/// The value that a call is about: `value` as given, or what lies at `path`; `None` when nothing
/// does.
pub(super) async fn subject(
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

/// Merge JSON values in order: each next one is a merge patch (RFC 7396) of those before: maps are merged, null removes a
/// key, anything else replaces. Returns `value`.
#[derive(Deserialize, JsonSchema)]
struct Merge {
    #[schemars(length(min = 1, max = 1000))]
    values: Vec<Value>,
}

impl Operation for Merge {
    const PATH: &'static str = "v/ops/json/merge";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<Output, OpError> {
        let mut values = self.values.into_iter();
        // The first is the target: its nulls are values.
        let mut merged = values.next().unwrap_or_default();
        values.for_each(|value| merge(&mut merged, value));
        Ok(json!({"value": merged}).into())
    }
}

/// Pick the part at `select` (a JSON pointer such as /lines/0/price, a path such as lines/0/price, or an array of keys) out
/// of `value`, or out of what is at the lattice path `path`.
#[derive(Deserialize, JsonSchema)]
struct Pick {
    #[serde(default, deserialize_with = "decode::given")]
    value: Option<Value>,
    path: Option<Path>,
    #[schemars(schema_with = "keys")]
    select: Selector,
}

impl Operation for Pick {
    const PATH: &'static str = "v/ops/json/select";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(self.path.iter().map(|path| need("crud/read", path)).collect())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<Output, OpError> {
        let value = subject(call, self.value, self.path.as_ref()).await?;
        Ok(match value.as_ref().and_then(|value| self.select.of(value)) {
            Some(found) => json!({"exists": true, "value": found}).into(),
            None => json!({"exists": false}).into(),
        })
    }
}
