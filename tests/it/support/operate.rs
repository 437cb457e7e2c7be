//! Operations called from outside turns, as the API calls them.

use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::authority::{Authority, Capability, ResourcePath};
use trellis::domain::ids::{EventId, Owner};
use trellis::domain::lattice::layout::Scope;
use trellis::store::StoreError;
use trellis::venue::Venue;
use trellis::venue::operation::{Caller, Invocation, NO_SECTIONS, OpError, Reads, Site, dispatch};
use trellis::venue::operation_jobs::{self, RunOutcome, RunTerms};
use trellis::venue::workspace::Workspace;

/// A caller who may do everything of an owner.
pub fn boss(owner: &Owner) -> Caller {
    Caller::new(owner.clone(), "local/me".into(), Authority::without_limits())
}

/// A caller who has these capabilities and no others.
pub fn limited(owner: &Owner, caps: Value) -> Caller {
    let caps: Vec<Capability> = serde_json::from_value(caps).unwrap();
    Caller { authority: Authority::new(Some(caps)), ..boss(owner) }
}

/// A resource as a capability spells it.
pub fn on(with: &str) -> ResourcePath {
    ResourcePath::from_capability(&Capability { with: with.into(), can: "*".into() })
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
    let (catalog, scoped) = (&venue.catalog_view(&caller.owner), &NO_SECTIONS);
    let (reads, site) = (&Reads::default(), Site::Api { key, job: None });
    let workspace = &workspace;
    let call = Invocation { named: path, venue, catalog, caller, workspace, scoped, site, reads, fills_prompt: false };
    dispatch::invoke(&call, path, input).await.map(|output| output.value)
}

/// Runs what callers of an owner have invoked, as a worker does, each once.
pub async fn as_worker(venue: &Venue, owner: &Owner) {
    worked(venue, owner).await.unwrap();
}

/// The same as far as the store lets it.
pub async fn try_as_worker(venue: &Venue, owner: &Owner) {
    let _ = worked(venue, owner).await;
}

async fn worked(venue: &Venue, owner: &Owner) -> Result<(), StoreError> {
    let terms = RunTerms { worker: "by hand", lease: Duration::from_secs(30), crash_limit: 5 };
    for job in operation_jobs::list_due(venue, owner).await? {
        let Some(held) = operation_jobs::acquire(venue, owner, &job, terms).await? else { continue };
        if let RunOutcome::Ended(result) = operation_jobs::run(venue, owner, &held).await? {
            operation_jobs::end(venue, owner, &held, &result).await?;
        }
    }
    Ok(())
}
