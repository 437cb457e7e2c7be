//! JSON-RPC 2.0, as far as the protocols that use it have it in common.

use serde_json::Value;

/// Longest id that is a text, in bytes: it goes into every answer, and into every event of a stream.
pub(super) const ID_BYTES: usize = 256;

/// Whether a value is an id of a request: a whole number or a short text.
pub(super) fn is_id(id: &Value) -> bool {
    match id {
        Value::Number(number) => number.is_i64() || number.is_u64(),
        Value::String(text) => text.len() <= ID_BYTES,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}
