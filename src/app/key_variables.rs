//! Keys that the configuration names by a variable of the environment.

use crate::domain::ids::secret::SecretName;
use crate::domain::ids::secret::SecretNameError;
use crate::domain::secret::{PlainSecret, ValueError};
use crate::venue::outbound::endpoint::Credential;

/// Why a key can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyVariableError {
    /// The environment has none.
    #[error("its key is in the environment variable `{variable}`, which isn't set")]
    NotSet {
        /// Name of the environment variable.
        variable: String,
    },
    /// It can't be a secret.
    #[error("its key, in `{variable}`: {error}")]
    Value {
        /// Name of the environment variable.
        variable: String,
        /// Limit that the key breaks.
        error: ValueError,
    },
    /// The place has a name that its key can't have.
    #[error(transparent)]
    Name(#[from] SecretNameError),
}

/// Where a key is, and how it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyVariable<'a> {
    /// Name of the environment variable.
    pub(super) variable: &'a str,
    /// Name of the header that carries the key.
    pub(super) header: &'a str,
    /// Text before the key.
    pub(super) prefix: &'a str,
    /// Name that replaces the key in answers.
    pub(super) shown: &'a str,
}

impl KeyVariable<'_> {
    /// Reads the key.
    pub(super) fn read(self) -> Result<Credential, KeyVariableError> {
        let Self { variable, header, prefix, shown } = self;
        let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| KeyVariableError::NotSet { variable: variable.to_owned() })?;
        let value = PlainSecret::new(value)
            .map_err(|error| KeyVariableError::Value { variable: variable.to_owned(), error })?;
        let shown = SecretName::new(shown)?;
        Ok(Credential { header: header.to_owned(), prefix: prefix.to_owned(), value, shown })
    }
}
