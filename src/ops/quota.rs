//! `v/ops/quota/*`: what an owner keeps and may keep, and other limits for it by operators.

use crate::domain::authority::ResourcePath;
use crate::domain::quota::{MOST, QuotaKind};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::quotas;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Show,
    Set,
}

struct Quotas(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    [Verb::Show, Verb::Set].into_iter().map(|verb| Arc::new(Quotas(verb)) as Arc<dyn Operation>).collect()
}

/// The limits that arguments name; `None` = as the venue says of all.
fn limits(arguments: &Value) -> Result<Vec<(QuotaKind, Option<u64>)>, OpError> {
    let named = QuotaKind::ALL.into_iter().filter_map(|kind| Some((kind, arguments.get(kind.as_str())?)));
    let limits: Vec<_> = named.map(|(kind, limit)| (kind, limit.as_u64())).collect();
    if limits.is_empty() {
        return Err(OpError::Invalid("expected `documents`, `bytes`, `sessions` or `jobs`".into()));
    }
    Ok(limits)
}

#[async_trait]
impl Operation for Quotas {
    fn spec(&self) -> Spec {
        let limit = json!({"type": ["integer", "null"], "minimum": 0, "maximum": MOST});
        let all: Map<String, Value> =
            QuotaKind::ALL.iter().map(|kind| (kind.as_str().to_owned(), limit.clone())).collect();
        let (path, description, properties, effect) = match self.0 {
            Verb::Show => (
                "v/ops/quota/show",
                "What this owner keeps, and what it may keep: documents, bytes, sessions, jobs.",
                Map::new(),
                Effect::Read,
            ),
            Verb::Set => (
                "v/ops/quota/set",
                "Set what this owner may keep at most; 0 = any number, null = as the venue says of all owners.",
                all,
                Effect::Idempotent,
            ),
        };
        let input = json!({"type": "object", "properties": properties, "additionalProperties": false});
        Spec { path, description, input, effect }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let ability = match self.0 {
            Verb::Show => "quota/show",
            Verb::Set => {
                limits(arguments)?;
                "quota/set"
            }
        };
        Ok(vec![Need { ability, resource: ResourcePath::kept("quota") }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let owner = &call.caller.owner;
        if let Verb::Set = self.0 {
            if call.caller.is_agent() || matches!(call.site, Site::Turn(_)) || !call.caller.operator {
                return Err(OpError::Denied(format!("`{}` is for operators alone", self.spec().path)));
            }
            quotas::set(call.venue, owner, &limits(&arguments)?).await?;
        }
        Ok(quotas::shown(call.venue, owner).await?.into())
    }
}
