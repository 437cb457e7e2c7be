//! API keys of the venue, from environment variables.

use crate::model::target_error::TargetError;
use std::collections::BTreeMap;
use std::fmt;

/// API keys by name of the variable; `Debug` prints only their number.
#[derive(Clone, Default)]
pub struct Keys(BTreeMap<String, String>);

impl Keys {
    /// Makes a set of keys from names and values.
    pub fn new(keys: impl IntoIterator<Item = (String, String)>) -> Keys {
        Keys(keys.into_iter().collect())
    }

    /// Reads the environment of this process; variables that are not UTF-8 are left out.
    pub fn from_env() -> Keys {
        Keys::new(
            std::env::vars_os().filter_map(|(name, key)| Some((name.into_string().ok()?, key.into_string().ok()?))),
        )
    }

    /// Returns the key in the variable of this name, without blanks around it.
    pub(super) fn get(&self, name: &str) -> Result<String, TargetError> {
        match self.0.get(name).map(|key| key.trim()) {
            Some(key) if !key.is_empty() => Ok(key.to_owned()),
            _ => Err(TargetError::NoKey(name.to_owned())),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}
