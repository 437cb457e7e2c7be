//! Answers about assets.
