//! Answers about spending and its limits.
