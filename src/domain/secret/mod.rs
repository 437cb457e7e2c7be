//! Secrets: names, allowed destinations, encryption at rest, and masking in outputs.
//!
//! A value exists in three places only: sealed in its record, in memory during a call with its reference, and on the
//! connection to a host that it is bound to.

pub mod binding;
pub mod hide;
pub mod keys;
pub mod mask;
mod needle;
pub mod record;
pub mod reference;

pub use binding::{Binding, BindingError, Destination};
pub use keys::{Key, KeyError, KeyId, KeyRing, UnsealError};
pub use mask::Mask;
pub use record::{SecretFacts, SecretRecord};
pub use reference::{SecretReference, SecretReferenceError};

use crate::limits::{SECRET_BYTES, SECRET_BYTES_LEAST};
use serde::Deserialize;
use std::fmt;
use zeroize::Zeroizing;

/// A value in the clear: wiped when dropped, never printed, never serialised.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PlainSecret(Zeroizing<String>);

impl TryFrom<String> for PlainSecret {
    type Error = ValueError;
    fn try_from(value: String) -> Result<Self, ValueError> {
        Self::new(value)
    }
}

/// Reason why a value can't be a secret. No variant shows the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The value is so short that masking it in outputs would hit ordinary text.
    #[error(
        "expected a value that can be told from ordinary text where outputs are masked, of at least {SECRET_BYTES_LEAST} bytes, got {0}"
    )]
    Short(usize),
    /// The value is larger than keys and certificates are.
    #[error("expected a value of at most {SECRET_BYTES} bytes, got {0}")]
    Long(usize),
    /// The value is the text that records hold in place of a value.
    #[error(
        "the value is no longer known: it is not kept with the call, and the worker was restarted before it was stored; call again with the value"
    )]
    Hidden,
}

impl PlainSecret {
    /// Checks the limits of a value.
    pub fn new(value: String) -> Result<Self, ValueError> {
        let value = Zeroizing::new(value);
        if *value == hide::HIDDEN {
            return Err(ValueError::Hidden);
        }
        match value.len() {
            short if short < SECRET_BYTES_LEAST => Err(ValueError::Short(short)),
            long if long > SECRET_BYTES => Err(ValueError::Long(long)),
            _ => Ok(Self(value)),
        }
    }

    /// Makes a value of a record; it was checked when it was sealed.
    fn from_sealed(value: Zeroizing<String>) -> Self {
        Self(value)
    }

    /// Returns the value. Copies of it must not outlive the call.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PlainSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_bounds_and_are_never_printed() {
        assert_eq!(PlainSecret::new("1234567".into()), Err(ValueError::Short(7)));
        assert_eq!(PlainSecret::new("x".repeat(65_537)), Err(ValueError::Long(65_537)));
        assert_eq!(PlainSecret::new(hide::HIDDEN.into()), Err(ValueError::Hidden));
        let value = PlainSecret::new("hunter2hunter2".into()).unwrap();
        assert_eq!((format!("{value:?}").as_str(), value.reveal()), ("Plain(***)", "hunter2hunter2"));
    }
}
