//! `v/ops/auth/whoami`: the identity of a caller.

use crate::domain::ids::did::DidKey;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use crate::view::identity::CallerView;
use schemars::JsonSchema;
use serde::Deserialize;

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
        Ok(OpOutput::of(&CallerView {
            caller: caller.name.clone(),
            owner: caller.owner.clone(),
            operator: caller.operator,
            authenticated: true,
            internal: matches!(call.site, Site::Turn(_)),
            did: DidKey::from_owner(&caller.owner).map(|key| key.to_string()),
        }))
    }
}
