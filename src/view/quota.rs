//! Answers about quotas.
