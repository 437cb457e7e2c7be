//! What may be spent and kept: budgets, caps, quotas.

mod billed_calls;
mod budgets;
pub mod caps;
mod job_spend;
mod quota_of_writes;
mod quotas;
mod tenants;
mod unmade_calls;
mod user_caps;
