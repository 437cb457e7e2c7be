//! Why a request can't be encoded, and why a reply can't be decoded.

use super::frames::ReplyLimitError;
use super::schema::ProjectionError;

/// Why a request can't be encoded for a provider. The same request always fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A tool's schema has no equivalent.
    #[error("tool `{tool}` can't be offered to `{provider}`: {reason}")]
    Schema {
        /// Name of the tool.
        tool: String,
        /// Name of the provider.
        provider: String,
        /// The part of the schema without an equivalent, with its place.
        reason: ProjectionError,
    },
    /// `extra` names a key that Trellis writes itself.
    #[error("`model.extra.{key}`: Trellis writes this key itself; use the setting of the agent")]
    OwnKey {
        /// Name of the key.
        key: String,
    },
    /// The format has no place for a setting.
    #[error("`{provider}` has no `{setting}`: {reason}")]
    Setting {
        /// Name of the provider.
        provider: String,
        /// Key of the setting, as `model.seed`.
        setting: &'static str,
        /// What to do instead.
        reason: String,
    },
}

/// Why bytes can't be decoded to a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The connection ended before the provider said that it was finished.
    #[error("the reply ended in the middle")]
    Incomplete,
    /// The provider reports a failure inside a reply that began well.
    #[error("{}", .0.message)]
    Reported(ProviderReport),
    /// The provider or its filter refuses to answer. The same request would be refused again.
    #[error("the provider refused an answer: {0}")]
    Refused(String),
    /// The reply ended for a reason that makes it unusable (`error`, `MALFORMED_FUNCTION_CALL`, an unknown one).
    #[error("the reply ended with `{0}`, so that it is no whole answer")]
    Unfinished(String),
    /// The provider's filter removed the rest of a reply.
    #[error("the provider's content filter (`{reason}`) cut its reply off after {chars} characters")]
    Filtered {
        /// Reason as the provider names it.
        reason: String,
        /// Number of characters before the cut.
        chars: usize,
    },
    /// The answer is not a stream of this format; its beginning.
    #[error("its answer is no reply of this format ({0}): is the URL of the endpoint right?")]
    Foreign(String),
    /// The reply exceeds a limit.
    #[error(transparent)]
    Limit(#[from] ReplyLimitError),
}

impl DecodeError {
    /// Returns the error with each text of the provider changed by `change`.
    #[must_use]
    pub fn map_words(self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Reported(report) => Self::Reported(ProviderReport { message: change(&report.message), ..report }),
            Self::Refused(words) => Self::Refused(change(&words)),
            Self::Unfinished(reason) => Self::Unfinished(change(&reason)),
            Self::Filtered { reason, chars } => Self::Filtered { reason: change(&reason), chars },
            Self::Foreign(beginning) => Self::Foreign(change(&beginning)),
            Self::Incomplete | Self::Limit(_) => self,
        }
    }
}

/// A failure as the provider reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderReport {
    /// Message, at most 1,000 characters.
    pub message: String,
    /// Values of `type`, `status` and `code`, where the report has them as text.
    pub kinds: Vec<String>,
    /// HTTP status, if one of these fields has a number from 100 to 599.
    pub status: Option<u16>,
}
