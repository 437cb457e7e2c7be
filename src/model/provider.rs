//! Real providers through the `genai` crate.
