//! `bench turns`: measures as many tasks as the queue delivers, and the ratio to the raw commit rate.

use super::{BenchError, BenchPlan, CostProbe, Percentiles, TaskCost, TaskShape, load, raw, usage};
use crate::domain::ids::Owner;
use crate::venue::Venue;
use crate::venue::upkeep::audit;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// Result of `bench turns`.
#[derive(Debug, Clone, Serialize)]
pub struct TurnsReport {
    /// Number of tasks.
    pub tasks: usize,
    /// Owners of the agents that shared the tasks.
    pub owners: usize,
    /// Shape of each task.
    #[serde(flatten)]
    pub shape: TaskShape,
    /// Rate from the first publish to the last completion.
    pub tasks_per_second: f64,
    /// Rate of bare commits of a turn's size, as many at the same time as there are slots.
    pub raw_commits_per_second: f64,
    /// Tasks per raw commit.
    pub ratio: f64,
    /// Time from publish to completion; with all tasks queued at once it is mostly waiting.
    #[serde(flatten)]
    pub times: Percentiles,
    /// Cost of each task.
    #[serde(flatten)]
    pub cost: TaskCost,
    /// Largest resident memory of this process.
    pub peak_memory_mib: u64,
    /// Jobs that the audit could not account for.
    pub unaccounted: u64,
}

/// Measures the rate. A worker must be running in this process.
pub async fn turns(
    venue: &Arc<Venue>,
    owner: &Owner,
    plan: &BenchPlan,
    probe: &CostProbe,
) -> Result<TurnsReport, BenchError> {
    load::agents(venue, owner, plan).await?;
    let raw = raw::measure_rate(venue, &load::nth_owner(owner, plan.owners, 0), plan.slots, plan.raw).await?;
    let run = crate::venue::ingress::fresh_id();
    let (start, before) = (Instant::now(), probe.sample());
    let times = load::run(venue, owner, run.as_str(), plan, false).await?;
    let (seconds, after) = (start.elapsed().as_secs_f64(), probe.sample());
    let mut unaccounted = 0;
    for n in 0..plan.owners {
        unaccounted += audit::audit_owner(venue, &load::nth_owner(owner, plan.owners, n)).await?.unaccounted;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of tasks")]
    let tasks_per_second = plan.tasks as f64 / seconds;
    Ok(TurnsReport {
        tasks: plan.tasks,
        owners: plan.owners,
        shape: plan.shape,
        tasks_per_second,
        raw_commits_per_second: raw,
        ratio: tasks_per_second / raw,
        times: Percentiles::from_times(times),
        cost: TaskCost::from_usage(&after.usage_per_task(&before, plan.tasks)),
        peak_memory_mib: usage::peak_mib(),
        unaccounted,
    })
}
