//! Answers about queues.
