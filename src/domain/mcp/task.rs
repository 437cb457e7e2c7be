//! Answers to calls that go on: tasks in both revisions, and what a call has come to.

use crate::foreign::visible_line;
use crate::limits::{MCP_ERROR_BYTES, MCP_POLL, MCP_POLL_RANGE, MCP_TASK_ID_BYTES};
use crate::mcp::input::{InputRound, InputRoundError};
use crate::mcp::message::RpcError;
use crate::mcp::revision::ProtocolEra;
use crate::mcp::stream::is_id;
use serde_json::{Map, Value};
use std::time::Duration;

/// Extension of the stateless revision by which a server may answer a call with a task.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What a request has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolCallProgress {
    /// The result of the call.
    Done(Value),
    /// The server works on.
    Working(TaskHandle),
    /// The server asks a person.
    Input(InputRound),
}

/// A task of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHandle {
    /// Id that the server has given it.
    pub id: String,
    /// Pause before the next look.
    pub poll: Duration,
}

/// State of a task at a look.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskState {
    /// The server works; the next look is after this pause.
    Working(Duration),
    /// The result came with the state.
    Done(Value),
    /// The result is to be asked for.
    ResultDue,
    /// The server asks a person.
    Input(InputRound),
    /// The task has failed, for this reason.
    Failed(String),
}

/// Why an answer about a call that goes on can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The id is missing or none that can be sent back.
    #[error("`taskId`: expected 1 to {MCP_TASK_ID_BYTES} printable ASCII characters")]
    Id,
    /// The state is none of the protocol.
    #[error("`status`: expected a state of a task")]
    Status,
    /// The server asks for something in a revision in which nobody is asked.
    #[error("it asks for something in the revision 2025-11-25, in which nothing of it was offered")]
    Question,
    /// A question of the server that no person can be asked.
    #[error(transparent)]
    Input(#[from] InputRoundError),
}

impl ToolCallProgress {
    /// Reads the result of a call in which tasks and questions were offered to the server.
    ///
    /// # Errors
    /// The call goes on in a way that can't be followed.
    pub fn read(result: Value, era: ProtocolEra) -> Result<Self, TaskError> {
        match (era, result["resultType"].as_str()) {
            (ProtocolEra::Stateless, Some("task")) => Ok(Self::Working(TaskHandle::read(&result, "pollIntervalMs")?)),
            (ProtocolEra::Stateless, Some("input_required")) => {
                Ok(Self::Input(InputRound::read(&result["inputRequests"], &result["requestState"])?))
            }
            (ProtocolEra::Handshake, _) if result["task"].is_object() => {
                Ok(Self::Working(TaskHandle::read(&result["task"], "pollInterval")?))
            }
            _ => Ok(Self::Done(result)),
        }
    }
}

impl TaskHandle {
    fn read(task: &Value, poll: &str) -> Result<Self, TaskError> {
        let id = task["taskId"].as_str().filter(|id| is_id(id)).ok_or(TaskError::Id)?;
        Ok(Self { id: id.to_owned(), poll: poll_pause(&task[poll]) })
    }
}

impl TaskState {
    /// Reads the answer to a look at a task.
    ///
    /// # Errors
    /// The answer has no state, or a question that no person can be asked.
    pub fn read(task: &Value, era: ProtocolEra) -> Result<Self, TaskError> {
        let status = task["status"].as_str().ok_or(TaskError::Status)?;
        let said = || visible_line(task["statusMessage"].as_str().unwrap_or("it says no reason"), MCP_ERROR_BYTES);
        Ok(match (era, status) {
            (ProtocolEra::Stateless, "working") => Self::Working(poll_pause(&task["pollIntervalMs"])),
            (ProtocolEra::Stateless, "input_required") => {
                Self::Input(InputRound::read(&task["inputRequests"], &Value::Null)?)
            }
            (ProtocolEra::Stateless, "completed") => Self::Done(task["result"].clone()),
            (ProtocolEra::Stateless, "failed") => Self::Failed(match task["error"].as_object() {
                Some(error) => failure_text(error),
                None => said(),
            }),
            (ProtocolEra::Handshake, "working") => Self::Working(poll_pause(&task["pollInterval"])),
            // Nobody will ever answer it.
            (ProtocolEra::Handshake, "input_required") => return Err(TaskError::Question),
            (ProtocolEra::Handshake, "completed" | "failed") => Self::ResultDue,
            (_, "cancelled") => Self::Failed(format!("the server has cancelled the task: {}", said())),
            _ => return Err(TaskError::Status),
        })
    }
}

fn failure_text(error: &Map<String, Value>) -> String {
    let RpcError { code, message, .. } = RpcError::read(error);
    format!("error {code}: {message}")
}

/// Returns the pause that a server asks for, within the bounds.
fn poll_pause(millis: &Value) -> Duration {
    let asked = millis.as_f64().filter(|millis| *millis >= 0.0);
    let asked = asked.map_or(MCP_POLL, |millis| Duration::try_from_secs_f64(millis / 1_000.0).unwrap_or(Duration::MAX));
    asked.clamp(*MCP_POLL_RANGE.start(), *MCP_POLL_RANGE.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NEW: ProtocolEra = ProtocolEra::Stateless;
    const OLD: ProtocolEra = ProtocolEra::Handshake;

    #[test]
    fn a_call_that_goes_on_is_told_from_one_that_has_ended() {
        let working = |id: &str, millis| {
            Ok(ToolCallProgress::Working(TaskHandle { id: id.into(), poll: Duration::from_millis(millis) }))
        };
        let done = |result: &Value| Ok(ToolCallProgress::Done(result.clone()));
        let plain = json!({"content": [], "resultType": "complete"});
        let nested = json!({"task": {"taskId": "t", "pollInterval": 900}});
        let flat = json!({"resultType": "task", "taskId": "t", "pollIntervalMs": 900});
        for (result, era, expected) in [
            (&plain, NEW, done(&plain)),
            (&nested, NEW, done(&nested)),
            (&nested, OLD, working("t", 900)),
            (&flat, NEW, working("t", 900)),
            (&flat, OLD, done(&flat)),
            (&json!({"resultType": "task", "taskId": "t"}), NEW, working("t", 2_000)),
            (&json!({"resultType": "task", "taskId": "t", "pollIntervalMs": 0}), NEW, working("t", 500)),
            (&json!({"resultType": "task", "taskId": "t", "pollIntervalMs": 1e300}), NEW, working("t", 60_000)),
            (&json!({"resultType": "task", "taskId": "a b"}), NEW, Err(TaskError::Id)),
            (&json!({"resultType": "task"}), NEW, Err(TaskError::Id)),
            (&json!({"resultType": "input_required"}), NEW, Err(TaskError::Input(InputRoundError::Nothing))),
        ] {
            assert_eq!(ToolCallProgress::read(result.clone(), era), expected, "{result}");
        }
    }

    #[test]
    fn a_task_has_one_state_in_each_revision() {
        let failed = |text: &str| Ok(TaskState::Failed(text.into()));
        for (task, era, expected) in [
            (json!({"status": "working"}), NEW, Ok(TaskState::Working(MCP_POLL))),
            (
                json!({"status": "working", "pollInterval": 700}),
                OLD,
                Ok(TaskState::Working(Duration::from_millis(700))),
            ),
            (json!({"status": "input_required", "pollInterval": 700}), OLD, Err(TaskError::Question)),
            (
                json!({"status": "completed", "result": {"content": []}}),
                NEW,
                Ok(TaskState::Done(json!({"content": []}))),
            ),
            (json!({"status": "completed"}), OLD, Ok(TaskState::ResultDue)),
            (json!({"status": "failed", "error": {"code": -5, "message": "no\nway"}}), NEW, failed("error -5: no way")),
            (json!({"status": "failed"}), OLD, Ok(TaskState::ResultDue)),
            (
                json!({"status": "cancelled", "statusMessage": "late"}),
                OLD,
                failed("the server has cancelled the task: late"),
            ),
            (json!({"status": "lost"}), NEW, Err(TaskError::Status)),
            (json!({}), NEW, Err(TaskError::Status)),
            (json!({"status": "input_required"}), NEW, Err(TaskError::Input(InputRoundError::Nothing))),
        ] {
            assert_eq!(TaskState::read(&task, era), expected, "{task}");
        }
    }
}
