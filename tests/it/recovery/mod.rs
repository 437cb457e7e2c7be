//! Crashes, outages and repair: what is lost, doubled or left out.

mod chaos;
mod clocks;
mod crash_points;
mod destroyer;
mod killed_workers;
mod lease_renewal;
pub mod mixed_builds;
mod newer_builds;
mod outage;
pub mod repair;
mod resumed_calls;
pub mod simulate;
mod simulated_day;
mod support_triage;
