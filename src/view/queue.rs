//! Answers over the queue to clients that publish into it. [`Completion`](crate::domain::event::Completion) is the end
//! of a submission.

use super::job::WaitView;
use crate::domain::ids::JobId;
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
}
