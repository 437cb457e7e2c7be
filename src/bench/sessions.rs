//! `bench sessions`: measures the memory of this process with many waiting and many running sessions.

use super::{BenchError, usage};
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::domain::principal::Principal;
use crate::process::shutdown::Shutdown;
use crate::store::{Window, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ingress::{self, Arrival};
use crate::venue::jobs;
use crate::venue::upkeep::audit;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rules of the scripted model: a sleeper waits for a person, a runner waits for the model.
pub const RULES: &str = r#"
[[rule]]
when = { agent = "bench-sleeper" }
then = { calls = [{ tool = "pay", arguments = { path = "w/bench/paid", value = 1 } }] }

[[rule]]
when = { agent = "bench-runner", text = "Think for long." }
then = { fault = "hang" }

[[rule]]
then = { text = "noted" }
"#;

/// Bytes of each session's task: some pages of a conversation.
const TASK_BYTES: usize = 3_000;
/// Requests that are unanswered at the same time.
const UNANSWERED_MAX: usize = 256;
/// Pause between two reads.
const READ_PAUSE: Duration = Duration::from_millis(50);
/// Time without any progress after which the run fails.
const STALL_LIMIT: Duration = Duration::from_mins(2);

/// Numbers of sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionFleet {
    /// Sessions paused with an open task that waits for a person.
    pub sleeping: usize,
    /// Sessions in a model call, all at once.
    pub running: usize,
}

/// Result of `bench sessions`; memory is the resident memory of this process.
#[derive(Debug, Clone, Serialize)]
pub struct SessionsReport {
    /// Number of sleeping sessions, see [`SessionFleet`].
    pub sleeping: usize,
    /// Number of running sessions, see [`SessionFleet`].
    pub running: usize,
    /// Bytes of each session's task.
    pub told_bytes: usize,
    /// Memory without any session, in MiB.
    pub start_mib: u64,
    /// Memory with the sleeping sessions, in MiB.
    pub sleeping_mib: u64,
    /// Memory with the running sessions as well, in MiB.
    pub running_mib: u64,
    /// Largest memory at any time, in MiB.
    pub peak_mib: u64,
    /// Bytes per sleeping session.
    pub bytes_per_sleeping: u64,
    /// Additional bytes per running session.
    pub bytes_per_running: u64,
    /// Jobs that the audit could not account for.
    pub unaccounted: u64,
}

/// Measures the memory. A worker with a slot for each running session must be running in this process, with a scripted
/// model of [`RULES`] that logs its calls to `calls_log`.
pub async fn sessions(
    venue: &Arc<Venue>,
    owner: &Owner,
    fleet: SessionFleet,
    calls_log: &Path,
    shutdown: &Shutdown,
) -> Result<SessionsReport, BenchError> {
    let pay = json!({"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"});
    agent(venue, owner, "bench-sleeper", json!([pay])).await?;
    agent(venue, owner, "bench-runner", json!([])).await?;
    let start = usage::resident();

    submit(venue, owner, "bench-sleeper", "sleep", fleet.sleeping, "Pay.").await?;
    wait_until_count("parked", fleet.sleeping, async || {
        let window = Window { reverse: false, skip: 0, limit: 0, values: false };
        Ok(venue.store.page(owner, keys::APPROVALS, window).await?.total)
    })
    .await?;
    // Running sessions have earlier turns as well.
    let told = submit(venue, owner, "bench-runner", "tell", fleet.running, "Remember.").await?;
    wait_until_count("told", told.len(), async || count_ended(venue, owner, &told).await).await?;
    wait_for_idle(shutdown).await;
    let sleeping = usage::resident();

    let thinking = submit(venue, owner, "bench-runner", "think", fleet.running, "Think for long.").await?;
    wait_until_count("in a model call", fleet.running, async || Ok(count_running_calls(calls_log))).await?;
    let running = usage::resident();

    let cancelling = thinking.iter().map(|job| jobs::cancel(venue, owner, job, None));
    stream::iter(cancelling.collect::<Vec<_>>()).buffer_unordered(UNANSWERED_MAX).try_collect::<Vec<_>>().await?;
    wait_for_idle(shutdown).await;
    let books = audit::audit_owner(venue, owner).await?;
    let mib = |bytes: u64| bytes / (1 << 20);
    let each = |bytes: u64, count: usize| bytes / (count as u64).max(1);
    Ok(SessionsReport {
        sleeping: fleet.sleeping,
        running: fleet.running,
        told_bytes: TASK_BYTES,
        start_mib: mib(start),
        sleeping_mib: mib(sleeping),
        running_mib: mib(running),
        peak_mib: usage::peak_mib(),
        bytes_per_sleeping: each(sleeping.saturating_sub(start), fleet.sleeping),
        bytes_per_running: each(running.saturating_sub(sleeping), fleet.running),
        unaccounted: books.unaccounted,
    })
}

async fn agent(venue: &Venue, owner: &Owner, id: &str, tools: serde_json::Value) -> Result<(), BenchError> {
    let config = json!({
        "systemPrompt": "You do what you are asked.",
        "model": {"provider": "scripted", "name": "rules"},
        "tools": tools,
        "concurrency": 100_000,
    });
    let config = AgentConfig::parse(&config).map_err(|e| BenchError::TimedOut(e.to_string()))?;
    let id: AgentId = id.parse().expect("a legal id");
    agents::apply(venue, owner, &id, &config, true, &Authority::without_limits()).await?;
    Ok(())
}

/// Submits a task to each of `count` sessions.
async fn submit(
    venue: &Arc<Venue>,
    owner: &Owner,
    agent: &str,
    run: &str,
    count: usize,
    task: &str,
) -> Result<Vec<JobId>, BenchError> {
    let submitting = (0..count).map(async |n| {
        let arrival = Arrival {
            owner: owner.clone(),
            agent: agent.parse().expect("a legal id"),
            task: true,
            id: format!("{run}-{n}").parse().expect("a legal id"),
            submission: Submission {
                input: json!({"task": task, "about": "a conversation ".repeat(TASK_BYTES / 15)}),
                session_id: Some(format!("s{n}").parse().expect("a legal id")),
                ..Submission::default()
            },
            received: venue.now(),
            sequence: 0,
            by: Principal::ANYBODY,
            may_override: false,
            trace: None,
        };
        let submitted = ingress::submit(venue, &arrival).await?;
        submitted.job.ok_or_else(|| BenchError::TimedOut(format!("`{run}-{n}` has no job")))
    });
    stream::iter(submitting).buffered(UNANSWERED_MAX).try_collect().await
}

/// Waits until `count` returns the wanted number.
async fn wait_until_count(
    what: &str,
    wanted: usize,
    count: impl AsyncFn() -> Result<usize, BenchError>,
) -> Result<(), BenchError> {
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let found = count().await?;
        if found >= wanted {
            return Ok(());
        }
        if found > last {
            (last, since) = (found, Instant::now());
        }
        if since.elapsed() > STALL_LIMIT {
            return Err(BenchError::TimedOut(format!("{found} of {wanted} sessions are {what}, and no more are")));
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}

async fn count_ended(venue: &Venue, owner: &Owner, all: &[JobId]) -> Result<usize, BenchError> {
    let keys: Vec<_> = all.iter().map(keys::job_result).collect();
    Ok(venue.store.read(owner, &keys).await?.iter().filter(|doc| doc.value.is_some()).count())
}

/// Counts model calls that have begun and not ended, from their log.
fn count_running_calls(calls_log: &Path) -> usize {
    let log = std::fs::read_to_string(calls_log).unwrap_or_default();
    let count = |event: &str| log.lines().filter(|line| line.contains(event)).count();
    count("\"started\"").saturating_sub(count("\"replied\""))
}

async fn wait_for_idle(shutdown: &Shutdown) {
    while shutdown.turns() > 0 {
        tokio::time::sleep(READ_PAUSE).await;
    }
}
