//! The extension `io.modelcontextprotocol/tasks`: a task is a job, which every process of a fleet reads, answers and
//! cancels. Whose job it is, is checked at each request.

use super::call::{McpCall, to_result};
use super::inputs::{ApprovalReply, read_reply};
use super::job_tools::{answer_approval, cancel_job};
use super::job_wait::read_record;
use super::refusal::{INVALID_PARAMS, RpcRefusal};
use crate::domain::ids::JobId;
use crate::http::jobs::check_sight;
use crate::http::problem::Problem;
use crate::view::mcp::McpTask;
use axum::http::StatusCode;
use serde_json::{Map, Value};

/// `tasks/get`: reads the job, with the result of the call once it has ended.
pub(super) async fn get(call: &McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    let id = task_id(call).await?;
    Ok(to_result(&read_task(call, &id).await?))
}

/// Reads a job as a task.
pub(super) async fn read_task(call: &McpCall, id: &JobId) -> Result<McpTask, RpcRefusal> {
    let record = read_record(call, id).await.map_err(as_unknown)?;
    Ok(McpTask::new(&record, call.client.asks_people))
}

/// `tasks/update`: answers approvals of the job, by their ids. What is no open question of it is ignored.
pub(super) async fn update(call: &McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    let id = task_id(call).await?;
    let replies: Map<String, Value> = call.parameter("inputResponses")?;
    let record = read_record(call, &id).await.map_err(as_unknown)?;
    for approval in record.approvals.iter().flatten().filter(|approval| approval.answer.is_none()) {
        let Some(given) = replies.get(approval.id.as_str()) else { continue };
        match read_reply(approval, given)? {
            ApprovalReply::Later => {}
            ApprovalReply::Now { verb, request } => {
                answer_approval(call, verb, request).await?;
            }
        }
    }
    Ok(Map::new())
}

/// `tasks/cancel`: cancels the job; one that has ended stays as it is.
pub(super) async fn cancel(call: &McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    let id = task_id(call).await?;
    cancel_job(call, &id, None).await.map_err(as_unknown)?;
    Ok(Map::new())
}

/// Returns the job of a request, which the caller may see.
async fn task_id(call: &McpCall) -> Result<JobId, RpcRefusal> {
    call.client.require_tasks()?;
    parse_task(call, call.required_text("taskId")?).await
}

/// Reads the id of a task that the caller may see.
pub(super) async fn parse_task(call: &McpCall, text: &str) -> Result<JobId, RpcRefusal> {
    let id = JobId::new(text).map_err(|error| RpcRefusal::new(INVALID_PARAMS, error))?;
    check_sight(&call.api, &call.who, &id).await.map_err(as_unknown)?;
    Ok(id)
}

/// Gives the error of a job that the caller may not see the code of one that doesn't exist.
fn as_unknown(problem: Problem) -> RpcRefusal {
    let is_hidden = matches!(problem.status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN);
    if is_hidden { RpcRefusal::new(INVALID_PARAMS, problem.detail) } else { problem.into() }
}
