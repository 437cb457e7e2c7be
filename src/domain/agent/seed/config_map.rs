//! A configuration before it is read, and its errors.

use crate::decode::DataError;
use serde_json::{Map, Value};

/// Keys and values of a configuration.
pub(crate) type ConfigMap = Map<String, Value>;

/// Refuses a configuration with this text.
pub(crate) fn invalid<T>(text: impl Into<String>) -> Result<T, DataError> {
    Err(text.into().into())
}
