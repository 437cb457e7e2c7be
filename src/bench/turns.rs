//! `bench turns`: as many tasks as the queue gives, and the ratio to the raw commit rate.

use super::{BenchError, BenchPlan, Percentiles, TaskShape, load, raw, usage};
use crate::domain::ids::Owner;
use crate::upkeep::audit;
use crate::venue::Venue;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// What `bench turns` found.
#[derive(Debug, Clone, Serialize)]
pub struct TurnsReport {
    /// Tasks.
    pub tasks: usize,
    /// What each is.
    #[serde(flatten)]
    pub shape: TaskShape,
    /// From the first publish to the last completion.
    pub tasks_per_second: f64,
    /// Commits of a turn's size and nothing around them, as many side by side as there are slots.
    pub raw_commits_per_second: f64,
    /// Tasks per raw commit.
    pub ratio: f64,
    /// From publish to completion; with all tasks queued at once this is mostly waiting.
    #[serde(flatten)]
    pub times: Percentiles,
    /// CPU seconds of this process (worker, and store when embedded) per 1,000 tasks.
    pub cpu_seconds_per_1000_tasks: f64,
    /// Bytes that this process gave to files per task; servers write their own.
    pub written_bytes_per_task: f64,
    /// Most resident memory of this process.
    pub peak_memory_mib: u64,
    /// Jobs that the audit could not account for.
    pub unaccounted: u64,
}

/// Measures it. A worker must be running in this process.
pub async fn turns(venue: &Arc<Venue>, owner: &Owner, plan: &BenchPlan) -> Result<TurnsReport, BenchError> {
    load::agents(venue, owner, plan).await?;
    let raw = raw::rate(venue, owner, plan.slots, plan.raw).await?;
    let run = crate::ingress::fresh_id();
    let (cpu, written) = (usage::cpu(), usage::written());
    let start = Instant::now();
    let times = load::run(venue, owner, run.as_str(), plan, false).await?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = usage::cpu().saturating_sub(cpu).as_secs_f64();
    let written = usage::written().saturating_sub(written);
    let books = audit::owner_books(venue, owner).await?;
    #[expect(clippy::cast_precision_loss, reason = "counts of tasks and of bytes")]
    let (tasks, written) = (plan.tasks as f64, written as f64);
    Ok(TurnsReport {
        tasks: plan.tasks,
        shape: plan.shape,
        tasks_per_second: tasks / seconds,
        raw_commits_per_second: raw,
        ratio: tasks / seconds / raw,
        times: Percentiles::of(times),
        cpu_seconds_per_1000_tasks: cpu / tasks * 1000.0,
        written_bytes_per_task: written / tasks,
        peak_memory_mib: usage::peak_mib(),
        unaccounted: books.unaccounted,
    })
}
