//! Answers over the queue to clients that publish into it. [`Completion`](crate::domain::event::Completion) is the end
//! of a submission.

use super::job::WaitView;
use crate::domain::ids::{JobId, SessionId};
use crate::domain::job::JobStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a submission whose client has asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmissionStatusView {
    /// Its job; absent while no worker has admitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Status of the job.
    pub status: JobStatus,
    /// Why it waits; null while it runs, and after its end.
    pub waiting: Option<WaitView>,
    /// Why there can be no such submission: the question has no legal id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer to a direct submission that is admitted, as `JetStream` acknowledges a publish, with what the submitter needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectReceiptView {
    /// Stands in the place of a stream's name.
    pub stream: String,
    /// Number of the submission in the process that took it, from 1.
    pub seq: u64,
    /// Whether the same submission was accepted before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// Id of the submission: its own, or one that was made for it.
    pub id: String,
    /// Job of a task; absent for a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Session that serves it.
    pub session: SessionId,
    /// Ignored keys of the `sessionContext`, which the token claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// Abilities of the grants that nothing needs, each as a warning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Answer to a direct submission that is refused, as `JetStream` refuses a publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectRefusalView {
    /// Why it is refused.
    pub error: DirectErrorView,
}

/// Why a direct submission is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectErrorView {
    /// Status code, as over HTTP: after 429 and 503 it may be sent again under the same id.
    pub code: u16,
    /// 20000 and the status code.
    pub err_code: u32,
    /// What is wrong, and what to do.
    pub description: String,
}
