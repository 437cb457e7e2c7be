//! Answers about calls of unknown outcome.
