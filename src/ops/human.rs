//! `v/ops/human/ask`: an agent's questions to a person. The call waits like one that needs an
//! approval; the answers are its result.

use crate::domain::limits::{APPROVAL_TIME_MAX, QUESTIONS};
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// Its catalog path.
pub const ASK: &str = "v/ops/human/ask";

struct Ask;

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    vec![Arc::new(Ask)]
}

#[async_trait]
impl Operation for Ask {
    fn spec(&self) -> Spec {
        let text = || json!({"type": "string"});
        let ask = json!({
            "type": "object", "required": ["id", "type", "prompt"], "additionalProperties": false,
            "properties": {
                "id": text(), "prompt": text(),
                "type": {"enum": ["text", "choice", "approval"]},
                "choices": {"type": "array", "items": text(), "description": "of the type `choice`"}
            }
        });
        let expires = format!(
            "seconds that the person has, at most {}; absent: as many as for an approval",
            APPROVAL_TIME_MAX.as_secs()
        );
        let input = json!({
            "type": "object", "required": ["title", "asks"], "additionalProperties": false,
            "properties": {
                "title": text(),
                "asks": {"type": "array", "items": ask, "minItems": 1, "maxItems": QUESTIONS},
                "expires": {"type": "integer", "minimum": 1, "description": expires}
            }
        });
        let description = "Ask a person. The answers come back as the result, however long it takes.";
        Spec { path: ASK, description, input, effect: Effect::Read }
    }

    fn needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(Vec::new())
    }

    async fn invoke(&self, _call: &Invocation<'_>, _arguments: Value) -> Result<Output, OpError> {
        Err(OpError::Invalid(format!("`{ASK}` is for agents: in a turn it waits for a person")))
    }
}
