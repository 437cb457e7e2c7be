//! Capabilities: one question, `permits`.
