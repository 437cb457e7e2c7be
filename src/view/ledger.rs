//! Answers about turns, their ledger and their experiments.
