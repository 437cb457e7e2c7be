//! Answers about agents and their configuration.
