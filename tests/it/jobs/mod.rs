//! Jobs and what they wait for: approvals, timers, external workers, unknown outcomes.

mod answer_after_crash;
mod approvals;
mod bulk;
mod deletion;
mod direct_start;
mod external_workers;
mod filters;
mod invoked_operations;
mod outside_completion;
mod pauses;
mod priorities;
mod refused_calls;
pub mod timers;
mod token_answers;
mod unknown_outcomes;
mod wait_reasons;
