//! `v/ops/spend/today`: what an owner has spent today, and what its caps leave.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::SessionKey;
use crate::domain::lattice::Namespace;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, UntypedOperation as Operation, UntypedSpec as Spec,
};
use crate::venue::spending;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// Sessions that are listed by default, and at most.
const SESSIONS: (usize, usize) = (20, 500);

struct Today;

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    vec![Arc::new(Today)]
}

fn session(arguments: &Value) -> Result<Option<SessionKey>, OpError> {
    let text = |key: &str| arguments[key].as_str();
    let invalid = |error: crate::domain::ids::IdError| OpError::Invalid(error.to_string());
    match (text("agentId"), text("sessionId")) {
        (Some(agent), Some(session)) => {
            let agent = agent.parse().map_err(invalid)?;
            Ok(Some(SessionKey { agent, session: session.parse().map_err(invalid)? }))
        }
        (None, None) => Ok(None),
        (_, _) => Err(OpError::Invalid("expected `agentId` and `sessionId` together, or none of them".into())),
    }
}

#[async_trait]
impl Operation for Today {
    fn spec(&self) -> Spec {
        Spec {
            path: "v/ops/spend/today",
            description: "Tokens and money that were spent today, by model and session, and the caps: what is used, held and left of them, and when they reset. With a session, its cap too.",
            input: json!({
                "type": "object",
                "properties": {
                    "agentId": {"type": "string"},
                    "sessionId": {"type": "string"},
                    "limit": {"type": "integer", "minimum": 0, "maximum": SESSIONS.1, "description": "sessions that are listed, those that have used most first"}
                },
                "additionalProperties": false
            }),
            effect: Effect::Read,
        }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        session(arguments)?;
        Ok(vec![Need { ability: "crud/read", resource: ResourcePath::all(Namespace::Agents) }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let (venue, caller) = (call.venue, call.caller);
        let limit = arguments["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(SESSIONS.0);
        let sees_all = caller.operator && !caller.is_agent();
        let mut shown = spending::today(venue, &caller.owner, limit).await?;
        shown["caps"] = spending::caps(venue, &caller.owner, session(&arguments)?.as_ref(), sees_all).await?.into();
        Ok(shown.into())
    }
}
