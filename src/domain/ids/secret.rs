//! Names of secrets: the last part of a path `s/NAME`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of a name at most.
const NAME_BYTES: usize = 64;

/// Name of a secret under its owner: `s/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline, description = "")]
pub struct SecretName(String);

/// Reason why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("illegal secret name `{0}`: expected 1 to 64 of `[A-Za-z0-9_.-]`, starting with a letter, a digit or `_`")]
pub struct SecretNameError(String);

impl SecretName {
    /// Makes a name of a text without `s/`.
    pub fn new(text: &str) -> Result<Self, SecretNameError> {
        let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let legal = text.len() <= NAME_BYTES
            && text.starts_with(first)
            && text.chars().all(|c| first(c) || c == '.' || c == '-');
        if legal { Ok(Self(text.to_owned())) } else { Err(SecretNameError(text.chars().take(80).collect())) }
    }

    /// Reads the name from a path `s/NAME`.
    pub fn from_path(path: &str) -> Result<Self, SecretNameError> {
        path.strip_prefix("s/").ok_or_else(|| SecretNameError(path.chars().take(80).collect())).and_then(Self::new)
    }

    /// Returns the name without `s/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the lattice path `s/NAME`.
    pub fn path(&self) -> String {
        format!("s/{}", self.0)
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;
    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        Self::new(text)
    }
}

impl TryFrom<String> for SecretName {
    type Error = SecretNameError;
    fn try_from(text: String) -> Result<Self, SecretNameError> {
        Self::new(&text)
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for (text, legal) in [
            ("STRIPE_KEY", true),
            ("a", true),
            ("1.b-c", true),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
            ("", false),
            (".a", false),
            ("-a", false),
            ("a/b", false),
            ("a b", false),
            ("a\n", false),
            ("ä", false),
            ("s/a", false),
        ] {
            assert_eq!(SecretName::new(text).is_ok(), legal, "{text:?}");
        }
        assert_eq!(SecretName::from_path("s/a").unwrap().path(), "s/a");
        assert!(SecretName::from_path("w/a").is_err() && SecretName::from_path("a").is_err());
        assert!(serde_json::from_str::<SecretName>("\"a b\"").is_err());
    }
}
