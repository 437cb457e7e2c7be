//! A request in this format.

use super::super::conversation::Conversation;
use super::super::dialect::Dialect;
use super::super::names::ToolNames;
use super::super::{EncodeError, HttpRequest};
use crate::chat::ModelRequest;

/// Writes the request.
pub(crate) fn encode(
    _request: &ModelRequest,
    _dialect: &Dialect,
    _conversation: &Conversation<'_>,
    _names: &ToolNames,
) -> Result<HttpRequest, EncodeError> {
    Ok(HttpRequest { path: String::new(), headers: Vec::new(), body: serde_json::json!({}) })
}
