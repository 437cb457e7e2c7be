//! A request to a server, and its answer, whichever way it is sent.

use crate::domain::call::SentMarks;
use crate::domain::mcp::message::McpRequest;
use serde_json::Value;
use std::time::Duration;

/// A request with all that its sending needs.
pub(crate) struct PeerCall<'a> {
    /// Request as it is sent in either revision.
    pub(crate) request: McpRequest,
    /// Headers of its arguments.
    pub(crate) params: &'a [(String, String)],
    /// Marks of a call with an effect, which go into headers; a program gets none of them.
    pub(crate) marks: Option<&'a SentMarks>,
    /// Time without progress.
    pub(crate) patience: Duration,
    /// Most bytes of the answer.
    pub(crate) max_bytes: usize,
    /// Whether the request may be sent again.
    pub(crate) repeatable: bool,
}

/// An answer with the headers that came with it.
pub(crate) struct Exchanged {
    pub(crate) result: Value,
    /// Id of the session that began with it.
    pub(super) session: Option<String>,
    pub(super) bytes: usize,
}
