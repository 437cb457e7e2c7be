//! Workers: tasks, shares of owners, costs.

mod bench_costs;
mod bench_prefix;
mod bench_sessions;
mod bench_turns;
mod fairness;
mod owner_shares;
mod tasks;
mod tenants;
pub mod turn_costs;
