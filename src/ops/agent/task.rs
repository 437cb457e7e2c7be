//! Tasks that somebody outside their agent ends: `complete-task`, `fail-task`.

use super::checks::find_existing;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::JobId;
use crate::domain::job::{ErrorCode, Job, JobResult};
use crate::domain::outputs;
use crate::store::FinishOutcome;
use crate::venue::jobs;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use crate::view::agent::EndedTaskView;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Returns the operations of this group.
pub(super) fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<CompleteTask>(), operation::<FailTask>()]
}

/// Whether an operation takes the task that a connection names for all of its calls.
pub fn is_of_task(path: &str) -> bool {
    [CompleteTask::PATH, FailTask::PATH].contains(&path)
}

/// Returns what a call needs on the task that it names.
fn task_needs(task: Option<&JobId>) -> Result<Vec<Need>, OpError> {
    Need::only("job/complete", ResourcePath::job(named_task(task)?))
}

fn named_task(task: Option<&JobId>) -> Result<&JobId, OpError> {
    task.ok_or_else(|| {
        OpError::Invalid(
            "no task is in scope: name `taskId`, or send the header `X-Trellis-Task`; an agent ends its own task with \
             the tools `complete_task` and `fail_task`"
                .into(),
        )
    })
}

/// Finds the job of a task, which must be of this agent, if one is named.
async fn find_task(call: &Invocation<'_>, agent: Option<&str>, task: Option<&JobId>) -> Result<Job, OpError> {
    let id = named_task(task)?;
    let is_it = |job: &Job| job.head.op.is_none() && agent.is_none_or(|agent| agent == job.head.agent.as_str());
    let job = jobs::get(call.venue, &call.caller.owner, id).await?.filter(is_it);
    let job = job.ok_or_else(|| OpError::NotFound(format!("no task `{id}`")))?;
    if let Site::Turn(site) = &call.site
        && site.parent.job.as_ref() == Some(id)
    {
        return Err(OpError::Conflict("its own task an agent ends with `complete_task` or `fail_task`".into()));
    }
    Ok(job)
}

/// Ends a task with a result.
async fn end_task(call: &Invocation<'_>, job: &Job, result: &JobResult) -> Result<OpOutput, OpError> {
    let (venue, owner, id) = (call.venue, &call.caller.owner, &job.head.id);
    venue.check_end_room(owner, serde_json::to_vec(result).map_or(0, |bytes| bytes.len())).await?;
    let children = jobs::child_cancel_messages(venue, owner, id, result.status).await?;
    match jobs::end(venue, owner, job, result, children).await? {
        FinishOutcome::Done => {
            let (agent_id, task_id) = (job.head.agent.clone(), id.clone());
            Ok(OpOutput::of(&EndedTaskView { agent_id, task_id, status: result.status }))
        }
        FinishOutcome::Already(status) => {
            Err(OpError::Conflict(format!("task `{id}` has ended before: it is {}", status.as_str())))
        }
        FinishOutcome::Unknown => Err(OpError::NotFound(format!("no task `{id}`"))),
    }
}

/// Complete a task of an agent for it, with a result of the type that was asked for. A turn that works on it ends without
/// effect; what it has started is cancelled.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CompleteTask {
    agent_id: Option<String>,
    /// the job of the task; over HTTP the header X-Trellis-Task says it, too
    task_id: Option<JobId>,
    #[serde(default)]
    result: Value,
}

impl Operation for CompleteTask {
    const PATH: &'static str = "v/ops/agent/complete-task";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        task_needs(self.task_id.as_ref())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let job = find_task(call, self.agent_id.as_deref(), self.task_id.as_ref()).await?;
        check_result(call, &job, &self.result).await?;
        end_task(call, &job, &JobResult::complete(self.result)).await
    }
}

/// Fail a task of an agent for it. A turn that works on it ends without effect; what it has started is cancelled.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FailTask {
    agent_id: Option<String>,
    /// the job of the task; over HTTP the header X-Trellis-Task says it, too
    task_id: Option<JobId>,
    /// what went wrong, for whoever asked
    error: String,
}

impl Operation for FailTask {
    const PATH: &'static str = "v/ops/agent/fail-task";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        task_needs(self.task_id.as_ref())
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let job = find_task(call, self.agent_id.as_deref(), self.task_id.as_ref()).await?;
        end_task(call, &job, &JobResult::failure(ErrorCode::TaskFailed, &self.error)).await
    }
}

/// Checks that a result fits the schema that the caller of the task was promised.
async fn check_result(call: &Invocation<'_>, job: &Job, result: &Value) -> Result<(), OpError> {
    let record = find_existing(call, &job.head.agent).await?;
    let request = job.head.request.as_deref();
    if request.is_some_and(|request| request.output_path.is_some()) {
        return Err(OpError::Conflict(format!(
            "task `{}` can't be completed for its agent, whose own commit is to write the output (`outputPath`); it can \
             be failed or cancelled",
            job.head.id
        )));
    }
    let own = record.config.outputs.complete.map(|output| output.schema);
    let schema = request.and_then(|request| request.response_schema.clone()).or(own);
    match schema.and_then(|schema| outputs::misfit_text(&schema, result)) {
        None => Ok(()),
        Some(wrong) => Err(OpError::Invalid(format!("`result` is not what was asked for: {wrong}"))),
    }
}
