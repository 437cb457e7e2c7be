//! Answers about issued tokens.
