//! Answers about resources of agents.
