//! The state of a task, with what the agent asks or why it failed.

use super::question::{question_parts, waiting_state};
use super::reader::TaskReader;
use super::session_of;
use crate::domain::approval::Approval;
use crate::domain::job::{Job, JobStatus};
use crate::store::StoreError;
use crate::venue::approvals;
use crate::view::a2a::{A2aMessage, A2aPart, A2aRole, A2aTaskState, A2aTaskStatus};
use crate::view::job::error_code_name;
use serde_json::{Map, Value};

impl TaskReader<'_> {
    /// Returns the unanswered approvals of a job, in the order of its calls.
    pub(super) async fn open_approvals(&self, job: &Job) -> Result<Vec<Approval>, StoreError> {
        if job.status != JobStatus::InputRequired {
            return Ok(Vec::new());
        }
        let (venue, owner) = (self.venue, &self.caller.owner);
        let awaited = approvals::list_awaited(venue, owner, &session_of(&job.head)).await?;
        let mut open = approvals::list_unanswered(venue, owner, &awaited).await?;
        open.retain(|approval| approval.job.as_ref() == Some(&job.head.id));
        open.sort_by_key(|approval| (approval.asked, approval.index));
        Ok(open)
    }

    /// Returns the state of a task.
    pub async fn status(&self, job: &Job) -> Result<A2aTaskStatus, StoreError> {
        let timestamp = Some(job.updated.rfc3339());
        let open = self.open_approvals(job).await?;
        let state = match job.status {
            JobStatus::InputRequired => waiting_state(&open),
            status => A2aTaskState::of_job(status),
        };
        if !self.sees_whole(job) {
            return Ok(A2aTaskStatus { state, message: None, timestamp });
        }
        let error = job.result.as_ref().and_then(|result| result.error.clone());
        let parts = error.map_or_else(|| question_parts(&open), |error| vec![A2aPart::of_text(error)]);
        let code = job.result.as_ref().and_then(|result| result.error_code).and_then(error_code_name);
        let metadata = code.map(|code| Map::from_iter([("errorCode".to_owned(), Value::String(code))]));
        let message = (!parts.is_empty()).then(|| A2aMessage {
            message_id: format!("{}-status-{}", job.head.id, job.updated),
            context_id: Some(job.head.session.to_string()),
            task_id: Some(job.head.id.to_string()),
            role: A2aRole::Agent,
            parts,
            metadata,
            extensions: None,
            reference_task_ids: None,
        });
        Ok(A2aTaskStatus { state, message, timestamp })
    }
}
