//! Errors of the sources and keys of rows.

use super::KEY_BYTES;
use crate::nearest::did_you_mean;
use crate::visible;

/// Beginnings of sources, for suggestions.
const FORMS: [&str; 8] = ["session.", "user.", "agent.", "project.", "_global", "_auto", "CONSTANT:", "LLM"];

/// Why a text is no source of a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowSourceError {
    /// The name of a tier is misspelt.
    #[error("unknown tier `{first}`, did you mean `{nearest}.{rest}`; a key of that name is `session.{first}.{rest}`")]
    Tier {
        /// Text before the first dot.
        first: String,
        /// Text behind it.
        rest: String,
        /// Name of a tier like it.
        nearest: &'static str,
    },
    /// The text has the form of no source.
    #[error("{}", unknown_source(.0))]
    Unknown(String),
    /// The text is no key.
    #[error(transparent)]
    Key(#[from] MappingKeyError),
    /// The text behind the name of a tier is no key.
    #[error("`{text}`: {error}")]
    TierKey {
        /// The whole text.
        text: String,
        /// What is wrong with the key.
        error: MappingKeyError,
    },
}

/// Why a text is no key of a row or a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingKeyError {
    /// The key is empty.
    #[error("expected a key, got an empty text")]
    Empty,
    /// The key is longer than [`KEY_BYTES`]; holds its bytes.
    #[error("a key has {0} bytes, expected at most {KEY_BYTES}")]
    TooLong(usize),
    /// The key has a character that is not allowed.
    #[error("illegal key `{}`: spaces, control characters and `{{}}$` are not allowed", .0.escape_debug())]
    Illegal(String),
    /// The key has an invisible character.
    #[error("illegal key `{}`: {}", .0.escape_debug(), visible::RULE)]
    Hidden(String),
}

fn unknown_source(text: &str) -> String {
    let begin = text.find(['.', ':']).map_or(text, |at| &text[..=at]);
    let hint = did_you_mean(begin, &FORMS);
    let shown: String = text.chars().take(80).collect();
    format!(
        "unknown source `{shown}`, expected `session.k`, `user.k`, `agent.k`, `project.k`, `_global`, `_auto`, \
         `CONSTANT:x`, `LLM` or a key{hint}"
    )
}
