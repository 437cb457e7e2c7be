//! The tools that every caller has: submit a task, read, await and cancel a job, answer an approval.

use super::call::McpCall;
use super::job_wait::{read_record, wait_for_end};
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::{AgentId, EventId, JobId, SessionId};
use crate::domain::job::JobStatus;
use crate::http::jobs::{check_sight, ended_before_cancellation, unknown_job};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::venue::jobs::{self, CancelOutcome};
use crate::venue::operation_jobs;
use crate::view::approval::ApprovalView;
use crate::view::job::JobView;
use crate::view::mcp::{McpJobView, McpTool, McpToolHints, McpToolResult};
use crate::view::request::{AnswerRequest, ApproveRequest, RejectRequest, StartedRequestView};
use crate::view::to_json;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// The operation that starts a job of an agent.
const REQUEST: &str = "v/ops/agent/request";

/// Longest wait of one call: below the minute after which common clients give up a request.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(50);

/// Names of the tools.
const SUBMIT: &str = "submit_task";
const GET: &str = "get_job";
const WAIT: &str = "wait_for_job";
const CANCEL: &str = "cancel_job";
const ANSWER: &str = "answer_approval";

/// Give a task to an agent. Returns the id of its job at once; `wait_for_job` waits for the output.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubmitTask {
    /// Name of the agent.
    agent: AgentId,
    /// The task: a text, or any JSON that the agent expects.
    input: Value,
    /// Conversation that the task continues; absent: a new one.
    session: Option<SessionId>,
    /// Your own id of the task: under the same key it is done once, however often it is submitted.
    key: Option<String>,
}

/// Read a job: its status, its output or error, and the approvals that it waits for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetJob {
    /// Id of the job.
    job: JobId,
}

/// Wait until a job has ended or waits for a person, and read it. A job that goes on longer is returned as it is then:
/// call this again.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WaitForJob {
    /// Id of the job.
    job: JobId,
    /// Seconds to wait, at most 50, which is the default.
    seconds: Option<u64>,
}

/// Cancel a job and the jobs that it has started.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CancelJob {
    /// Id of the job.
    job: JobId,
    /// Why, for its record.
    reason: Option<String>,
}

/// Answer an approval that a job waits for, as the user has decided: `approve` for a call, `answers` for questions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerApproval {
    /// Id of the approval, as `get_job` shows it.
    approval: JobId,
    /// Whether the call is made; false also declines questions.
    approve: Option<bool>,
    /// Why not, for the agent.
    reason: Option<String>,
    /// An answer for each question, by its id.
    answers: Option<Map<String, Value>>,
    /// Arguments of the call in place of those of the agent.
    arguments: Option<Map<String, Value>>,
    /// `digest` of the approval as the user saw it: if it is another one by now, the answer is refused.
    digest: Option<String>,
}

/// Arguments of [`REQUEST`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StartTaskRequest<'a> {
    pub(super) agent_id: &'a AgentId,
    pub(super) input: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<SessionId>,
    /// Milliseconds to wait for a fast answer: none.
    pub(super) timeout: u64,
}

/// Lists these tools.
pub(super) fn list() -> Vec<McpTool> {
    let job = type_schema::<McpJobView>();
    let changes =
        |is_destructive| McpToolHints { read_only: false, destructive: is_destructive, idempotent: is_destructive };
    let reads = McpToolHints { read_only: true, destructive: false, idempotent: true };
    vec![
        tool::<SubmitTask>(SUBMIT, "Submit a task", job.clone(), changes(false)),
        tool::<GetJob>(GET, "Read a job", job.clone(), reads),
        tool::<WaitForJob>(WAIT, "Wait for a job", job.clone(), reads),
        tool::<CancelJob>(CANCEL, "Cancel a job", job, changes(true)),
        tool::<AnswerApproval>(ANSWER, "Answer an approval", type_schema::<ApprovalView>(), changes(true)),
    ]
}

/// Describes the arguments of a tool by their type, whose comment is the description.
fn tool<T: JsonSchema>(name: &str, title: &str, output: Value, annotations: McpToolHints) -> McpTool {
    let mut input_schema = type_schema::<T>();
    let description = input_schema.as_object_mut().and_then(|schema| schema.shift_remove("description"));
    let description = description.as_ref().and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
    McpTool {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description,
        input_schema,
        output_schema: Some(output),
        annotations,
    }
}

/// Returns the schema of a type, without references.
fn type_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.shift_remove("title");
    }
    schema
}

/// Calls a tool; `None` if it is none of these.
pub(super) async fn call(call: &McpCall, name: &str, arguments: &Value) -> Option<Result<McpToolResult, Problem>> {
    Some(match name {
        SUBMIT => submit(call, arguments).await,
        GET => get(call, arguments).await,
        WAIT => wait(call, arguments).await,
        CANCEL => cancel(call, arguments).await,
        ANSWER => answer(call, arguments).await,
        _ => return None,
    })
}

fn decode_arguments<T: DeserializeOwned>(arguments: &Value) -> Result<T, Problem> {
    decode::typed_with_hint(arguments).map_err(Problem::invalid_data)
}

/// Starts a job of an agent and returns its record. Once it returns the job is stored.
pub(super) async fn start(
    call: &McpCall,
    key: Option<EventId>,
    request: &StartTaskRequest<'_>,
) -> Result<JobView, Problem> {
    let (venue, who) = (&call.api.venue, &call.who);
    who.release_read_memory();
    let key = key.or_else(|| who.key.clone());
    let output = operation_jobs::operate(venue, &who.catalog, &who.caller, key, REQUEST, to_json(request)).await?;
    let started: StartedRequestView = read_output(output)?;
    read_record(call, &started.job).await
}

async fn submit(call: &McpCall, arguments: &Value) -> Result<McpToolResult, Problem> {
    let SubmitTask { agent, input, session, key } = decode_arguments(arguments)?;
    let key = key.map(EventId::new).transpose();
    let key = key.map_err(|error| Problem::bad_request(format!("`key`: {error}")))?;
    let request = StartTaskRequest { agent_id: &agent, input, session_id: session, timeout: 0 };
    Ok(McpToolResult::of_job(&start(call, key, &request).await?))
}

async fn get(call: &McpCall, arguments: &Value) -> Result<McpToolResult, Problem> {
    let GetJob { job } = decode_arguments(arguments)?;
    check_sight(&call.api, &call.who, &job).await?;
    Ok(McpToolResult::of_job(&read_record(call, &job).await?))
}

async fn wait(call: &McpCall, arguments: &Value) -> Result<McpToolResult, Problem> {
    let WaitForJob { job, seconds } = decode_arguments(arguments)?;
    check_sight(&call.api, &call.who, &job).await?;
    let limit = seconds.map_or(LONGEST_WAIT, Duration::from_secs).min(LONGEST_WAIT);
    Ok(McpToolResult::of_job(&wait_for_end(call, &job, limit).await?))
}

async fn cancel(call: &McpCall, arguments: &Value) -> Result<McpToolResult, Problem> {
    let CancelJob { job, reason } = decode_arguments(arguments)?;
    if let CancelOutcome::Already(ended) = cancel_job(call, &job, reason.as_deref()).await? {
        return Err(ended_before_cancellation(&ended));
    }
    Ok(McpToolResult::of_job(&read_record(call, &job).await?))
}

/// Cancels a job that the caller may cancel. A job that was cancelled before counts as cancelled now.
pub(super) async fn cancel_job(call: &McpCall, id: &JobId, reason: Option<&str>) -> Result<CancelOutcome, Problem> {
    let permitted = call.who.caller.authority.permits("job/cancel", ResourcePath::job(id));
    permitted.map_err(|denied| Problem::forbidden(denied.model_text(CANCEL)))?;
    match jobs::cancel(&call.api.venue, call.owner(), id, reason).await? {
        CancelOutcome::Unknown => Err(unknown_job(id)),
        CancelOutcome::Already(job) if job.status == JobStatus::Cancelled => Ok(CancelOutcome::Done(job)),
        outcome @ (CancelOutcome::Done(_) | CancelOutcome::Already(_)) => Ok(outcome),
    }
}

async fn answer(call: &McpCall, arguments: &Value) -> Result<McpToolResult, Problem> {
    let given: AnswerApproval = decode_arguments(arguments)?;
    if given.arguments.is_some() && given.approve != Some(true) {
        return Err(Problem::bad_request("`arguments` counts only with `approve`: true"));
    }
    let id = given.approval.as_str();
    let digest = given.digest;
    let (verb, request) = match (given.approve, given.answers) {
        (Some(true), None) => {
            let arguments = given.arguments.map(Value::Object);
            ("approve", to_json(&ApproveRequest { id, arguments, scopes: None, digest }))
        }
        (Some(false), None) => ("reject", to_json(&RejectRequest { id, reason: given.reason, digest })),
        (None, Some(answers)) => ("answer", to_json(&AnswerRequest { id, answers, digest })),
        (None, None) | (Some(_), Some(_)) => {
            return Err(Problem::bad_request("expected either `approve` or `answers`"));
        }
    };
    let answered: ApprovalView = answer_approval(call, verb, request).await?;
    let verdict = answered.answer.as_ref().and_then(|answer| answer.verdict.clone()).unwrap_or_default();
    let text = format!("approval {} is {verdict}", answered.id);
    Ok(McpToolResult::value(text, to_json(&answered)))
}

/// Runs the operation that answers an approval: it checks whether the caller may.
pub(super) async fn answer_approval(call: &McpCall, verb: &str, request: Value) -> Result<ApprovalView, Problem> {
    let output = operate(&call.api, &call.who, &format!("v/ops/approval/{verb}"), request).await?;
    read_output(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_tool_has_a_description_and_the_schema_of_a_map() {
        let tools = list();
        assert_eq!(tools.len(), 5);
        for tool in tools {
            assert!(tool.description.len() > 20 && !tool.description.contains('\n'), "{tool:?}");
            assert_eq!(tool.input_schema["type"], "object", "{tool:?}");
            let output = tool.output_schema.unwrap();
            assert_eq!((&output["type"], output.get("$defs")), (&json!("object"), None), "{output}");
        }
    }

    #[test]
    fn an_unknown_argument_is_an_error_with_its_name() {
        let error = decode_arguments::<GetJob>(&json!({"job": "0".repeat(32), "jop": 1})).map(|_| ()).unwrap_err();
        assert!(error.detail.contains("jop"), "{}", error.detail);
    }
}
