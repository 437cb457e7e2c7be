//! `bench latency`: measures one task at a time, from publish to completion.

use super::{BenchError, BenchPlan, CostProbe, Percentiles, TaskCost, load};
use crate::domain::ids::Owner;
use crate::venue::Venue;
use serde::Serialize;
use std::sync::Arc;

/// Result of `bench latency`.
#[derive(Debug, Clone, Serialize)]
pub struct LatencyReport {
    /// Tasks, one after the other.
    pub tasks: usize,
    /// Time from publish to completion.
    #[serde(flatten)]
    pub times: Percentiles,
    /// Cost of each task.
    #[serde(flatten)]
    pub cost: TaskCost,
}

/// Measures the latency. A worker must be running in this process.
pub async fn latency(
    venue: &Arc<Venue>,
    owner: &Owner,
    plan: &BenchPlan,
    probe: &CostProbe,
) -> Result<LatencyReport, BenchError> {
    load::agents(venue, owner, plan).await?;
    let run = crate::venue::ingress::fresh_id();
    let before = probe.sample();
    let times = load::run(venue, owner, run.as_str(), plan, true).await?;
    let after = probe.sample();
    let cost = TaskCost::from_usage(&after.usage_per_task(&before, plan.tasks));
    Ok(LatencyReport { tasks: plan.tasks, times: Percentiles::from_times(times), cost })
}
