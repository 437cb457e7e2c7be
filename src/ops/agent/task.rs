//! Tasks ended from outside their agent, by whoever does what they ask: `complete-task`, `fail-task`.

use super::{no_agent, schema};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, JobId};
use crate::domain::job::{ErrorCode, Job, JobResult};
use crate::domain::outputs;
use crate::store::Finished;
use crate::venue::agents;
use crate::venue::jobs;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    Complete,
    Fail,
}

struct Task(Verb);

/// The operations of this group.
pub(super) fn operations() -> impl Iterator<Item = Arc<dyn Operation>> {
    [Verb::Complete, Verb::Fail].into_iter().map(|verb| Arc::new(Task(verb)) as Arc<dyn Operation>)
}

/// Those whose task a connection may name for all of its calls.
pub fn is_of_task(path: &str) -> bool {
    [Verb::Complete, Verb::Fail].iter().any(|verb| verb.path() == path)
}

impl Verb {
    const fn path(self) -> &'static str {
        match self {
            Self::Complete => "v/ops/agent/complete-task",
            Self::Fail => "v/ops/agent/fail-task",
        }
    }
}

fn task_id(arguments: &Value) -> Result<JobId, OpError> {
    let Some(text) = arguments["taskId"].as_str() else {
        return Err(OpError::Invalid(
            "no task is in scope: name `taskId`, or send the header `X-Trellis-Task`; an agent ends its own task with \
             the tools `complete_task` and `fail_task`"
                .into(),
        ));
    };
    JobId::new(text).map_err(|error| OpError::Invalid(format!("`taskId`: {error}")))
}

#[async_trait]
impl Operation for Task {
    fn spec(&self) -> Spec {
        let text = |about: &str| json!({"type": "string", "description": about});
        let task = text("the job of the task; over HTTP the header X-Trellis-Task says it, too");
        let (description, properties, required) = match self.0 {
            Verb::Complete => (
                "Complete a task of an agent for it, with a result of the type that was asked for. A turn that works on it ends without effect; what it has started is cancelled.",
                json!({"agentId": {"type": "string"}, "taskId": task, "result": {}}),
                vec![],
            ),
            Verb::Fail => (
                "Fail a task of an agent for it. A turn that works on it ends without effect; what it has started is cancelled.",
                json!({"agentId": {"type": "string"}, "taskId": task, "error": text("what went wrong, for whoever asked")}),
                vec!["error"],
            ),
        };
        let input = schema(&properties, &required);
        Spec { path: self.0.path(), description, input, effect: Effect::Idempotent }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: "job/complete", resource: ResourcePath::job(&task_id(arguments)?) }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let (venue, owner, id) = (call.venue, &call.caller.owner, task_id(&arguments)?);
        let agent = arguments["agentId"].as_str();
        let is_it = |job: &Job| job.head.op.is_none() && agent.is_none_or(|agent| agent == job.head.agent.as_str());
        let job = jobs::get(venue, owner, &id).await?.filter(is_it);
        let job = job.ok_or_else(|| OpError::NotFound(format!("no task `{id}`")))?;
        if let Site::Turn(site) = &call.site
            && site.parent.job.as_ref() == Some(&id)
        {
            return Err(OpError::Conflict("its own task an agent ends with `complete_task` or `fail_task`".into()));
        }
        let result = match self.0 {
            Verb::Complete => {
                fits(call, &job, &arguments["result"]).await?;
                JobResult::complete(arguments["result"].clone())
            }
            Verb::Fail => JobResult::failed(ErrorCode::TaskFailed, arguments["error"].as_str().unwrap_or_default()),
        };
        let children = jobs::cancel_children(venue, owner, &id, result.status).await?;
        match jobs::end(venue, owner, &job, &result, children).await? {
            Finished::Done => {
                let status = result.status.as_str();
                Ok(json!({"agentId": job.head.agent, "taskId": id, "status": status}).into())
            }
            Finished::Already(status) => {
                Err(OpError::Conflict(format!("task `{id}` has ended before: it is {}", status.as_str())))
            }
            Finished::Unknown => Err(OpError::NotFound(format!("no task `{id}`"))),
        }
    }
}

/// Whether a result is what whoever asked was promised.
async fn fits(call: &Invocation<'_>, job: &Job, result: &Value) -> Result<(), OpError> {
    let agent: &AgentId = &job.head.agent;
    let Some((record, _)) = agents::get(call.venue, &call.caller.owner, agent).await? else {
        return Err(no_agent(agent));
    };
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
    match schema.and_then(|schema| outputs::wrong(&schema, result)) {
        None => Ok(()),
        Some(wrong) => Err(OpError::Invalid(format!("`result` is not what was asked for: {wrong}"))),
    }
}
