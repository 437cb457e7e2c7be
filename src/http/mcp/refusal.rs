//! Errors of requests: a JSON-RPC error with the HTTP status that goes with it.

use crate::domain::visible::quote_foreign;
use crate::http::problem::Problem;
use crate::store::StoreError;
use crate::venue::operation::OpError;
use crate::view::mcp::{McpErrorMessage, McpFault, McpMissingCapability, McpVersionFacts};
use crate::view::to_json;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use std::fmt::Display;

pub(super) const PARSE_ERROR: i64 = -32_700;
pub(super) const INVALID_REQUEST: i64 = -32_600;
pub(super) const METHOD_NOT_FOUND: i64 = -32_601;
pub(super) const INVALID_PARAMS: i64 = -32_602;
pub(super) const INTERNAL_ERROR: i64 = -32_603;
pub(super) const HEADER_MISMATCH: i64 = -32_020;
pub(super) const MISSING_CAPABILITY: i64 = -32_021;
pub(super) const UNSUPPORTED_VERSION: i64 = -32_022;

/// An error as an answer.
#[derive(Debug, PartialEq)]
pub(super) struct RpcRefusal {
    /// HTTP status of the answer; 200 for an error of a method that was found and called.
    pub(super) status: StatusCode,
    pub(super) fault: McpFault,
}

impl RpcRefusal {
    /// Makes an error of a method that was called.
    pub(super) fn new(code: i64, message: impl Display) -> Self {
        Self { status: StatusCode::OK, fault: McpFault { code, message: message.to_string(), data: None } }
    }

    /// Makes an error of a message that no method was called for.
    pub(super) fn malformed_message(code: i64, message: impl Display) -> Self {
        Self { status: StatusCode::BAD_REQUEST, ..Self::new(code, message) }
    }

    /// Makes the error of an unknown method.
    pub(super) fn unknown_method(method: &str, is_stateless: bool) -> Self {
        let refusal = Self::new(METHOD_NOT_FOUND, format!("method not found: `{}`", quote_foreign(method)));
        // Clients of older revisions take a status for a failure of the transport.
        if is_stateless { Self { status: StatusCode::NOT_FOUND, ..refusal } } else { refusal }
    }

    /// Makes the error of a header that is missing or differs from the body.
    pub(super) fn header_mismatch(message: impl Display) -> Self {
        Self::malformed_message(HEADER_MISMATCH, format!("header mismatch: {message}"))
    }

    /// Makes the error of a revision that is not spoken here.
    pub(super) fn unsupported_version(requested: &str, supported: Vec<&'static str>) -> Self {
        let text = format!("unsupported protocol version, expected one of {}", supported.join(", "));
        let facts = McpVersionFacts { supported, requested: quote_foreign(requested) };
        Self::malformed_message(UNSUPPORTED_VERSION, text).with_data(to_json(&facts))
    }

    /// Makes the error of a capability that the client must declare; `name` says which in words.
    pub(super) fn missing_capability(name: &str, required: Map<String, Value>) -> Self {
        let facts = McpMissingCapability { required_capabilities: required };
        let text = format!("missing required client capability: `{name}`, declared with the request");
        Self::malformed_message(MISSING_CAPABILITY, text).with_data(to_json(&facts))
    }

    /// Adds facts for programs.
    pub(super) fn with_data(mut self, data: Value) -> Self {
        self.fault.data = Some(data);
        self
    }

    /// Makes the answer to the request of this id.
    pub(super) fn into_response(self, id: Option<Value>) -> Response {
        (self.status, Json(McpErrorMessage::new(id, self.fault))).into_response()
    }
}

impl From<Problem> for RpcRefusal {
    /// Errors of the venue keep their status as the code, which lies outside the codes of JSON-RPC.
    fn from(problem: Problem) -> Self {
        let code = match problem.status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => INVALID_PARAMS,
            StatusCode::INTERNAL_SERVER_ERROR => INTERNAL_ERROR,
            status => i64::from(status.as_u16()),
        };
        Self::new(code, problem.detail)
    }
}

impl From<OpError> for RpcRefusal {
    fn from(error: OpError) -> Self {
        Problem::from(error).into()
    }
}

impl From<StoreError> for RpcRefusal {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}
