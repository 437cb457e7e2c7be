//! Failures of requests to servers, and what they mean for a call.

use crate::domain::mcp::message::RpcError;
use crate::domain::mcp::revision::{EraHint, read_refusal};
use crate::domain::mcp::stream::StreamLimitError;
use crate::domain::visible::quote_foreign;
use crate::venue::failure::OpError;

/// Statuses of HTTP after which the server may have done what it was asked.
const UNKNOWN_STATUSES: [u16; 4] = [500, 502, 504, 524];

/// Codes of JSON-RPC: wrong parameters, and methods that the server doesn't have.
const INVALID_PARAMS: i64 = -32602;
const NO_METHOD: i64 = -32601;

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum McpFailure {
    /// The request could not be sent, or its answer broke off.
    #[error("{0}")]
    Transport(OpError),
    /// The server answered with an error of the protocol.
    #[error("error {}: {}", .error.code, .error.message)]
    Rpc {
        /// Status of HTTP; 200 for an error in a stream.
        status: u16,
        /// Error of JSON-RPC that the server gave.
        error: RpcError,
    },
    /// The server answered with a status of HTTP and no message of the protocol.
    #[error("status {status}{}", .challenge.as_deref().map(|text| format!(" ({})", quote_foreign(text))).unwrap_or_default())]
    Status {
        /// Status of HTTP.
        status: u16,
        /// What it wants for authentication, from `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// No session began, so that the request wasn't sent.
    #[error("{0}")]
    Handshake(Box<Self>),
    /// The session that the request named is over: the server has not run it.
    #[error("its session is over")]
    SessionOver,
    /// The answer can't be read.
    #[error("{0}")]
    Answer(String),
    /// The answer is larger than it may be.
    #[error(transparent)]
    Stream(#[from] StreamLimitError),
    /// The stream ended without an answer.
    #[error("its stream ended without an answer")]
    Ended,
    /// No progress came for too long.
    #[error("no answer and no progress within {seconds} s")]
    Silent {
        /// Seconds that were waited.
        seconds: u64,
    },
}

impl McpFailure {
    /// Returns what a refusal says about the revisions of the server.
    pub(super) fn era_hint(&self) -> EraHint {
        match self {
            Self::Rpc { status, error } => read_refusal(*status, Some(error)),
            Self::Status { status, .. } => read_refusal(*status, None),
            _ => EraHint::Stands,
        }
    }

    /// Whether the server has refused to begin a session.
    pub(super) fn is_refused_handshake(&self) -> bool {
        matches!(self, Self::Handshake(why) if matches!(**why, Self::Rpc { .. } | Self::Status { .. }))
    }

    /// Returns the error of an operation. `shown` names the server; `may_have_run`: the request has left, and must not be
    /// repeated.
    pub(crate) fn into_op_error(self, shown: &str, may_have_run: bool) -> OpError {
        if let Self::Handshake(why) = self {
            return why.into_op_error(shown, false);
        }
        let text = match &self {
            Self::Transport(error) => error.to_string(),
            Self::Status { status: 401 | 403, .. } => {
                format!(
                    "{shown} wants another login: {self}; set a header of it in `headers`, or `key_env` or `secret`"
                )
            }
            _ => format!("{shown}: {self}"),
        };
        let is_unknown = may_have_run
            && match &self {
                Self::Transport(error) => !matches!(error, OpError::Denied(_)),
                Self::Status { status, .. } => UNKNOWN_STATUSES.contains(status),
                Self::Answer(_) | Self::Stream(_) | Self::Ended | Self::Silent { .. } => true,
                Self::Rpc { .. } | Self::Handshake(_) | Self::SessionOver => false,
            };
        if is_unknown {
            return OpError::OutcomeUnknown(text);
        }
        match self {
            Self::Transport(error) => error,
            Self::Rpc { error, .. } if error.code == INVALID_PARAMS => OpError::Invalid(text),
            Self::Rpc { error, .. } if error.code == NO_METHOD => OpError::NotFound(text),
            Self::Status { status: 401 | 403, .. } => OpError::Denied(text),
            Self::Silent { .. } => OpError::Timeout(text),
            Self::Rpc { .. }
            | Self::Status { .. }
            | Self::Handshake(_)
            | Self::SessionOver
            | Self::Answer(_)
            | Self::Stream(_)
            | Self::Ended => OpError::Upstream(text),
        }
    }
}

impl From<OpError> for McpFailure {
    fn from(error: OpError) -> Self {
        Self::Transport(error)
    }
}
