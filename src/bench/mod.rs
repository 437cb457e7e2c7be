//! `trellis bench`: measures this machine, these servers and this configuration, against the raw commit rate of the
//! same store in the same run.

mod calls;
mod context;
mod cost;
mod fairness;
mod growth;
mod idle;
mod latency;
mod ledger;
mod load;
mod prefix;
mod raw;
mod readers;
mod report;
mod servers;
mod sessions;
mod shape;
mod turns;
mod usage;

pub use context::{ContextReport, context};
pub use cost::{CostProbe, Fsyncs, ProcessCost, TaskCost};
pub use fairness::{FairnessLoad, FairnessReport, fairness};
pub use growth::{GrowthReport, TurnBytes, WrittenBytes, growth_problem, measure_growth};
pub use idle::{IdleFleet, IdleProcess, IdleReport, idle, idle_problem, time_opening};
pub use latency::latency;
pub use ledger::{DurableGrowth, growth};
pub use prefix::{KeptPrefix, PrefixReport, prefix, rules as prefix_rules};
pub use readers::{ReadersLoad, ReadersReport, readers};
pub use report::{BenchReport, BenchResult, PromptCosts};
pub use servers::BenchServer;
pub use sessions::{RULES as SESSION_RULES, SessionFleet, SessionsReport, sessions};
pub use shape::{TaskSession, TaskShape};
pub use turns::turns;

use crate::bus::BusError;
use crate::domain::ids::{Owner, OwnerPart};
use crate::store::StoreError;
use crate::venue::ingress::SubmitError;
use serde::Serialize;
use std::time::Duration;

/// Numbers of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct BenchPlan {
    /// Number of tasks.
    pub tasks: usize,
    /// Shape of each task.
    pub shape: TaskShape,
    /// Agents that share the tasks.
    pub agents: usize,
    /// Owners that share the agents, at least one.
    pub owners: usize,
    /// Sessions that a worker runs at once; the raw rate is measured with as many.
    pub slots: usize,
    /// Time that the raw rate is measured.
    pub raw: Duration,
}

/// Reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue failed.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A submission was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The audit failed.
    #[error(transparent)]
    Audit(#[from] crate::venue::upkeep::audit::AuditError),
    /// A step did not end in time, or was not possible.
    #[error("{0}")]
    TimedOut(String),
}

/// Returns another owner of the same tenant.
fn user(of: &Owner, name: &str) -> Owner {
    Owner::new(of.tenant().clone(), OwnerPart::new(name).expect("a legal name"))
}

/// Percentiles of the times of many tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median in ms.
    pub p50_ms: f64,
    /// 99th percentile in ms.
    pub p99_ms: f64,
    /// 99.9th percentile in ms.
    pub p999_ms: f64,
}

impl Percentiles {
    fn from_times(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |share: usize| all.get((all.len() * share / 1000).min(all.len().saturating_sub(1)));
        let ms = |time: Option<&Duration>| time.map_or(0.0, |t| t.as_secs_f64() * 1000.0);
        Self { p50_ms: ms(at(500)), p99_ms: ms(at(990)), p999_ms: ms(at(999)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let times = Percentiles::from_times((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(times, Percentiles { p50_ms: 51.0, p99_ms: 100.0, p999_ms: 100.0 });
    }
}
