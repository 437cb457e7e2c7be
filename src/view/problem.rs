//! Answers about refusals.
