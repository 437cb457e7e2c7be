//! `v/ops/job/*`: run an operation by its path, read a job, pause and resume it.

mod batch;
mod bulk;
mod pausing;
mod outcomes;

use crate::domain::authority::ResourcePath;
use crate::domain::ids::JobId;
use crate::domain::lattice::catalog::RUN;
use crate::venue::job_view;
use crate::venue::jobs::{self, waiting_message};
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, dispatch, operation,
};
pub use batch::BatchAction;
use bulk::BulkJobs;
use outcomes::{ListOutcomes, SettleOutcome};
use pausing::{MessageJob, PauseJob, ResumeJob};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Covia's names of these operations.
pub const ALIASES: [(&str, &str); 6] = [
    ("v/ops/grid/run", RUN),
    ("v/ops/grid/invoke", RUN),
    ("v/ops/grid/job-result", "v/ops/job/result"),
    ("v/ops/grid/jobResult", "v/ops/job/result"),
    ("v/ops/grid/job-status", "v/ops/job/result"),
    ("v/ops/grid/jobStatus", "v/ops/job/result"),
];

/// Longest wait for a job in one call.
const MAX_WAIT: Duration = Duration::from_mins(2);

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<RunOperation>(),
        operation::<ReadJob>(),
        operation::<BulkJobs>(),
        operation::<PauseJob>(),
        operation::<ResumeJob>(),
        operation::<MessageJob>(),
        operation::<ListOutcomes>(),
        operation::<SettleOutcome>(),
    ]
}

/// Run an operation of the catalog (v/ops lists them) with `input` and wait for its output. It needs what that operation
/// needs.
#[derive(Deserialize, JsonSchema)]
struct RunOperation {
    /// catalog path, e.g. v/ops/json/merge, or what stands for an operation: o/<pin>, a definition w/…, a/<hash>
    operation: String,
    /// the operation's arguments
    #[serde(default)]
    input: Value,
    /// this venue, by its name, address or DID: operations run at no other
    #[serde(default, rename = "venue")]
    _venue: Option<String>,
}

/// Runs another operation under a name that every agent has. [`dispatch::resolve_call`] replaces the call by one of that
/// operation, whose needs and effect count.
impl Operation for RunOperation {
    const PATH: &'static str = RUN;
    /// What is run may take them.
    const TAKES_SECTIONS: bool = true;
    // A call has the effect of the operation that it runs; this one is for callers that don't resolve it.
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Box::pin(dispatch::invoke(call, &self.operation, self.input)).await
    }
}

/// Status of a job, and its output or error once it has ended; `wait` ms at most for that.
#[derive(Deserialize, JsonSchema)]
struct ReadJob {
    id: JobId,
    wait: Option<u64>,
    /// the same as `wait`
    timeout: Option<u64>,
    /// this venue, by its name, address or DID: jobs of no other are known
    venue: Option<String>,
}

impl Operation for ReadJob {
    const PATH: &'static str = "v/ops/job/result";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::job(&self.id))
    }

    fn reads_job(&self) -> Option<JobId> {
        Some(self.id.clone())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.catalog.check_venue(self.venue.map(Value::from).as_ref())?;
        let wait = Duration::from_millis(self.wait.or(self.timeout).unwrap_or(0)).min(MAX_WAIT);
        let job = jobs::wait(call.venue, &call.caller.owner, &self.id, wait).await?;
        let Some(job) = job else {
            return Err(OpError::NotFound(
                waiting_message::missing_reason(call.venue, &call.caller.owner, &self.id).await,
            ));
        };
        Ok(OpOutput::of(&job_view::record_for(call.venue, call.caller, &job).await?))
    }
}
