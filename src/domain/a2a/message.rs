//! What a call says to an agent elsewhere, and the requests of both bindings.

use crate::a2a::card::{RemoteBinding, RemoteInterface};
use crate::decode::{self, DataError};
use crate::limits::{A2A_ID_BYTES, A2A_MESSAGE_BYTES};
use crate::percent::percent_encode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a call says to an agent elsewhere.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteMessage {
    /// Text for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Value for the agent, beside the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Task of an earlier result that the message continues; without a message the task is only waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Context of an earlier result in which the message begins a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// Why a call says nothing that can be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteMessageError {
    /// The arguments have another form.
    #[error(transparent)]
    Form(#[from] DataError),
    /// The call says nothing.
    #[error("expected a `message`, or `data`, or the `task` of an earlier result to wait for")]
    Empty,
    /// The call is too large.
    #[error(
        "the message has {bytes} bytes, expected at most {A2A_MESSAGE_BYTES}; name a place where the rest can be read"
    )]
    Large {
        /// Bytes of the arguments.
        bytes: usize,
    },
    /// The id is none of an agent.
    #[error("`{key}`: expected the {key} id of an earlier result, of 1 to {A2A_ID_BYTES} visible characters")]
    Id {
        /// Key of the id.
        key: &'static str,
    },
}

/// Returns the JSON Schema of the arguments of a call.
pub fn input_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "message": {"type": "string", "description": "What to tell the agent, as a text"},
            "data": {"type": "object", "description": "Values for the agent, beside the text"},
            "task": {
                "type": "string",
                "description": "`taskId` of an earlier result: the message continues that task, such as by answering its \
                                question; without `message` the task is only waited for",
            },
            "context": {
                "type": "string",
                "description": "`contextId` of an earlier result: the agent remembers what was said there",
            },
        },
    })
}

impl RemoteMessage {
    /// Reads the arguments of a call.
    pub fn read(arguments: Value) -> Result<Self, RemoteMessageError> {
        let bytes = arguments.to_string().len();
        if bytes > A2A_MESSAGE_BYTES {
            return Err(RemoteMessageError::Large { bytes });
        }
        let message: Self = decode::into_type(arguments)?;
        for (key, id) in [("task", &message.task), ("context", &message.context)] {
            if !id.as_deref().is_none_or(is_remote_id) {
                return Err(RemoteMessageError::Id { key });
            }
        }
        if message.is_silent() && message.task.is_none() {
            return Err(RemoteMessageError::Empty);
        }
        Ok(message)
    }

    /// Whether nothing is said: a task is only waited for.
    pub fn is_silent(&self) -> bool {
        self.message.as_deref().is_none_or(str::is_empty) && self.data.is_none()
    }

    /// Returns the message of the protocol under this id.
    pub fn to_protocol(&self, id: &str) -> Value {
        let text = self.message.as_deref().filter(|text| !text.is_empty());
        let mut parts: Vec<Value> = text.into_iter().map(|text| json!({"text": text})).collect();
        parts.extend(self.data.iter().map(|data| json!({"data": data, "mediaType": "application/json"})));
        let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": parts});
        for (key, value) in [("taskId", &self.task), ("contextId", &self.context)] {
            if let Some(value) = value {
                message[key] = value.as_str().into();
            }
        }
        message
    }
}

/// Whether a text can be the id that an agent gives to a task or to a context. A path of dots would lead elsewhere.
pub fn is_remote_id(id: &str) -> bool {
    (1..=A2A_ID_BYTES).contains(&id.len()) && !id.chars().any(|c| c.is_control() || c == ' ') && id != "." && id != ".."
}

/// A request to an agent elsewhere, as it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteCall {
    /// URL of the request.
    pub url: String,
    /// Body of a POST; `None` is a GET.
    pub body: Option<Value>,
}

impl RemoteInterface {
    /// Returns the request that sends a message, and wants its answer before the task has ended.
    pub fn send(&self, message: &Value) -> RemoteCall {
        let arguments = json!({"message": message, "configuration": {"returnImmediately": true}});
        self.request("SendMessage", arguments, "/message:send")
    }

    /// Returns the request for a task, with its outputs and without its history.
    pub fn get(&self, task: &str) -> RemoteCall {
        match self.binding {
            RemoteBinding::JsonRpc => self.request("GetTask", json!({"id": task, "historyLength": 0}), ""),
            RemoteBinding::HttpJson => {
                let path = format!("/tasks/{}?historyLength=0", percent_encode(task));
                RemoteCall { url: self.address(&path), body: None }
            }
        }
    }

    /// Returns the request that cancels a task.
    pub fn cancel(&self, task: &str) -> RemoteCall {
        let path = format!("/tasks/{}:cancel", percent_encode(task));
        self.request("CancelTask", json!({"id": task}), &path)
    }

    fn request(&self, method: &str, mut arguments: Value, path: &str) -> RemoteCall {
        match self.binding {
            RemoteBinding::JsonRpc => {
                if let Some(tenant) = &self.tenant {
                    arguments["tenant"] = tenant.as_str().into();
                }
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": arguments});
                RemoteCall { url: self.url.clone(), body: Some(body) }
            }
            RemoteBinding::HttpJson => {
                if method == "CancelTask" {
                    arguments = json!({});
                }
                RemoteCall { url: self.address(path), body: Some(arguments) }
            }
        }
    }

    /// Returns the URL of a path below the address; a query of the address stays.
    fn address(&self, path: &str) -> String {
        let tenant = self.tenant.as_ref().map(|tenant| format!("/{}", percent_encode(tenant))).unwrap_or_default();
        let (base, query) = self.url.split_once('?').map_or((&*self.url, None), |(base, query)| (base, Some(query)));
        let joined = format!("{}{tenant}{path}", base.trim_end_matches('/'));
        match query {
            Some(query) if path.contains('?') => format!("{joined}&{query}"),
            Some(query) => format!("{joined}?{query}"),
            None => joined,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(binding: RemoteBinding, url: &str, tenant: Option<&str>) -> RemoteInterface {
        RemoteInterface { url: url.into(), binding, tenant: tenant.map(str::to_owned) }
    }

    #[test]
    fn a_call_must_say_something() {
        for (arguments, part) in [
            (json!({"message": "hi"}), None),
            (json!({"data": {"a": 1}}), None),
            (json!({"task": "t"}), None),
            (json!({"message": "hi", "task": "t", "context": "c"}), None),
            (json!({}), Some("expected a `message`")),
            (json!({"message": ""}), Some("expected a `message`")),
            (json!({"context": "c"}), Some("expected a `message`")),
            (json!({"message": 1}), Some("`message`")),
            (json!({"mesage": "hi"}), Some("mesage")),
            (json!({"task": ""}), Some("`task`: expected the task id")),
            (json!({"task": ".."}), Some("`task`: expected the task id")),
            (json!({"message": "x", "context": "a b"}), Some("`context`: expected the context id")),
            (json!({"message": "x".repeat(A2A_MESSAGE_BYTES)}), Some("expected at most 262144")),
        ] {
            match (RemoteMessage::read(arguments.clone()), part) {
                (Ok(_), None) => {}
                (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{arguments}: {error}"),
                (found, _) => panic!("{arguments}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_message_has_its_parts_and_its_place() {
        let message = RemoteMessage::read(json!({"message": "hi", "data": {"a": 1}, "task": "t"})).unwrap();
        let expected = json!({
            "messageId": "m", "role": "ROLE_USER", "taskId": "t",
            "parts": [{"text": "hi"}, {"data": {"a": 1}, "mediaType": "application/json"}],
        });
        assert_eq!(message.to_protocol("m"), expected);
    }

    #[test]
    fn requests_are_spelled_as_the_binding_says() {
        let rpc = interface(RemoteBinding::JsonRpc, "https://h/a", Some("acme"));
        let sent = rpc.send(&json!({"messageId": "m"}));
        let body = sent.body.unwrap();
        assert_eq!((sent.url.as_str(), &body["method"]), ("https://h/a", &json!("SendMessage")));
        assert_eq!(body["params"]["configuration"], json!({"returnImmediately": true}));
        assert_eq!(body["params"]["tenant"], "acme");
        let cancelled = rpc.cancel("t").body.unwrap();
        assert_eq!((&cancelled["method"], &cancelled["params"]["id"]), (&json!("CancelTask"), &json!("t")));
        for (url, tenant, send, get, cancel) in [
            (
                "https://h/a/",
                None,
                "https://h/a/message:send",
                "https://h/a/tasks/t%2F1?historyLength=0",
                "t%2F1:cancel",
            ),
            (
                "https://h/a",
                Some("x y"),
                "https://h/a/x%20y/message:send",
                "/x%20y/tasks/t%2F1?historyLength=0",
                ":cancel",
            ),
            ("https://h/a?k=v", None, "/a/message:send?k=v", "/tasks/t%2F1?historyLength=0&k=v", ":cancel?k=v"),
        ] {
            let rest = interface(RemoteBinding::HttpJson, url, tenant);
            assert!(rest.send(&json!({})).url.ends_with(send), "{url}");
            assert!(rest.get("t/1").url.ends_with(get) && rest.get("t/1").body.is_none(), "{url}");
            assert!(rest.cancel("t/1").url.ends_with(cancel), "{url}");
        }
    }
}
