//! A streamed reply in this format, or one that came whole.

use super::super::DecodeError;
use super::super::reply::ReplyBuilder;
use serde_json::Value;

/// Takes one frame.
pub(crate) fn take(_reply: &mut ReplyBuilder, _value: &Value) -> Result<(), DecodeError> {
    Ok(())
}
