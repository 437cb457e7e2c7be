//! Jobs as tasks of the extension `io.modelcontextprotocol/tasks`.

use super::elicitation::McpInputRequest;
use super::job::{McpJobView, McpToolResult};
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::view::job::JobView;
use serde::Serialize;
use std::collections::BTreeMap;

/// Milliseconds after which a client asks again.
const POLL_INTERVAL_MS: u64 = 1_000;

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTaskStatus {
    /// The job has not ended.
    Working,
    /// The client can answer an approval that the job waits for.
    InputRequired,
    /// The job has ended, with or without an output.
    Completed,
    /// The job was cancelled.
    Cancelled,
}

/// A job as a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpTask {
    /// Id of the job.
    pub task_id: JobId,
    /// State of the task.
    pub status: McpTaskStatus,
    /// State in words.
    pub status_message: String,
    /// Time of acceptance, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub last_updated_at: String,
    /// Lifetime in milliseconds; null: it ends with the retention of jobs.
    pub ttl_ms: Option<u64>,
    /// Milliseconds after which a client asks again.
    pub poll_interval_ms: u64,
    /// Result of the call, once the job has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<McpToolResult>,
    /// Questions to the client by the ids of their approvals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<BTreeMap<String, McpInputRequest>>,
}

impl McpTask {
    /// Makes the task of a job. Questions go to clients that `asks` people; for others the task works.
    pub fn new(record: &JobView, asks: bool) -> Self {
        let requests = if asks { input_requests(record) } else { BTreeMap::new() };
        let status = match record.status {
            JobStatus::Complete | JobStatus::Failed | JobStatus::Rejected => McpTaskStatus::Completed,
            JobStatus::Cancelled => McpTaskStatus::Cancelled,
            JobStatus::InputRequired if !requests.is_empty() => McpTaskStatus::InputRequired,
            JobStatus::Pending
            | JobStatus::Started
            | JobStatus::Paused
            | JobStatus::InputRequired
            | JobStatus::AuthRequired => McpTaskStatus::Working,
        };
        let status_message = match status {
            McpTaskStatus::Completed => format!("job {} is {}", record.id, record.status.as_str()),
            McpTaskStatus::Working | McpTaskStatus::InputRequired | McpTaskStatus::Cancelled => {
                McpJobView::from(record).text()
            }
        };
        Self {
            task_id: record.id.clone(),
            status,
            status_message,
            created_at: record.created.rfc3339(),
            last_updated_at: record.updated.rfc3339(),
            ttl_ms: None,
            poll_interval_ms: POLL_INTERVAL_MS,
            result: (status == McpTaskStatus::Completed).then(|| McpToolResult::of_call(record)),
            input_requests: (status == McpTaskStatus::InputRequired).then_some(requests),
        }
    }
}

/// Returns the questions of a job's approvals that its reader may see and nobody has answered.
fn input_requests(record: &JobView) -> BTreeMap<String, McpInputRequest> {
    let open = record.approvals.iter().flatten().filter(|approval| approval.answer.is_none());
    open.filter_map(|approval| Some((approval.id.to_string(), McpInputRequest::of_approval(approval)?))).collect()
}
