//! Errors of the Agent2Agent protocol: one body for each binding.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Facts about an error, `google.rpc.ErrorInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aErrorInfo {
    /// Name of the type.
    #[serde(rename = "@type")]
    pub type_url: String,
    /// Name of the error, in capitals.
    pub reason: String,
    /// Domain that the name belongs to.
    pub domain: String,
    /// Facts of the error by name, as texts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Body of an error of the HTTP+JSON binding, as AIP-193 has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aRestError {
    /// Status, text and details of the error.
    pub error: A2aStatusView,
}

/// An error with its HTTP status and the name of its status in gRPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aStatusView {
    /// HTTP status of the answer.
    pub code: u16,
    /// Name of the status in gRPC.
    pub status: String,
    /// Error in words.
    pub message: String,
    /// Facts about the error.
    pub details: Vec<A2aErrorInfo>,
}

/// An error of the JSON-RPC binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aRpcError {
    /// Code of the error.
    pub code: i32,
    /// Error in words.
    pub message: String,
    /// Facts about the error.
    pub data: Vec<A2aErrorInfo>,
}

/// Answer of the JSON-RPC binding that is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct A2aRpcErrorAnswer {
    /// Version of JSON-RPC.
    pub jsonrpc: String,
    /// Id of the request; null where it isn't known.
    pub id: Value,
    /// Code, text and details of the error.
    pub error: A2aRpcError,
}

/// Answer of the JSON-RPC binding, and each event of its streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct A2aRpcResult {
    /// Version of JSON-RPC.
    pub jsonrpc: String,
    /// Id of the request.
    pub id: Value,
    /// Answer of the operation.
    pub result: Value,
}
