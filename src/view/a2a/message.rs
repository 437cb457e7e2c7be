//! Messages and artifacts of the Agent2Agent protocol, made of parts.

use crate::domain::decode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum A2aRole {
    /// The client of the task.
    #[serde(rename = "ROLE_USER")]
    User,
    /// The agent of the task.
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

/// A piece of content: exactly one of text, bytes, URL and value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aPart {
    /// Content that is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes of a file, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Address of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Content that is a JSON value, null included.
    #[serde(default, deserialize_with = "decode::nullable_field", skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Facts for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Name of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Media type of the content.
    #[serde(default, alias = "media_type", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

impl A2aPart {
    /// Makes a part of a text.
    pub fn of_text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Makes a part of a JSON value.
    pub fn of_data(data: Value) -> Self {
        Self { data: Some(data), ..Self::default() }
    }

    /// Returns how many contents the part has; exactly one is legal.
    pub fn contents(&self) -> usize {
        let contents = [self.text.is_some(), self.raw.is_some(), self.url.is_some(), self.data.is_some()];
        contents.into_iter().filter(|is_given| *is_given).count()
    }
}

/// A message of the client or of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aMessage {
    /// Id that its author gave.
    #[serde(alias = "message_id")]
    pub message_id: String,
    /// Context that it belongs to: a session. An empty text, which some clients write, names none.
    #[serde(default, alias = "context_id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// Task that it belongs to: a job.
    #[serde(default, alias = "task_id", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Author of the message.
    pub role: A2aRole,
    /// Content of the message, at least one part.
    pub parts: Vec<A2aPart>,
    /// Facts for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// URIs of extensions that it makes use of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<String>>,
    /// Tasks that it refers to.
    #[serde(default, alias = "reference_task_ids", skip_serializing_if = "Option::is_none")]
    pub reference_task_ids: Option<Vec<String>>,
}

/// An output of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aArtifact {
    /// Id of the artifact, unique within its task.
    pub artifact_id: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Content of the artifact, at least one part.
    pub parts: Vec<A2aPart>,
    /// Facts for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl A2aMessage {
    /// Returns the id of its context, if it names one.
    pub fn context(&self) -> Option<&str> {
        self.context_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the id of its task, if it names one.
    pub fn task(&self) -> Option<&str> {
        self.task_id.as_deref().filter(|id| !id.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_read_by_both_spellings_and_written_by_one() {
        let written = json!({
            "messageId": "m1", "contextId": "c", "taskId": "t", "role": "ROLE_USER",
            "parts": [{"text": "hi"}, {"data": null, "mediaType": "application/json"}],
        });
        let given = json!({
            "message_id": "m1", "context_id": "c", "task_id": "t", "role": "ROLE_USER", "more": 1, "metadata": null,
            "parts": [{"text": "hi"}, {"data": null, "media_type": "application/json"}],
        });
        for value in [&written, &given] {
            let message: A2aMessage = serde_json::from_value(value.clone()).unwrap();
            assert!(message.parts.iter().all(|part| part.contents() == 1), "{message:?}");
            assert_eq!(json!(message), written);
        }
        for bad in [json!({"role": "ROLE_USER", "parts": []}), json!({"messageId": "m", "role": "user", "parts": []})] {
            assert!(serde_json::from_value::<A2aMessage>(bad.clone()).is_err(), "{bad}");
        }
    }
}
