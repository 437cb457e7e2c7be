//! What a status of a service means for a declared call.

use super::DeclaredEffect;
use crate::limits::DECLARED_STATUSES;
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Meaning of a status, as a declaration gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusMeaning {
    /// The answer has the result.
    Result,
    /// The call was not done; it is made again after a pause.
    Retry,
    /// The call was not done, and the model learns why.
    Error,
    /// There is nothing of that name: the result is null.
    Nothing,
    /// The call was not done, and a person must see to it.
    Person,
}

/// What becomes of a call after a whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerVerdict {
    /// As the declaration says, or as every service means it.
    Known(StatusMeaning),
    /// A server failed, and the call may have taken effect.
    Unknown,
    /// A server failed, and the call may be made again under its key; if it fails each time, it may have taken effect.
    RetryOrUnknown,
}

/// Rule that a key of the meanings breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatusRule {
    /// The key is no status and no class of them.
    #[error("`{}`: expected a status from 200 to 599, or a class such as `4xx`", quote_foreign(.key))]
    Key {
        /// Key as it was given.
        key: String,
    },
    /// There are too many keys.
    #[error("expected at most {DECLARED_STATUSES} statuses, got {found}")]
    TooMany {
        /// Number of keys.
        found: usize,
    },
}

/// Statuses by which services ask for another attempt: they are too busy, restart, or are away.
const BUSY: [u16; 6] = [408, 425, 429, 502, 503, 504];

/// Checks the keys of the meanings.
pub fn check_statuses(meanings: &BTreeMap<String, StatusMeaning>) -> Result<(), StatusRule> {
    if meanings.len() > DECLARED_STATUSES {
        return Err(StatusRule::TooMany { found: meanings.len() });
    }
    match meanings.keys().find(|key| !is_status(key)) {
        Some(key) => Err(StatusRule::Key { key: key.clone() }),
        None => Ok(()),
    }
}

fn is_status(key: &str) -> bool {
    let class = key.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
    let status = key.parse::<u16>().ok();
    class.is_some_and(|class| key.len() == 3 && (2..=5).contains(&class))
        || status.is_some_and(|status| key.len() == 3 && (200..=599).contains(&status))
}

/// Returns what a status means. A status of its own counts before its class; what the declaration doesn't say follows
/// from the effect.
pub fn judge_status(meanings: &BTreeMap<String, StatusMeaning>, effect: DeclaredEffect, status: u16) -> AnswerVerdict {
    let class = status / 100;
    if let Some(meaning) = meanings.get(&status.to_string()).or_else(|| meanings.get(&format!("{class}xx"))) {
        return AnswerVerdict::Known(*meaning);
    }
    let is_busy = BUSY.contains(&status);
    match (class, effect) {
        (2, _) => AnswerVerdict::Known(StatusMeaning::Result),
        (_, DeclaredEffect::Read) if is_busy => AnswerVerdict::Known(StatusMeaning::Retry),
        (_, DeclaredEffect::Repeatable) if is_busy => AnswerVerdict::RetryOrUnknown,
        (5, DeclaredEffect::Repeatable | DeclaredEffect::Once) => AnswerVerdict::Unknown,
        // The server waited in vain for the request, or for what it began.
        (_, DeclaredEffect::Once) if status == 408 => AnswerVerdict::Unknown,
        _ => AnswerVerdict::Known(StatusMeaning::Error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_means_what_is_declared_else_what_its_effect_allows() {
        use AnswerVerdict::{Known, RetryOrUnknown, Unknown};
        use DeclaredEffect::{Once, Read, Repeatable};
        use StatusMeaning::{Error, Nothing, Person, Result, Retry};
        let declared: BTreeMap<String, StatusMeaning> =
            [("404", Nothing), ("402", Person), ("4xx", Error), ("503", Retry), ("204", Nothing)]
                .map(|(key, meaning)| (key.to_owned(), meaning))
                .into();
        check_statuses(&declared).unwrap();
        for (status, effect, expected) in [
            (200, Once, Known(Result)),
            (204, Read, Known(Nothing)),
            (404, Read, Known(Nothing)),
            (402, Once, Known(Person)),
            (429, Read, Known(Error)),
            (503, Once, Known(Retry)),
            (500, Once, Unknown),
        ] {
            assert_eq!(judge_status(&declared, effect, status), expected, "{status} {effect:?}");
        }
        let none = BTreeMap::new();
        for (status, expected) in [
            (201, [Known(Result); 3]),
            (304, [Known(Error); 3]),
            (400, [Known(Error); 3]),
            (404, [Known(Error); 3]),
            (408, [Known(Retry), RetryOrUnknown, Unknown]),
            (429, [Known(Retry), RetryOrUnknown, Known(Error)]),
            (500, [Known(Error), Unknown, Unknown]),
            (503, [Known(Retry), RetryOrUnknown, Unknown]),
        ] {
            let found = [Read, Repeatable, Once].map(|effect| judge_status(&none, effect, status));
            assert_eq!(found, expected, "{status}");
        }
    }

    #[test]
    fn keys_are_statuses_or_classes() {
        for (key, is_legal) in [
            ("200", true),
            ("599", true),
            ("4xx", true),
            ("5xx", true),
            ("199", false),
            ("600", false),
            ("1xx", false),
            ("44xx", false),
            ("x", false),
            ("", false),
            ("0404", false),
            ("+404", false),
        ] {
            let meanings = BTreeMap::from([(key.to_owned(), StatusMeaning::Error)]);
            assert_eq!(check_statuses(&meanings).is_ok(), is_legal, "{key}");
        }
    }
}
