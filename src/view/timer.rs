//! Answers about timers.
