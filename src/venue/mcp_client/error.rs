//! Failures of requests to servers, and what they mean for a call.

use crate::domain::mcp::message::RpcError;
use crate::domain::mcp::revision::{EraHint, read_refusal};
use crate::domain::mcp::stream::StreamLimitError;
use crate::domain::visible::quote_foreign;
use crate::venue::failure::OpError;

/// Statuses from 500 on with which a server refuses a call before it begins.
const NOTHING_DONE: [u16; 3] = [501, 503, 505];

/// Statuses below 500 of refusals that aren't about the protocol: another login, and another time.
const OTHER_REFUSALS: [u16; 5] = [401, 403, 408, 425, 429];

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

/// What the failure of a request that has left means for the call that it was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureMeaning {
    /// Nothing was done, and the same request may succeed later.
    NotRun,
    /// Nothing was done, and the same request will be refused again; or the tool was called and has failed.
    Refused,
    /// The request may have had its effect.
    Unknown,
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

    /// Whether the server has refused to begin a session as one without sessions does. A server that wants another login,
    /// or can't answer now, says nothing of its revisions.
    pub(super) fn is_refused_handshake(&self) -> bool {
        let Self::Handshake(why) = self else { return false };
        match **why {
            Self::Rpc { status, .. } | Self::Status { status, .. } => status < 500 && !OTHER_REFUSALS.contains(&status),
            _ => false,
        }
    }

    /// Returns what it means for the call that the request was about, if the request has left.
    pub(crate) fn meaning(&self) -> FailureMeaning {
        match self {
            Self::Transport(OpError::Denied(_)) => FailureMeaning::Refused,
            Self::Handshake(why) => match why.meaning() {
                FailureMeaning::Refused => FailureMeaning::Refused,
                FailureMeaning::NotRun | FailureMeaning::Unknown => FailureMeaning::NotRun,
            },
            Self::SessionOver => FailureMeaning::NotRun,
            Self::Status { status, .. } | Self::Rpc { status, .. } => match status {
                401 | 403 => FailureMeaning::Refused,
                status if NOTHING_DONE.contains(status) || OTHER_REFUSALS.contains(status) => FailureMeaning::NotRun,
                500.. => FailureMeaning::Unknown,
                _ => FailureMeaning::Refused,
            },
            Self::Transport(_) | Self::Answer(_) | Self::Stream(_) | Self::Ended | Self::Silent { .. } => {
                FailureMeaning::Unknown
            }
        }
    }

    /// Whether the server says that it doesn't know the task, or the session, that the request was about.
    pub(crate) fn is_of_lost_task(&self) -> bool {
        match self {
            Self::SessionOver | Self::Status { status: 404, .. } => true,
            Self::Rpc { status, error } => *status == 404 || error.code == INVALID_PARAMS,
            _ => false,
        }
    }

    /// Returns the error of an operation. `shown` names the server; `may_have_run`: the request has left, and must not be
    /// repeated.
    pub(super) fn into_op_error(self, shown: &str, may_have_run: bool) -> OpError {
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
        if may_have_run && self.meaning() == FailureMeaning::Unknown {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_refusal_that_may_pass_is_told_from_a_final_one() {
        let status = |status| McpFailure::Status { status, challenge: None };
        for (failure, meaning) in [
            (status(401), FailureMeaning::Refused),
            (status(404), FailureMeaning::Refused),
            (status(408), FailureMeaning::NotRun),
            (status(429), FailureMeaning::NotRun),
            (status(500), FailureMeaning::Unknown),
            (status(503), FailureMeaning::NotRun),
            (McpFailure::SessionOver, FailureMeaning::NotRun),
            (McpFailure::Handshake(Box::new(status(401))), FailureMeaning::Refused),
            (McpFailure::Handshake(Box::new(status(500))), FailureMeaning::NotRun),
            (McpFailure::Ended, FailureMeaning::Unknown),
        ] {
            assert_eq!(failure.meaning(), meaning, "{failure}");
        }
    }

    #[test]
    fn what_may_have_run_is_told_from_what_has_not() {
        let status = |status| McpFailure::Status { status, challenge: None };
        let rpc = |status| McpFailure::Rpc {
            status,
            error: RpcError { code: -32603, message: "no".into(), data: Value::Null },
        };
        let denied = || McpFailure::Transport(OpError::Denied("no".into()));
        let broken = || McpFailure::Transport(OpError::Upstream("no".into()));
        for (failure, is_unknown) in [
            (status(500), true),
            (status(502), true),
            (status(520), true),
            (rpc(500), true),
            (status(503), false),
            (status(404), false),
            (rpc(200), false),
            (denied(), false),
            (broken(), true),
            (McpFailure::Ended, true),
            (McpFailure::Silent { seconds: 1 }, true),
            (McpFailure::SessionOver, false),
            (McpFailure::Handshake(Box::new(status(502))), false),
        ] {
            let text = failure.to_string();
            let error = failure.into_op_error("it", true);
            assert_eq!(matches!(error, OpError::OutcomeUnknown(_)), is_unknown, "{text}: {error:?}");
        }
        assert!(!matches!(broken().into_op_error("it", false), OpError::OutcomeUnknown(_)), "nothing has left");
        for (failure, is_refusal) in [(status(400), true), (rpc(200), true), (status(401), false), (status(503), false)]
        {
            assert_eq!(McpFailure::Handshake(Box::new(failure)).is_refused_handshake(), is_refusal);
        }
    }
}
