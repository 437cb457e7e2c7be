//! `v/ops/venue/*`: what operators ask of the venue as a whole, for all owners.

use crate::domain::authority::ResourcePath;
use crate::upkeep::audit::{self, AuditError};
use crate::upkeep::doctor;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Audit,
    Doctor,
}

struct VenueOperation(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    [Verb::Audit, Verb::Doctor].into_iter().map(|verb| Arc::new(VenueOperation(verb)) as Arc<dyn Operation>).collect()
}

#[async_trait]
impl Operation for VenueOperation {
    fn spec(&self) -> Spec {
        let (path, description, properties, effect) = match self.0 {
            Verb::Audit => (
                "v/ops/venue/audit",
                "Compare everything that was accepted, by all owners, with what has ended, is pending, or is missing.",
                json!({"repair": {"type": "boolean", "description": "first give what was lost its place or its end"}}),
                Effect::Idempotent,
            ),
            Verb::Doctor => (
                "v/ops/venue/doctor",
                "Say which guarantees hold with the settings of the servers, and what to change.",
                json!({}),
                Effect::Read,
            ),
        };
        let input = json!({"type": "object", "properties": properties, "additionalProperties": false});
        Spec { path, description, input, effect }
    }

    fn needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        let ability = match self.0 {
            Verb::Audit => "venue/audit",
            Verb::Doctor => "venue/doctor",
        };
        Ok(vec![Need { ability, resource: ResourcePath::kept("policy") }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        if call.caller.is_agent() || matches!(call.site, Site::Turn(_)) || !call.caller.operator {
            return Err(OpError::Denied(format!("`{}` is for operators alone", self.spec().path)));
        }
        match self.0 {
            Verb::Audit => match audit::report(call.venue, arguments["repair"] == true).await {
                Ok(report) => Ok(report.into()),
                Err(AuditError::Store(error)) => Err(OpError::Store(error)),
                Err(AuditError::Bus(error)) => Err(OpError::Failed(error.to_string())),
            },
            Verb::Doctor => {
                let found = doctor::examine(call.venue).await;
                Ok(found.map_err(|error| OpError::Failed(error.to_string()))?.to_json().into())
            }
        }
    }
}
