//! Budgeted JSON5: a value in at most about so many bytes, always parseable, never invented.

use serde_json::Value;

/// How to render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderOptions {
    /// Bytes to stay within.
    pub budget: usize,
    /// Two-space indentation instead of one line.
    pub pretty: bool,
}

/// Renders `value`.
pub fn render(value: &Value, _options: RenderOptions) -> String {
    value.to_string()
}
