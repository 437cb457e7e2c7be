//! What an agent elsewhere has answered: the state of a task, and what the caller gets of it.

use crate::a2a::fault::RemoteReplyError;
use crate::a2a::message::is_remote_id;
use crate::foreign::visible_line;
use crate::limits::{A2A_ERROR_BYTES, A2A_PARTS};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of a file's name and of its media type.
const NAME_BYTES: usize = 200;

/// Bytes of the address of a file.
const URL_BYTES: usize = 4_096;

/// State of a task elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemoteState {
    /// The agent has accepted it or works on it. States that this version doesn't know are this one, too.
    Working,
    /// The agent asks something.
    InputRequired,
    /// A person must permit something, or log in, at the agent's side.
    AuthRequired,
    /// It has ended with an output.
    Completed,
    /// It has ended with an error.
    Failed,
    /// It was cancelled.
    Canceled,
    /// The agent has refused it.
    Rejected,
}

/// A file of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Name of the file, one visible line; empty if it has none.
    pub name: String,
    /// Media type of the file.
    pub media_type: String,
    /// Where the file is.
    pub content: RemoteFileContent,
}

/// Where a file of an answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteFileContent {
    /// Its bytes in base64.
    Base64(String),
    /// An address, which is never called by the venue itself.
    Url(String),
}

/// An answer of an agent elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteAnswer {
    /// State of the task; a message without a task is `Completed`.
    pub state: RemoteState,
    /// Id of the task.
    pub task: Option<String>,
    /// Id of the context.
    pub context: Option<String>,
    /// Texts of the answer, in its order.
    pub texts: Vec<String>,
    /// Values of the answer, in its order.
    pub data: Vec<Value>,
    /// Files of the answer, in its order.
    pub files: Vec<RemoteFile>,
}

impl RemoteState {
    fn of_name(name: &str) -> Self {
        match name {
            "TASK_STATE_INPUT_REQUIRED" => Self::InputRequired,
            "TASK_STATE_AUTH_REQUIRED" => Self::AuthRequired,
            "TASK_STATE_COMPLETED" => Self::Completed,
            "TASK_STATE_FAILED" => Self::Failed,
            "TASK_STATE_CANCELED" => Self::Canceled,
            "TASK_STATE_REJECTED" => Self::Rejected,
            _ => Self::Working,
        }
    }

    /// Whether the task goes on only after the caller has done something, or not at all.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Self::Working)
    }

    /// Returns what the caller may do next, if that isn't plain.
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::InputRequired => {
                Some("The agent asks something: call the tool again with this `task` and your `message`.")
            }
            Self::AuthRequired => Some(
                "A person must permit this or log in at the agent's side. When that is done, call the tool again with \
                 this `task` alone to wait for its end.",
            ),
            Self::Working | Self::Completed | Self::Failed | Self::Canceled | Self::Rejected => None,
        }
    }
}

impl RemoteAnswer {
    /// Reads the answer to a message: a task, or a message of the agent.
    pub fn read(answer: &Value) -> Result<Self, RemoteReplyError> {
        match (&answer["task"], &answer["message"]) {
            (task, _) if task.is_object() => Self::read_task(task),
            (_, message) if message.is_object() => {
                let mut read = Self::empty(RemoteState::Completed);
                // The ids of a message without a task lead nowhere.
                read.context = id_of(&message["contextId"]);
                read.add_parts(&message["parts"]);
                Ok(read)
            }
            _ => Err(RemoteReplyError::Form("`task` or `message`")),
        }
    }

    /// Reads a task.
    pub fn read_task(task: &Value) -> Result<Self, RemoteReplyError> {
        let state = task["status"]["state"].as_str().ok_or(RemoteReplyError::Form("`status.state` of a task"))?;
        let id = id_of(&task["id"]).ok_or(RemoteReplyError::Form("`id` of a task, of at most 512 characters"))?;
        let mut read = Self::empty(RemoteState::of_name(state));
        (read.task, read.context) = (Some(id), id_of(&task["contextId"]));
        // The output of a task that has ended well is in its artifacts, and what the agent says of any other one in its
        // state.
        let said = &task["status"]["message"]["parts"];
        for artifact in task["artifacts"].as_array().into_iter().flatten() {
            read.add_parts(&artifact["parts"]);
        }
        if read.is_empty() || read.state != RemoteState::Completed {
            read.add_parts(said);
        }
        Ok(read)
    }

    const fn empty(state: RemoteState) -> Self {
        Self { state, task: None, context: None, texts: Vec::new(), data: Vec::new(), files: Vec::new() }
    }

    const fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.data.is_empty() && self.files.is_empty()
    }

    const fn count(&self) -> usize {
        self.texts.len() + self.data.len() + self.files.len()
    }

    fn add_parts(&mut self, parts: &Value) {
        for part in parts.as_array().into_iter().flatten() {
            if self.count() == A2A_PARTS {
                return;
            }
            self.add_part(part);
        }
    }

    fn add_part(&mut self, part: &Value) {
        if let Some(text) = part["text"].as_str() {
            self.texts.push(text.to_owned());
            return;
        }
        let content = match (part["raw"].as_str(), part["url"].as_str()) {
            (Some(raw), _) => RemoteFileContent::Base64(raw.to_owned()),
            (None, Some(url)) => RemoteFileContent::Url(visible_line(url, URL_BYTES)),
            (None, None) => {
                self.data.extend(part.get("data").filter(|data| !data.is_null()).cloned());
                return;
            }
        };
        let line = |key: &str| visible_line(part[key].as_str().unwrap_or_default(), NAME_BYTES);
        let media_type = Some(line("mediaType")).filter(|text| !text.is_empty());
        self.files.push(RemoteFile {
            name: line("filename"),
            media_type: media_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
            content,
        });
    }

    /// Returns the texts as one line for an error; what the agent said of a task that has ended without an output.
    pub fn line(&self) -> String {
        let line = visible_line(&self.texts.join(" "), A2A_ERROR_BYTES);
        if line.is_empty() { "it says nothing more".to_owned() } else { line }
    }
}

/// Returns an id, if it is one.
fn id_of(value: &Value) -> Option<String> {
    value.as_str().filter(|id| is_remote_id(id)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn task(state: &str, more: &Value) -> Value {
        let mut task = json!({"id": "t", "contextId": "c", "status": {"state": format!("TASK_STATE_{state}")}});
        let map = task.as_object_mut().unwrap();
        map.extend(more.as_object().unwrap().clone());
        task
    }

    #[test]
    fn the_output_of_a_task_is_in_its_artifacts() {
        let artifacts = json!({"artifacts": [
            {"parts": [{"text": "a"}, {"data": {"b": 1}}, {"data": null}]},
            {"parts": [
                {"raw": "AAEC", "filename": "x\ny.bin"},
                {"url": "https://h/f", "mediaType": "image/png"},
                {"metadata": {}},
            ]},
        ]});
        let read = RemoteAnswer::read(&json!({"task": task("COMPLETED", &artifacts)})).unwrap();
        assert_eq!((read.task.as_deref(), read.context.as_deref()), (Some("t"), Some("c")));
        assert_eq!((read.texts.as_slice(), read.data.as_slice()), (&["a".to_owned()][..], &[json!({"b": 1})][..]));
        assert_eq!((read.files[0].name.as_str(), &*read.files[0].media_type), ("x y.bin", "application/octet-stream"));
        assert_eq!(read.files[1].content, RemoteFileContent::Url("https://h/f".into()));
    }

    #[test]
    fn a_question_and_an_error_are_in_the_state() {
        let said = |text: &str| json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]});
        for (name, state, is_settled) in [
            ("SUBMITTED", RemoteState::Working, false),
            ("WORKING", RemoteState::Working, false),
            ("A_NEW_ONE", RemoteState::Working, false),
            ("INPUT_REQUIRED", RemoteState::InputRequired, true),
            ("AUTH_REQUIRED", RemoteState::AuthRequired, true),
            ("COMPLETED", RemoteState::Completed, true),
            ("FAILED", RemoteState::Failed, true),
            ("CANCELED", RemoteState::Canceled, true),
            ("REJECTED", RemoteState::Rejected, true),
        ] {
            let mut value = task(name, &json!({}));
            value["status"]["message"] = said("Which size?");
            let read = RemoteAnswer::read_task(&value).unwrap();
            assert_eq!((read.state, read.state.is_settled()), (state, is_settled), "{name}");
            assert_eq!(read.line(), "Which size?", "{name}");
        }
    }

    #[test]
    fn a_message_without_a_task_is_a_whole_answer() {
        let read = RemoteAnswer::read(&json!({"message": {"messageId": "m", "parts": [{"text": "hi"}]}})).unwrap();
        assert_eq!((read.state, read.task, read.texts), (RemoteState::Completed, None, vec!["hi".to_owned()]));
    }

    #[test]
    fn what_is_no_task_is_refused() {
        for (value, part) in [
            (json!({}), "`task` or `message`"),
            (json!({"task": "t"}), "`task` or `message`"),
            (json!({"task": {"id": "t"}}), "`status.state`"),
            (json!({"task": {"id": "", "status": {"state": "x"}}}), "`id` of a task"),
            (json!({"task": {"id": "x".repeat(513), "status": {"state": "x"}}}), "`id` of a task"),
        ] {
            let error = RemoteAnswer::read(&value).unwrap_err().to_string();
            assert!(error.contains(part), "{value}: {error}");
        }
        let many: Vec<_> = (0..300).map(|n| json!({"text": n.to_string()})).collect();
        let read = RemoteAnswer::read(&json!({"message": {"parts": many}})).unwrap();
        assert_eq!(read.texts.len(), A2A_PARTS);
    }
}
