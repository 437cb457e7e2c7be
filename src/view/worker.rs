//! Answers about workers.
