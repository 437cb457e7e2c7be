//! Nothing waits without a reason: what jobs, sessions and agents say that they wait for, who did what, and what it costs
//! to look.

mod answers;
mod cli;
mod fleet;
mod read_costs;
mod readers;
mod reasons;
mod records;
mod search;
mod sessions;
