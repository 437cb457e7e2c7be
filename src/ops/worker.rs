//! `v/ops/worker/*`: list workers, and order some to drain.

use crate::domain::authority::ResourcePath;
use crate::domain::worker_registry::DrainTarget;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::registry;
use crate::view::worker::WorkerDrainView;
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<ListWorkers>(), operation::<DrainWorkers>()]
}

/// Workers of the venue: what each says of itself, and whether it was told to leave.
#[derive(Deserialize, JsonSchema)]
struct ListWorkers {}

impl Operation for ListWorkers {
    const PATH: &'static str = "v/ops/worker/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("worker/list", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        Ok(OpOutput::of(&registry::workers_view(call.venue).await?))
    }
}

/// Tell workers to leave, as SIGTERM does: they take nothing new, end or hand back what they have, and end.
#[derive(Deserialize, JsonSchema)]
struct DrainWorkers {
    /// names of the workers
    #[serde(default)]
    workers: Vec<String>,
    /// all on this machine
    host: Option<String>,
}

impl Operation for DrainWorkers {
    const PATH: &'static str = "v/ops/worker/drain";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("worker/drain", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        let whom = DrainTarget { names: self.workers, host: self.host };
        let told = registry::drain(call.venue, &whom, &call.caller.name).await?;
        // A local worker ends this process, so that a caller who waits for the end must ask elsewhere.
        let here = call.venue.local.name().filter(|name| told.contains(name));
        Ok(OpOutput::of(&WorkerDrainView { draining: told, here }))
    }
}
