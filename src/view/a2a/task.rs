//! Tasks of the Agent2Agent protocol, their states, and the updates of them.

use super::message::{A2aArtifact, A2aMessage};
use crate::domain::job::JobStatus;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum A2aTaskState {
    /// Accepted; no worker has taken it.
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    /// A worker has taken it.
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    /// Ended with an output.
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
    /// Ended with an error.
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
    /// Ended by a caller.
    #[serde(rename = "TASK_STATE_CANCELED")]
    Canceled,
    /// The agent has a question for the client.
    #[serde(rename = "TASK_STATE_INPUT_REQUIRED")]
    InputRequired,
    /// Refused before its first turn.
    #[serde(rename = "TASK_STATE_REJECTED")]
    Rejected,
    /// A person must permit a call.
    #[serde(rename = "TASK_STATE_AUTH_REQUIRED")]
    AuthRequired,
}

impl A2aTaskState {
    /// Returns the state of a job of this status. A job that waits for a person asks the client, unless its approvals
    /// say that it waits for a permission.
    pub const fn of_job(status: JobStatus) -> Self {
        match status {
            JobStatus::Pending => Self::Submitted,
            JobStatus::Started | JobStatus::Paused => Self::Working,
            JobStatus::Complete => Self::Completed,
            JobStatus::Failed => Self::Failed,
            JobStatus::Cancelled => Self::Canceled,
            JobStatus::Rejected => Self::Rejected,
            JobStatus::InputRequired => Self::InputRequired,
            JobStatus::AuthRequired => Self::AuthRequired,
        }
    }

    /// Returns the statuses of jobs that are in this state.
    pub const fn job_statuses(self) -> &'static [JobStatus] {
        match self {
            Self::Submitted => &[JobStatus::Pending],
            Self::Working => &[JobStatus::Started, JobStatus::Paused],
            Self::Completed => &[JobStatus::Complete],
            Self::Failed => &[JobStatus::Failed],
            Self::Canceled => &[JobStatus::Cancelled],
            Self::Rejected => &[JobStatus::Rejected],
            Self::InputRequired => &[JobStatus::InputRequired],
            Self::AuthRequired => &[JobStatus::InputRequired, JobStatus::AuthRequired],
        }
    }

    /// Whether the state is final.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected => true,
            Self::Submitted | Self::Working | Self::InputRequired | Self::AuthRequired => false,
        }
    }

    /// Whether the task goes on only after an answer.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// State of a task, with what the agent says about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct A2aTaskStatus {
    /// State of the task.
    pub state: A2aTaskState,
    /// A question, an error or a text of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<A2aMessage>,
    /// Time at which the state was recorded, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
}

/// A task: a job of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aTask {
    /// Id of the job.
    pub id: String,
    /// Session of the job.
    pub context_id: String,
    /// State of the task.
    pub status: A2aTaskStatus,
    /// Outputs; absent where they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<A2aArtifact>>,
    /// Messages in the order in which they were sent; absent where they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<A2aMessage>>,
    /// Facts for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl A2aTask {
    /// Leaves only the last messages of the history; `None` leaves all.
    #[must_use]
    pub fn with_last_messages(mut self, most: Option<usize>) -> Self {
        if let (Some(most), Some(history)) = (most, &mut self.history) {
            let surplus = history.len().saturating_sub(most);
            history.drain(..surplus);
        }
        self.history = self.history.filter(|history| !history.is_empty());
        self
    }
}

/// Update of the state of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aStatusUpdate {
    /// Id of the job.
    pub task_id: String,
    /// Session of the job.
    pub context_id: String,
    /// The new state.
    pub status: A2aTaskStatus,
    /// Facts for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// Update of the outputs of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aArtifactUpdate {
    /// Id of the job.
    pub task_id: String,
    /// Session of the job.
    pub context_id: String,
    /// Output of the task, whole or in part.
    pub artifact: A2aArtifact,
    /// Whether the content continues that of the same artifact before it.
    pub append: bool,
    /// Whether the artifact is complete with it.
    pub last_chunk: bool,
}

/// Answer to a message: the task that it made or continued, or the agent's message where no task is needed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum A2aSendAnswer {
    /// The task as it is now.
    Task(A2aTask),
    /// The agent's message.
    Message(A2aMessage),
}

/// An event of a stream, and the body of a push notification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum A2aStreamEvent {
    /// The task as it is; the first event of a stream.
    Task(A2aTask),
    /// A new state of the task.
    StatusUpdate(A2aStatusUpdate),
    /// A new output of the task.
    ArtifactUpdate(A2aArtifactUpdate),
}

/// A page of tasks, the last changed first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aTaskPage {
    /// Tasks of the page.
    pub tasks: Vec<A2aTask>,
    /// Token of the next page; empty after the last.
    pub next_page_token: String,
    /// Most tasks of a page.
    pub page_size: usize,
    /// Tasks that were found, before they were put into pages.
    pub total_size: usize,
}

/// Answer without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct A2aNothing {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_status_of_a_job_has_a_state_that_finds_it() {
        for status in JobStatus::ALL {
            let state = A2aTaskState::of_job(status);
            assert!(state.job_statuses().contains(&status), "{status:?}");
            assert_eq!(state.is_terminal(), status.is_terminal(), "{status:?}");
        }
        let event = A2aStreamEvent::StatusUpdate(A2aStatusUpdate {
            task_id: "t".into(),
            context_id: "c".into(),
            status: A2aTaskStatus { state: A2aTaskState::Working, message: None, timestamp: None },
            metadata: None,
        });
        let written =
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}});
        assert_eq!(json!(event), written);
    }

    #[test]
    fn a_history_is_cut_to_its_last_messages() {
        let message = |id: &str| json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        let task = json!({
            "id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"},
            "history": [message("a"), message("b"), message("c")],
        });
        let task: A2aTask = serde_json::from_value(task).unwrap();
        for (most, expected) in [(None, "abc"), (Some(5), "abc"), (Some(2), "bc"), (Some(0), "")] {
            let cut = task.clone().with_last_messages(most);
            assert_ne!(cut.history, Some(Vec::new()), "absent, not empty");
            let ids: String = cut.history.into_iter().flatten().map(|message| message.message_id).collect();
            assert_eq!(ids, expected, "{most:?}");
        }
    }
}
