//! Answers about dead letters, unreadable messages and redrives.
