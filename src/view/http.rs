//! Answers of hosts that operations call.

use crate::domain::decode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Answer of a host to a call over HTTP, whatever its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostAnswerView {
    /// Status code of HTTP.
    pub status: u16,
    /// URL that answered, after redirects.
    pub url: String,
    /// Headers by name, without cookies; several of one name are joined by commas.
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: Map<String, Value>,
    /// Bytes of the body.
    pub size: usize,
    /// Body that is text; parsed where its type is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "decode::nullable_field")]
    pub body: Option<Value>,
    /// Body in Base64 that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}
