//! Answers about jobs, and why they wait.
