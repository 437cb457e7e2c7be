//! Operations called from outside turns, as the API calls them.

use serde_json::Value;
use std::sync::Arc;
use trellis::domain::authority::{Authority, Capability, Resource};
use trellis::domain::ids::{EventId, Owner};
use trellis::domain::lattice::layout::Scope;
use trellis::ops::{Caller, Invocation, NOTHING, OpError, Reads, Site, dispatch};
use trellis::venue::Venue;
use trellis::workspace::Workspace;

/// A caller who may do everything of an owner.
pub fn boss(owner: &Owner) -> Caller {
    Caller::new(owner.clone(), "local/me".into(), Authority::unlimited())
}

/// A resource as a capability spells it.
pub fn on(with: &str) -> Resource {
    Resource::of(&Capability { with: with.into(), can: "*".into() })
}

/// Runs an operation in the workspace of the caller's owner.
pub async fn operate(venue: &Venue, caller: &Caller, path: &str, input: Value) -> Result<Value, OpError> {
    operate_once(venue, caller, None, path, input).await
}

/// The same under an idempotency key.
pub async fn operate_once(
    venue: &Venue,
    caller: &Caller,
    key: Option<EventId>,
    path: &str,
    input: Value,
) -> Result<Value, OpError> {
    let workspace = Workspace::new(Arc::clone(&venue.store), caller.owner.clone(), Scope::default());
    let (scoped, reads, site) = (&NOTHING, &Reads::default(), Site::Api { key });
    let call = Invocation { named: path, venue, caller, workspace: &workspace, scoped, site, reads };
    dispatch::invoke(&call, path, input).await.map(|output| output.value)
}
