//! A request as it is sent to a provider.

use serde_json::Value;

/// An HTTP request without its host and its key.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpRequest {
    /// Path below the base URL, with its query: `chat/completions`.
    pub path: String,
    /// Headers without those for authentication.
    pub headers: Vec<(&'static str, String)>,
    /// JSON body; the method is always POST.
    pub body: Value,
}
