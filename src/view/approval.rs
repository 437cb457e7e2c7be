//! Answers about approvals.
