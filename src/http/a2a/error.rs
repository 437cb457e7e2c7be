//! Errors of the Agent2Agent protocol 1.0.1: one table for both bindings.

use crate::domain::decode::DataError;
use crate::http::problem::Problem;
use crate::store::StoreError;
use crate::venue::a2a::input::InputError;
use crate::venue::a2a::push::NotificationError;
use crate::venue::operation::OpError;
use crate::view::a2a::{A2aErrorInfo, A2aRestError, A2aRpcError, A2aRpcErrorAnswer, A2aStatusView};
use crate::view::to_json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Version of JSON-RPC.
pub(super) const JSON_RPC: &str = "2.0";

/// Media type of the JSON-RPC binding.
pub(super) const JSON: &str = "application/json";

/// Type of the facts about an error.
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// Domain of the names of the protocol's errors.
const PROTOCOL: &str = "a2a-protocol.org";

/// Domain of the names of all other errors.
const OWN: &str = "trellis";

/// Kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aErrorKind {
    /// There is no such task, or the caller may not know of it.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// The venue sends no push notifications.
    NotificationsNotSupported,
    /// The task is in no state for it, or the agent doesn't do it.
    UnsupportedOperation,
    /// No agent reads content of this media type.
    ContentTypeNotSupported,
    /// The version of the protocol is another.
    VersionNotSupported,
    /// The body is no JSON.
    Parse,
    /// The body is no request.
    InvalidRequest,
    /// The protocol has no such operation.
    MethodNotFound,
    /// An argument breaks a rule.
    InvalidParams,
    /// A fault of the venue.
    Internal,
    /// An error that the protocol leaves to HTTP.
    Http(StatusCode),
}

/// Spelling of an error in both bindings.
struct ErrorRow {
    /// Code of JSON-RPC.
    code: i32,
    /// Status of HTTP.
    status: StatusCode,
    /// Name of the status in gRPC.
    grpc: &'static str,
    /// Name of the error.
    reason: &'static str,
    /// Domain of the name.
    domain: &'static str,
}

const fn row(code: i32, status: StatusCode, grpc: &'static str, reason: &'static str) -> ErrorRow {
    ErrorRow { code, status, grpc, reason, domain: PROTOCOL }
}

impl A2aErrorKind {
    fn spelling(self) -> ErrorRow {
        let bad = StatusCode::BAD_REQUEST;
        match self {
            Self::TaskNotFound => row(-32001, StatusCode::NOT_FOUND, "NOT_FOUND", "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => row(-32002, bad, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
            Self::NotificationsNotSupported => row(-32003, bad, "UNIMPLEMENTED", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
            Self::UnsupportedOperation => row(-32004, bad, "UNIMPLEMENTED", "UNSUPPORTED_OPERATION"),
            Self::ContentTypeNotSupported => row(-32005, bad, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
            Self::VersionNotSupported => row(-32009, bad, "UNIMPLEMENTED", "VERSION_NOT_SUPPORTED"),
            Self::Parse => ErrorRow { domain: OWN, ..row(-32700, bad, "INVALID_ARGUMENT", "PARSE_ERROR") },
            Self::InvalidRequest => ErrorRow { domain: OWN, ..row(-32600, bad, "INVALID_ARGUMENT", "INVALID_REQUEST") },
            Self::MethodNotFound => {
                ErrorRow { domain: OWN, ..row(-32601, StatusCode::NOT_FOUND, "NOT_FOUND", "METHOD_NOT_FOUND") }
            }
            Self::InvalidParams => ErrorRow { domain: OWN, ..row(-32602, bad, "INVALID_ARGUMENT", "INVALID_PARAMS") },
            Self::Internal => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                ErrorRow { domain: OWN, ..row(-32603, status, "INTERNAL", "INTERNAL_ERROR") }
            }
            Self::Http(status) => {
                let grpc = grpc_status(status);
                ErrorRow { domain: OWN, ..row(-32000, status, grpc, grpc) }
            }
        }
    }
}

/// Returns the name of a status in gRPC, as AIP-193 maps them.
const fn grpc_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 | 405 | 411 | 415 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        413 | 429 | 507 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    }
}

/// An error of an operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct A2aError {
    pub(super) kind: A2aErrorKind,
    /// Error in words.
    pub(super) text: String,
    /// Facts for programs.
    facts: BTreeMap<String, String>,
    /// Seconds after which the same request may succeed.
    retry_after: Option<u32>,
}

impl A2aError {
    pub(super) fn new(kind: A2aErrorKind, text: impl Display) -> Self {
        Self { kind, text: text.to_string(), facts: BTreeMap::new(), retry_after: None }
    }

    /// An argument breaks a rule.
    pub(super) fn invalid(text: impl Display) -> Self {
        Self::new(A2aErrorKind::InvalidParams, text)
    }

    /// The caller may not do this.
    pub(super) fn not_permitted(text: impl Display) -> Self {
        Self::new(A2aErrorKind::Http(StatusCode::FORBIDDEN), text)
    }

    /// There is no such task, or the caller may not know of it.
    pub(super) fn no_task(id: &str) -> Self {
        let id: String = id.chars().take(80).collect();
        let error = Self::new(A2aErrorKind::TaskNotFound, format!("no task `{id}`"));
        Self { facts: BTreeMap::from([("taskId".to_owned(), id)]), ..error }
    }

    fn with_retry_after(self, seconds: Option<u32>) -> Self {
        Self { retry_after: seconds, ..self }
    }

    fn info(&self, row: &ErrorRow) -> A2aErrorInfo {
        A2aErrorInfo {
            type_url: ERROR_INFO.to_owned(),
            reason: row.reason.to_owned(),
            domain: row.domain.to_owned(),
            metadata: self.facts.clone(),
        }
    }

    /// Returns the answer of the HTTP+JSON binding.
    pub(super) fn rest_response(&self, media: &'static str) -> Response {
        let row = self.kind.spelling();
        let body = A2aRestError {
            error: A2aStatusView {
                code: row.status.as_u16(),
                status: row.grpc.to_owned(),
                message: self.text.clone(),
                details: vec![self.info(&row)],
            },
        };
        self.response(row.status, media, &to_json(&body))
    }

    /// Returns the answer of the JSON-RPC binding. What HTTP itself refuses has its status, all other errors have 200.
    pub(super) fn rpc_response(&self, id: Value) -> Response {
        let row = self.kind.spelling();
        let status = if matches!(self.kind, A2aErrorKind::Http(_)) { row.status } else { StatusCode::OK };
        let error = A2aRpcError { code: row.code, message: self.text.clone(), data: vec![self.info(&row)] };
        let body = A2aRpcErrorAnswer { jsonrpc: JSON_RPC.to_owned(), id, error };
        self.response(status, JSON, &to_json(&body))
    }

    fn response(&self, status: StatusCode, media: &'static str, body: &Value) -> Response {
        let mut response = (status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<Problem> for A2aError {
    fn from(problem: Problem) -> Self {
        let kind = match problem.status {
            StatusCode::BAD_REQUEST => A2aErrorKind::InvalidParams,
            StatusCode::INTERNAL_SERVER_ERROR => A2aErrorKind::Internal,
            status => A2aErrorKind::Http(status),
        };
        Self::new(kind, problem.detail).with_retry_after(problem.retry_after)
    }
}

impl From<StoreError> for A2aError {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl From<OpError> for A2aError {
    /// A conflict is about the state of a task: it asks nothing, or was answered.
    fn from(error: OpError) -> Self {
        match error {
            OpError::Conflict(text) => Self::new(A2aErrorKind::UnsupportedOperation, text),
            other => Problem::from(other).into(),
        }
    }
}

impl From<DataError> for A2aError {
    fn from(wrong: DataError) -> Self {
        Self::invalid(wrong)
    }
}

impl From<InputError> for A2aError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::MediaType { .. } => Self::new(A2aErrorKind::ContentTypeNotSupported, error),
            InputError::Denied(text) => Self::not_permitted(text),
            InputError::Store(error) => error.into(),
            InputError::Message(_) | InputError::Asset { .. } => Self::invalid(error),
        }
    }
}

impl From<NotificationError> for A2aError {
    fn from(error: NotificationError) -> Self {
        match error {
            NotificationError::Unsupported => Self::new(A2aErrorKind::NotificationsNotSupported, error),
            NotificationError::Denied(text) => Self::not_permitted(text),
            NotificationError::Limit(text) => Self::new(A2aErrorKind::Http(StatusCode::TOO_MANY_REQUESTS), text),
            NotificationError::Store(error) => error.into(),
            NotificationError::Invalid(_) | NotificationError::Secret(_) => Self::invalid(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_of_1_0_1() {
        use A2aErrorKind as Kind;
        for (kind, code, status, reason) in [
            (Kind::TaskNotFound, -32001, 404, "TASK_NOT_FOUND"),
            (Kind::TaskNotCancelable, -32002, 400, "TASK_NOT_CANCELABLE"),
            (Kind::NotificationsNotSupported, -32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
            (Kind::UnsupportedOperation, -32004, 400, "UNSUPPORTED_OPERATION"),
            (Kind::ContentTypeNotSupported, -32005, 400, "CONTENT_TYPE_NOT_SUPPORTED"),
            (Kind::VersionNotSupported, -32009, 400, "VERSION_NOT_SUPPORTED"),
            (Kind::Parse, -32700, 400, "PARSE_ERROR"),
            (Kind::InvalidRequest, -32600, 400, "INVALID_REQUEST"),
            (Kind::MethodNotFound, -32601, 404, "METHOD_NOT_FOUND"),
            (Kind::InvalidParams, -32602, 400, "INVALID_PARAMS"),
            (Kind::Internal, -32603, 500, "INTERNAL_ERROR"),
            (Kind::Http(StatusCode::FORBIDDEN), -32000, 403, "PERMISSION_DENIED"),
            (Kind::Http(StatusCode::INSUFFICIENT_STORAGE), -32000, 507, "RESOURCE_EXHAUSTED"),
        ] {
            let row = kind.spelling();
            assert_eq!((row.code, row.status.as_u16(), row.reason), (code, status, reason));
            let is_protocols = (-32_009..=-32_001).contains(&code);
            assert_eq!(row.domain == PROTOCOL, is_protocols, "{reason}");
        }
    }
}
