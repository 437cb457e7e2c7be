//! `v/ops/job/*`: look at a job.

use super::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use crate::domain::ids::JobId;
use crate::jobs;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Covia's names of these operations.
pub const ALIASES: [(&str, &str); 1] = [("v/ops/grid/job-result", "v/ops/job/result")];

/// Longest wait for a job in one call.
const MAX_WAIT: Duration = Duration::from_mins(2);

struct JobResult;

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    vec![Arc::new(JobResult)]
}

fn job_id(arguments: &Value) -> Result<JobId, OpError> {
    JobId::new(arguments["id"].as_str().unwrap_or_default()).map_err(|e| OpError::Invalid(e.to_string()))
}

#[async_trait]
impl Operation for JobResult {
    fn spec(&self) -> Spec {
        Spec {
            path: "v/ops/job/result",
            description: "Status of a job, and its output or error once it has ended; `wait` ms at most for that.",
            input: json!({
                "type": "object",
                "properties": {"id": {"type": "string"}, "wait": {"type": "integer", "minimum": 0}},
                "required": ["id"],
                "additionalProperties": false
            }),
            effect: Effect::Read,
        }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: "crud/read", resource: format!("j/{}", job_id(arguments)?) }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let id = job_id(&arguments)?;
        let wait = Duration::from_millis(arguments["wait"].as_u64().unwrap_or(0)).min(MAX_WAIT);
        let job = jobs::wait(call.venue, &call.caller.owner, &id, wait).await?;
        let job = job.ok_or_else(|| OpError::NotFound(format!("no job `{id}`")))?;
        Ok(job.to_json().into())
    }
}
