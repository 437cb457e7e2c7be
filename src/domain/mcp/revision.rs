//! Revisions of the protocol that this client speaks, and how it finds out which one a server speaks.

use crate::mcp::message::RpcError;
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Revision without a handshake: each request says who asks.
pub const STATELESS: &str = "2026-07-28";

/// Newest revision with a handshake, which is offered in it.
pub const HANDSHAKE: &str = "2025-11-25";

/// Revisions with a handshake that a server may choose.
const WITH_HANDSHAKE: [&str; 3] = [HANDSHAKE, "2025-06-18", "2025-03-26"];

/// Codes of errors that only a server of the revision without a handshake sends.
const STATELESS_CODES: [i64; 3] = [HEADER_MISMATCH, -32021, UNSUPPORTED_REVISION];

/// Code of a request whose headers differ from its body.
pub const HEADER_MISMATCH: i64 = -32020;
/// Code of a request in a revision that the server doesn't speak.
pub const UNSUPPORTED_REVISION: i64 = -32022;

/// The revision in which a server is asked, as a configuration says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RevisionChoice {
    /// The newer one is tried first.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// With a handshake and a session.
    #[serde(rename = "2025-11-25")]
    Handshake,
    /// Without a handshake.
    #[serde(rename = "2026-07-28")]
    Stateless,
}

impl RevisionChoice {
    /// Words of a configuration, for errors.
    pub const WORDS: &str = "`auto`, `2025-11-25` or `2026-07-28`";

    /// Reads the word of a configuration.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            HANDSHAKE => Some(Self::Handshake),
            STATELESS => Some(Self::Stateless),
            _ => None,
        }
    }
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolEra {
    /// With a handshake.
    Handshake,
    /// Without a handshake: each request says the revision.
    Stateless,
}

impl ProtocolEra {
    /// Returns the first way in which a server is asked.
    pub const fn first_try(choice: RevisionChoice) -> Self {
        match choice {
            RevisionChoice::Auto | RevisionChoice::Stateless => Self::Stateless,
            RevisionChoice::Handshake => Self::Handshake,
        }
    }
}

impl fmt::Display for ProtocolEra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handshake => HANDSHAKE,
            Self::Stateless => STATELESS,
        })
    }
}

/// What a refused request of the stateless revision says about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraHint {
    /// The server says that it speaks revisions with a handshake alone.
    Handshake,
    /// The server may be one that speaks revisions with a handshake alone.
    PerhapsHandshake,
    /// The server says that it speaks the revision in which it was asked: it is asked once more.
    Again,
    /// The server knows the stateless revisions: the refusal counts as it is.
    Stands,
}

/// Decides what a refused request says. `status` is that of HTTP, `error` the error of the body if it has one.
pub fn read_refusal(status: u16, error: Option<&RpcError>) -> EraHint {
    if let Some(error) = error {
        if error.code == UNSUPPORTED_REVISION {
            let offers = error.data["supported"].as_array().into_iter().flatten();
            let offers: Vec<&str> = offers.filter_map(Value::as_str).collect();
            return if offers.contains(&STATELESS) {
                EraHint::Again
            } else if offers.iter().any(|revision| WITH_HANDSHAKE.contains(revision)) {
                EraHint::Handshake
            } else {
                EraHint::Stands
            };
        }
        if STATELESS_CODES.contains(&error.code) {
            return EraHint::Stands;
        }
    }
    // A server with sessions refuses a request without one with 400, or says 404 or 405 where it expects a handshake; with
    // a body of JSON-RPC it may say so at 200, too, as it doesn't know the method before `initialize`.
    match status {
        400 | 404 | 405 | 406 | 415 | 422 => EraHint::PerhapsHandshake,
        _ => EraHint::Stands,
    }
}

/// Why a server's answer to the handshake can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it answers in the revision `{found}`, expected `{HANDSHAKE}`, `2025-06-18` or `2025-03-26`")]
pub struct RevisionError {
    /// Revision of the answer, cut to a readable length.
    pub found: String,
}

/// Checks the revision that a server has chosen in the handshake.
pub fn check_chosen(revision: &str) -> Result<&'static str, RevisionError> {
    let known = WITH_HANDSHAKE.into_iter().find(|known| *known == revision);
    known.ok_or_else(|| RevisionError { found: quote_foreign(revision) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(code: i64, data: Value) -> RpcError {
        RpcError { code, message: "m".into(), data }
    }

    #[test]
    fn a_refusal_tells_the_era_of_a_server() {
        let old = json!({"supported": ["2025-11-25", "2025-06-18"]});
        let both = json!({"supported": ["2025-11-25", "2026-07-28"]});
        for (status, refusal, expected) in [
            (400, None, EraHint::PerhapsHandshake),
            (404, None, EraHint::PerhapsHandshake),
            (405, None, EraHint::PerhapsHandshake),
            (400, Some(error(-32000, json!(null))), EraHint::PerhapsHandshake),
            (400, Some(error(UNSUPPORTED_REVISION, old)), EraHint::Handshake),
            (400, Some(error(UNSUPPORTED_REVISION, both)), EraHint::Again),
            (400, Some(error(UNSUPPORTED_REVISION, json!({"supported": ["2024-11-05"]}))), EraHint::Stands),
            (400, Some(error(UNSUPPORTED_REVISION, json!(null))), EraHint::Stands),
            (400, Some(error(HEADER_MISMATCH, json!(null))), EraHint::Stands),
            (401, None, EraHint::Stands),
            (403, None, EraHint::Stands),
            (500, None, EraHint::Stands),
            (429, None, EraHint::Stands),
            (200, Some(error(-32602, json!(null))), EraHint::Stands),
        ] {
            assert_eq!(read_refusal(status, refusal.as_ref()), expected, "{status} {refusal:?}");
        }
    }

    #[test]
    fn only_known_revisions_are_agreed_on() {
        for (revision, is_known) in
            [("2025-11-25", true), ("2025-06-18", true), ("2025-03-26", true), ("2024-11-05", false), ("", false)]
        {
            assert_eq!(check_chosen(revision).is_ok(), is_known, "{revision}");
        }
        for (word, choice) in [
            ("auto", Some(RevisionChoice::Auto)),
            ("2025-11-25", Some(RevisionChoice::Handshake)),
            ("2026-07-28", Some(RevisionChoice::Stateless)),
            ("2024-11-05", None),
        ] {
            assert_eq!(RevisionChoice::from_word(word), choice, "{word}");
        }
    }
}
