//! Answers about many jobs: pages of their list, and what was done with those that a filter takes; and the arguments that
//! several callers of that action send.

use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A page of an owner's jobs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobListPage {
    /// Ids of jobs; with `details` their records.
    pub items: Vec<Value>,
    /// Jobs in all. Absent where a list is filtered: it is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// Jobs before the page; absent of a filtered list, which goes on with `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Most items of a page.
    pub limit: usize,
    /// Where there is more: the `offset` of the next page, or of a filtered list its `cursor`; else null.
    #[schemars(extend("type" = ["integer", "string", "null"]))]
    pub next: Option<Value>,
    /// Of a filtered list with more behind it: it was looked through for jobs accepted since then, in milliseconds
    /// since 1970; null at its end. Absent of a list that isn't filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub looked_back_to: Option<Value>,
}

/// A filter of jobs as arguments of an operation; an absent or empty field excludes none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct JobFilterRequest {
    /// States of the job; any of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<JobStatus>,
    /// Codes with which the job ended; any of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<ErrorCode>,
    /// Earliest time of acceptance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Millis>,
    /// Latest time of acceptance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// Text in input, output or error, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    /// `next` of the page or batch before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Agent that serves the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Session that serves the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// Arguments of `v/ops/job/bulk`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BulkRequest {
    /// Which jobs, where `only` names none.
    #[serde(flatten)]
    pub filter: JobFilterRequest,
    /// These jobs, at most 100, in place of a filter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<JobId>,
    /// `cancel`, `pause`, `resume` or `redrive`.
    pub action: &'static str,
    /// Reason of a cancellation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True only counts the jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Number of jobs that were counted; needed for the first batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<usize>,
}

impl BulkRequest {
    /// Makes the request of an action on all jobs that it is for.
    pub fn new(action: &'static str) -> Self {
        let filter = JobFilterRequest::default();
        Self { filter, only: Vec::new(), action, reason: None, dry_run: None, expected: None }
    }
}

/// Result of an action on the jobs that a filter takes, or with `dryRun` their number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkView {
    /// Jobs of the batch that the filter takes; with `dryRun` all of them.
    pub matched: usize,
    /// Jobs on which the action was done.
    pub done: usize,
    /// Jobs that had ended meanwhile, or had been driven again before. Absent with `dryRun`, as the following keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub already: Option<usize>,
    /// Jobs on which the caller may not act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<usize>,
    /// Jobs on which the action failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<usize>,
    /// The first jobs on which the action failed, each with its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<BulkFailureView>>,
    /// The `cursor` of the next batch; null after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next: Option<Value>,
    /// Jobs accepted after that time are left alone, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub until: Millis,
    /// True where nothing was done; absent else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// A job on which an action failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BulkFailureView {
    /// Id of the job.
    pub id: JobId,
    /// Why it failed.
    pub error: String,
}
