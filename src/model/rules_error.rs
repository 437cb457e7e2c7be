//! Errors of a rules file, with their position.

use crate::config::position::{FilePosition, locate};
use crate::model::template::TemplateError;
use std::fmt;

/// Reason why a rules file can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// The text is neither TOML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// The file has an unknown key.
    #[error("unknown key `{key}` in {place}{}{}", .nearest.map(|n| format!(", did you mean `{n}`")).unwrap_or_default(), suffix(.position.as_ref()))]
    UnknownKey {
        /// The key that the file has.
        key: String,
        /// The part of the file that has it.
        place: RulesPlace,
        /// The nearest known key.
        nearest: Option<&'static str>,
        /// Line and column of the key.
        position: Option<FilePosition>,
    },
    /// A value of the wrong type, or a combination without meaning.
    #[error("{place}: {reason}{}", suffix(.position.as_ref()))]
    Invalid {
        /// The part of the file that has it.
        place: RulesPlace,
        /// What was expected and found.
        reason: String,
        /// Line and column of the value, or of the part that has it; `None` if unknown.
        position: Option<FilePosition>,
    },
}

/// Reason why the answer of a rule has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleReplyError {
    /// The answer is neither a reply nor a fault.
    #[error("expected `text`, `calls` or `fault`, got none of them")]
    Empty,
    /// The fault spoils the arguments of a call, and there is no call.
    #[error("`fault = \"bad_json\"` needs `calls`")]
    BadJsonWithoutCalls,
    /// The number of faults is given without a fault.
    #[error("`times` needs a `fault`")]
    TimesWithoutFault,
    /// A pause is given without a fault that has one.
    #[error("`retry_after_ms` needs `fault = \"rate_limit\"` or `\"overloaded\"`")]
    RetryWithoutFault,
    /// A template of the text is illegal.
    #[error(transparent)]
    Text(TemplateError),
    /// A template in the arguments of a call is illegal.
    #[error("{error}")]
    CallTemplate {
        /// Index of the call, from 0.
        call: usize,
        /// What is wrong with the template.
        error: TemplateError,
    },
    /// The arguments of a call are no table.
    #[error("`arguments` of `{tool}`: expected a table")]
    Arguments {
        /// Index of the call, from 0.
        call: usize,
        /// Name of the tool.
        tool: String,
    },
}

impl RuleReplyError {
    /// Returns the keys and indices that lead from the rule to what is wrong.
    pub(super) fn steps(&self) -> Vec<String> {
        let steps = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        match self {
            Self::Empty => steps(&["then"]),
            Self::BadJsonWithoutCalls => steps(&["then", "fault"]),
            Self::TimesWithoutFault => steps(&["then", "times"]),
            Self::RetryWithoutFault => steps(&["then", "retry_after_ms"]),
            Self::Text(_) => steps(&["then", "text"]),
            Self::CallTemplate { call, .. } | Self::Arguments { call, .. } => {
                steps(&["then", "calls", &call.to_string(), "arguments"])
            }
        }
    }
}

impl RulesError {
    /// Whether the file may be one that was never meant to hold rules.
    #[must_use]
    pub fn may_be_other_file(&self) -> bool {
        match self {
            Self::Syntax(_) => true,
            Self::UnknownKey { place, nearest, .. } => *place == RulesPlace::default() && nearest.is_none(),
            Self::Invalid { .. } => false,
        }
    }

    /// Adds the position in the text of the file.
    #[must_use]
    pub(super) fn with_position(mut self, text: &str) -> Self {
        match &mut self {
            Self::Syntax(_) => {}
            Self::UnknownKey { key, place, position, .. } => {
                *position = place.position(text, &[key]);
            }
            Self::Invalid { place, position, .. } => *position = place.position(text, &[]),
        }
        self
    }
}

fn suffix(position: Option<&FilePosition>) -> String {
    position.map(|position| format!(" ({position})")).unwrap_or_default()
}

/// A part of a rules file; its text is the number of the rule and a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RulesPlace {
    /// Number of the rule, counted from 1; `None`: the file itself.
    pub rule: Option<usize>,
    /// The key in it.
    pub key: Option<&'static str>,
    /// Steps from there, keys and indices.
    pub steps: Vec<String>,
}

impl RulesPlace {
    /// Makes the place of a rule, by its number from 1.
    pub fn rule(number: usize) -> Self {
        Self { rule: Some(number), ..Self::default() }
    }

    /// Returns the place of a key of this part.
    #[must_use]
    pub fn key(&self, key: &'static str) -> Self {
        Self { key: Some(key), ..self.clone() }
    }

    /// Returns the place that the steps lead to from here.
    #[must_use]
    pub fn child(&self, steps: impl IntoIterator<Item = String>) -> Self {
        let mut place = self.clone();
        place.steps.extend(steps);
        place
    }

    fn position(&self, text: &str, more: &[&str]) -> Option<FilePosition> {
        let index = self.rule.map(|number| (number - 1).to_string());
        let rule = index.iter().flat_map(|index| ["rule", index.as_str()]);
        let inner = self.steps.iter().map(String::as_str);
        // Calls and usage are keys of the answer.
        let outer = self.key.filter(|key| matches!(*key, "calls" | "usage")).map(|_| "then");
        let steps: Vec<&str> = rule.chain(outer).chain(self.key).chain(inner).chain(more.iter().copied()).collect();
        locate(text, &steps)
    }
}

impl fmt::Display for RulesPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rule, self.key) {
            (None, None) => f.write_str("the file"),
            (None, Some(key)) => write!(f, "`{key}`"),
            (Some(number), None) => write!(f, "rule {number}"),
            (Some(number), Some(key)) => write!(f, "rule {number} `{key}`"),
        }
    }
}
