//! `v/ops/auth/whoami`: the identity of a caller.

use crate::domain::ids::did::DidKey;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<WhoAmI>()]
}

/// Say who you are to this venue: `caller` is your name in records, `owner` whose data you work on, `did` the owner's key where
/// it is one.
#[derive(Deserialize, JsonSchema)]
struct WhoAmI {}

impl Operation for WhoAmI {
    const PATH: &'static str = "v/ops/auth/whoami";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let caller = call.caller;
        let mut answer = json!({
            "caller": caller.name,
            "owner": caller.owner,
            "operator": caller.operator,
            // Every call that reaches an operation has an owner that the venue has authenticated.
            "authenticated": true,
            "internal": matches!(call.site, Site::Turn(_)),
        });
        if let Some(key) = DidKey::from_owner(&caller.owner) {
            answer["did"] = key.to_string().into();
        }
        Ok(answer.into())
    }
}
