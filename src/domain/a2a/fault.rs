//! Errors of the Agent2Agent protocol 1.0.1 in both bindings: what each means, and what to do.

use crate::a2a::card::RemoteBinding;
use crate::decode::{self, DataError};
use crate::foreign::visible_line;
use crate::limits::A2A_ERROR_BYTES;
use serde_json::Value;

/// Kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteFaultKind {
    /// There is no such task.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// The operation isn't possible for this task or this agent.
    UnsupportedOperation,
    /// The agent doesn't read, or doesn't give, content of this type.
    ContentType,
    /// The agent itself has got an answer that breaks the protocol.
    InvalidAnswer,
    /// The agent wants an extension of the protocol.
    Extension,
    /// The agent speaks another version of the protocol.
    Version,
    /// The request is malformed.
    Invalid,
    /// The agent wants another login.
    Login,
    /// The agent refuses work for now, because of its load, and has not begun.
    Busy,
    /// The agent failed, perhaps after it had begun.
    Internal,
    /// Any other refusal.
    Refused,
}

/// An error that an agent elsewhere has answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{} ({code}){}", .kind.meaning(), said_part(.text), .kind.advice())]
pub struct RemoteFault {
    /// Kind of the error.
    pub kind: RemoteFaultKind,
    /// Code of JSON-RPC, or status of HTTP.
    pub code: i64,
    /// Text of the agent: one visible line.
    pub text: String,
}

/// Why an answer can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteReplyError {
    /// The agent has answered with an error.
    #[error(transparent)]
    Fault(#[from] RemoteFault),
    /// The answer isn't JSON.
    #[error("its answer can't be read: {0}")]
    Data(#[from] DataError),
    /// The answer is no message of the binding.
    #[error("its answer is none of the protocol: expected {0}")]
    Form(&'static str),
}

impl RemoteFaultKind {
    /// Returns the kind of a code of JSON-RPC.
    const fn of_code(code: i64) -> Self {
        match code {
            -32_001 => Self::TaskNotFound,
            -32_002 => Self::TaskNotCancelable,
            -32_003 | -32_004 | -32_007 | -32_601 => Self::UnsupportedOperation,
            -32_005 => Self::ContentType,
            -32_006 => Self::InvalidAnswer,
            -32_008 => Self::Extension,
            -32_009 => Self::Version,
            -32_700 | -32_602 | -32_600 => Self::Invalid,
            // Codes that servers have for failures of their own may say that of a task that has begun.
            -32_603 | -32_000 | -32_099..=-32_010 => Self::Internal,
            _ => Self::Refused,
        }
    }

    /// Returns the kind of a name in the facts of an error.
    fn of_reason(reason: &str) -> Option<Self> {
        Some(match reason {
            "TASK_NOT_FOUND" => Self::TaskNotFound,
            "TASK_NOT_CANCELABLE" => Self::TaskNotCancelable,
            "PUSH_NOTIFICATION_NOT_SUPPORTED" | "UNSUPPORTED_OPERATION" | "EXTENDED_AGENT_CARD_NOT_CONFIGURED" => {
                Self::UnsupportedOperation
            }
            "CONTENT_TYPE_NOT_SUPPORTED" => Self::ContentType,
            "INVALID_AGENT_RESPONSE" => Self::InvalidAnswer,
            "EXTENSION_SUPPORT_REQUIRED" => Self::Extension,
            "VERSION_NOT_SUPPORTED" => Self::Version,
            _ => return None,
        })
    }

    /// Returns the kind of a status of HTTP. Such a status may come from a server before the agent.
    const fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Login,
            429 | 503 => Self::Busy,
            400 | 413 | 422 => Self::Invalid,
            415 => Self::ContentType,
            // 408: the server, or one before it, has waited too long for something.
            408 | 500..=599 => Self::Internal,
            _ => Self::Refused,
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::TaskNotFound => "the agent knows no such task",
            Self::TaskNotCancelable => "the task has ended and can't be cancelled",
            Self::UnsupportedOperation => "the agent doesn't do that",
            Self::ContentType => "the agent doesn't read this kind of content",
            Self::InvalidAnswer => "the agent has no valid answer itself",
            Self::Extension => "the agent wants an extension of the protocol that isn't known here",
            Self::Version => "the agent speaks another version of the protocol",
            Self::Invalid => "the agent refuses the request",
            Self::Login => "the agent wants another login",
            Self::Busy => "the agent has too much to do",
            Self::Internal => "the agent failed",
            Self::Refused => "the agent refused",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::TaskNotFound => "; send a message without `task` to begin a new one",
            Self::UnsupportedOperation => "; a task that has ended takes no message: leave out `task`",
            Self::ContentType => "; send a text alone, without `data`",
            Self::Version | Self::Extension => "; its operator must see to this, retrying will not help",
            Self::Login => "; a person must set a header for it: `headers`, or `key_env` or `secret` of the venue",
            Self::Busy => "; try again later",
            Self::TaskNotCancelable | Self::InvalidAnswer | Self::Invalid | Self::Internal | Self::Refused => "",
        }
    }

    /// Whether the request has certainly had no effect.
    pub const fn is_without_effect(self) -> bool {
        !matches!(self, Self::Internal | Self::InvalidAnswer)
    }

    /// Whether the same request may succeed later.
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Busy | Self::Internal | Self::Login)
    }
}

fn said_part(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Reads the body of an answer; returns the result of the operation.
pub fn read_answer(binding: RemoteBinding, status: u16, body: &[u8]) -> Result<Value, RemoteReplyError> {
    let is_success = (200..300).contains(&status);
    let read = decode::answer_json(body);
    let value = match read {
        Ok(value) => value,
        Err(error) if is_success => return Err(error.into()),
        Err(_) => return Err(status_fault(status, "").into()),
    };
    match binding {
        RemoteBinding::JsonRpc => {
            if let Some(error) = value.get("error").filter(|error| error.is_object()) {
                return Err(rpc_fault(status, error).into());
            }
            if !is_success {
                return Err(status_fault(status, "").into());
            }
            let result = value.get("result").filter(|result| result.is_object());
            result.cloned().ok_or(RemoteReplyError::Form("`result` or `error` of JSON-RPC"))
        }
        RemoteBinding::HttpJson if is_success => {
            if value.is_object() {
                Ok(value)
            } else {
                Err(RemoteReplyError::Form("a map"))
            }
        }
        RemoteBinding::HttpJson => Err(rest_fault(status, &value).into()),
    }
}

fn line(text: Option<&str>) -> String {
    visible_line(text.unwrap_or_default(), A2A_ERROR_BYTES)
}

fn status_fault(status: u16, text: &str) -> RemoteFault {
    RemoteFault { kind: RemoteFaultKind::of_status(status), code: status.into(), text: line(Some(text)) }
}

fn rpc_fault(status: u16, error: &Value) -> RemoteFault {
    let code = error["code"].as_i64().unwrap_or_default();
    let named = reason_of(&error["data"]).and_then(RemoteFaultKind::of_reason);
    let by_status = || match RemoteFaultKind::of_status(status) {
        kind @ (RemoteFaultKind::Login | RemoteFaultKind::Busy) => Some(kind),
        _ => None,
    };
    let kind = named.or_else(by_status).unwrap_or_else(|| RemoteFaultKind::of_code(code));
    RemoteFault { kind, code, text: line(error["message"].as_str()) }
}

fn rest_fault(status: u16, body: &Value) -> RemoteFault {
    let error = &body["error"];
    let named = reason_of(&error["details"]).and_then(RemoteFaultKind::of_reason);
    let text = [&error["message"], &body["detail"], &body["message"]].into_iter().find_map(Value::as_str);
    let fault = status_fault(status, text.unwrap_or_default());
    RemoteFault { kind: named.unwrap_or(fault.kind), ..fault }
}

/// Returns the name of an error in its facts.
fn reason_of(details: &Value) -> Option<&str> {
    details.as_array()?.iter().find_map(|detail| detail["reason"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault(binding: RemoteBinding, status: u16, body: &Value) -> RemoteFault {
        match read_answer(binding, status, body.to_string().as_bytes()) {
            Err(RemoteReplyError::Fault(fault)) => fault,
            found => panic!("{body}: {found:?}"),
        }
    }

    #[test]
    fn every_error_of_1_0_1_has_its_kind_in_both_bindings() {
        use RemoteFaultKind as Kind;
        for (code, status, reason, kind) in [
            (-32_001, 404, "TASK_NOT_FOUND", Kind::TaskNotFound),
            (-32_002, 400, "TASK_NOT_CANCELABLE", Kind::TaskNotCancelable),
            (-32_003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED", Kind::UnsupportedOperation),
            (-32_004, 400, "UNSUPPORTED_OPERATION", Kind::UnsupportedOperation),
            (-32_005, 400, "CONTENT_TYPE_NOT_SUPPORTED", Kind::ContentType),
            (-32_006, 500, "INVALID_AGENT_RESPONSE", Kind::InvalidAnswer),
            (-32_007, 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", Kind::UnsupportedOperation),
            (-32_008, 400, "EXTENSION_SUPPORT_REQUIRED", Kind::Extension),
            (-32_009, 400, "VERSION_NOT_SUPPORTED", Kind::Version),
        ] {
            let rpc = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "said\nso"}});
            let found = fault(RemoteBinding::JsonRpc, 200, &rpc);
            assert_eq!((found.kind, found.text.as_str()), (kind, "said so"), "{reason}");
            let details = json!([{"@type": "x"}, {"@type": "y", "reason": reason, "domain": "a2a-protocol.org"}]);
            let rest = json!({"error": {"code": status, "message": "said", "details": details}});
            assert_eq!(fault(RemoteBinding::HttpJson, status, &rest).kind, kind, "{reason}");
        }
    }

    #[test]
    fn errors_without_a_name_go_by_their_code_or_status() {
        use RemoteFaultKind as Kind;
        for (binding, status, body, kind, is_without_effect) in [
            (RemoteBinding::JsonRpc, 200, json!({"error": {"code": -32602, "message": "m"}}), Kind::Invalid, true),
            (RemoteBinding::JsonRpc, 200, json!({"error": {"code": -32603, "message": "m"}}), Kind::Internal, false),
            (RemoteBinding::JsonRpc, 200, json!({"error": {"code": -32000, "message": "m"}}), Kind::Internal, false),
            (RemoteBinding::JsonRpc, 200, json!({"error": {"code": -32050, "message": "m"}}), Kind::Internal, false),
            (RemoteBinding::JsonRpc, 200, json!({"error": {"code": 7, "message": "m"}}), Kind::Refused, true),
            (RemoteBinding::HttpJson, 408, json!({}), Kind::Internal, false),
            (RemoteBinding::JsonRpc, 401, json!({"error": {"code": -32000, "message": "m"}}), Kind::Login, true),
            (RemoteBinding::JsonRpc, 502, json!("gateway"), Kind::Internal, false),
            (RemoteBinding::HttpJson, 429, json!({"detail": "slow"}), Kind::Busy, true),
            (RemoteBinding::HttpJson, 403, json!([]), Kind::Login, true),
            (RemoteBinding::HttpJson, 302, json!({}), Kind::Refused, true),
        ] {
            let found = fault(binding, status, &body);
            assert_eq!((found.kind, found.kind.is_without_effect()), (kind, is_without_effect), "{body}");
        }
        let page = read_answer(RemoteBinding::HttpJson, 502, b"<html>").unwrap_err().to_string();
        assert_eq!(page, "the agent failed (502)");
        let text =
            fault(RemoteBinding::JsonRpc, 200, &json!({"error": {"code": -32001, "message": "no t"}})).to_string();
        assert_eq!(
            text,
            "the agent knows no such task: no t (-32001); send a message without `task` to begin a new one"
        );
    }

    #[test]
    fn what_is_no_answer_of_the_protocol_is_refused() {
        for (binding, body, part) in [
            (RemoteBinding::JsonRpc, "{\"jsonrpc\":\"2.0\"}", "expected `result` or `error`"),
            (RemoteBinding::JsonRpc, "[]", "expected `result` or `error`"),
            (RemoteBinding::HttpJson, "7", "expected a map"),
            (RemoteBinding::HttpJson, "<html>", "can't be read"),
        ] {
            let error = read_answer(binding, 200, body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(read_answer(RemoteBinding::HttpJson, 200, deep.as_bytes()).is_err());
        let result = read_answer(RemoteBinding::JsonRpc, 200, b"{\"result\":{\"id\":\"t\"}}").unwrap();
        assert_eq!(result, json!({"id": "t"}));
    }
}
