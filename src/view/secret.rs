//! Answers about secrets.
