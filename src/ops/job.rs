//! `v/ops/job/*`: run an operation by its path, look at a job, hold it.

mod batch;
mod bulk;
mod hold;

use crate::domain::authority::ResourcePath;
use crate::domain::ids::JobId;
use crate::domain::tools::guard::RUN;
use crate::venue::approvals;
use crate::venue::jobs;
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, Spec, dispatch};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Covia's names of these operations.
pub const ALIASES: [(&str, &str); 5] = [
    ("v/ops/grid/run", "v/ops/job/run"),
    ("v/ops/grid/job-result", "v/ops/job/result"),
    ("v/ops/grid/jobResult", "v/ops/job/result"),
    ("v/ops/grid/job-status", "v/ops/job/result"),
    ("v/ops/grid/jobStatus", "v/ops/job/result"),
];

/// Longest wait for a job in one call.
const MAX_WAIT: Duration = Duration::from_mins(2);

struct JobResult;

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let mut all: Vec<Arc<dyn Operation>> = vec![Arc::new(JobRun), Arc::new(JobResult), Arc::new(bulk::Bulk)];
    all.extend(hold::Verb::ALL.map(|verb| Arc::new(verb) as Arc<dyn Operation>));
    all
}

/// Another operation under a name that every agent has: never more than that operation itself.
struct JobRun;

#[async_trait]
impl Operation for JobRun {
    fn spec(&self) -> Spec {
        Spec {
            path: RUN,
            description: "Run an operation of the catalog (v/ops lists them) with `input` and wait for its output. It \
                          needs what that operation needs.",
            input: json!({
                "type": "object",
                "properties": {
                    "operation": {"type": "string", "description": "catalog path, e.g. v/ops/json/merge"},
                    "input": {"description": "the operation's arguments"}
                },
                "required": ["operation"],
                "additionalProperties": false
            }),
            // Of a call it is the effect of what it runs; who doesn't ask for that fears the worst.
            effect: Effect::Once,
        }
    }

    fn needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(Vec::new())
    }

    fn inner(&self, arguments: &mut Value) -> Option<(String, Value)> {
        let operation = arguments["operation"].as_str()?.to_owned();
        let input = arguments.get_mut("input").map(Value::take).unwrap_or_default();
        Some((operation, input))
    }

    async fn invoke(&self, call: &Invocation<'_>, mut arguments: Value) -> Result<Output, OpError> {
        let (operation, input) = self.inner(&mut arguments).unwrap_or_default();
        dispatch::invoke(call, &operation, input).await
    }
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
                "properties": {
                    "id": {"type": "string"},
                    "wait": {"type": "integer", "minimum": 0},
                    "timeout": {"type": "integer", "minimum": 0, "description": "the same as `wait`"}
                },
                "required": ["id"],
                "additionalProperties": false
            }),
            effect: Effect::Read,
        }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: "crud/read", resource: ResourcePath::job(&job_id(arguments)?) }])
    }

    fn reads_job(&self, arguments: &Value) -> Option<JobId> {
        job_id(arguments).ok()
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let id = job_id(&arguments)?;
        let wait = Duration::from_millis(arguments["wait"].as_u64().or(arguments["timeout"].as_u64()).unwrap_or(0))
            .min(MAX_WAIT);
        let job = jobs::wait(call.venue, &call.caller.owner, &id, wait).await?;
        let job = job.ok_or_else(|| OpError::NotFound(format!("no job `{id}`")))?;
        Ok(approvals::shown(call.venue, call.caller, &job).await?.into())
    }
}
