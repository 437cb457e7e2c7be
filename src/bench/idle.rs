//! `bench idle`: measures what a fleet without work uses.

use super::{BenchError, CostProbe, raw, usage, user};
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::store::LeaseUse;
use crate::venue::Venue;
use crate::venue::agents;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Agents that are created at the same time.
const CREATIONS_AT_ONCE: usize = 64;

/// Pause before the first sample, so that work left by the creation is done.
const SETTLING_PAUSE: Duration = Duration::from_secs(2);

/// Agents, and sessions, at most: creating more takes longer than a measurement should.
const SESSIONS_MAX: usize = 1_000_000;

/// Sleep of the sessions: none wakes during the measurement.
const SLEEP_TIME: Duration = Duration::from_hours(24 * 365);

/// Range of the measured time in seconds.
const MEASURED_SECONDS: RangeInclusive<u64> = 1..=86_400;

/// Size of the idle fleet, and the measured time.
#[derive(Debug, Clone, Copy)]
pub struct IdleFleet {
    /// Number of owners.
    pub owners: usize,
    /// Agents of each owner.
    pub agents: usize,
    /// Sleeping sessions of each agent, each with one pending event.
    pub sessions: usize,
    /// Time that is measured.
    pub time: Duration,
}

/// Result of `bench idle`.
#[derive(Debug, Clone, Serialize)]
pub struct IdleReport {
    /// Number of owners.
    pub owners: usize,
    /// Agents of each owner.
    pub agents_per_owner: usize,
    /// Sleeping sessions of each agent.
    pub sessions_per_agent: usize,
    /// Memory of this process per session, an embedded store included.
    pub bytes_per_session: Option<u64>,
    /// Time that was measured.
    pub seconds: f64,
    /// Calls of the store, all methods together.
    pub store_calls_per_second: f64,
    /// Calls of the store by method.
    pub store_calls_per_second_by_method: BTreeMap<&'static str, f64>,
    /// Calls of the bus, all methods together.
    pub bus_calls_per_second: f64,
    /// Calls of the bus by method.
    pub bus_calls_per_second_by_method: BTreeMap<&'static str, f64>,
    /// Usage of this process (worker, and embedded store) and of the servers.
    pub processes: Vec<IdleProcess>,
    /// Seconds to open the store again; absent until that is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_seconds: Option<f64>,
}

/// Usage of one process.
#[derive(Debug, Clone, Serialize)]
pub struct IdleProcess {
    /// Name of the process.
    pub process: String,
    /// CPU time; `None` if the process is on another machine or not readable.
    pub cpu_ms_per_second: Option<f64>,
    /// Bytes written to a disk.
    pub written_bytes_per_second: Option<f64>,
}

/// Measures how long the next process takes to open what this one has left.
pub async fn time_opening<T>(open: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    (open.await, start.elapsed())
}

/// Returns why such a fleet can't be measured.
pub fn idle_problem(IdleFleet { owners, agents, sessions, time }: IdleFleet) -> Option<String> {
    if owners == 0 || agents == 0 {
        return Some("expected at least one owner and one agent of each".to_owned());
    }
    if owners.saturating_mul(agents) > SESSIONS_MAX {
        return Some(format!("expected at most {SESSIONS_MAX} agents in all, got {owners} owners with {agents} each"));
    }
    let all = owners.saturating_mul(agents).saturating_mul(sessions);
    if all > SESSIONS_MAX {
        return Some(format!("expected at most {SESSIONS_MAX} sessions in all, got {all}"));
    }
    let seconds = time.as_secs();
    (!MEASURED_SECONDS.contains(&seconds)).then(|| {
        format!("`--seconds`: expected {} to {}, got {seconds}", MEASURED_SECONDS.start(), MEASURED_SECONDS.end())
    })
}

/// Measures the usage. A worker must be running in this process.
pub async fn idle(
    venue: &Arc<Venue>,
    owner: &Owner,
    fleet: IdleFleet,
    probe: &CostProbe,
) -> Result<IdleReport, BenchError> {
    let config = json!({
        "systemPrompt": "You wait.",
        "model": {"provider": "scripted", "name": "echo"},
        // All sessions of the agent hold a lease at once while they are created.
        "concurrency": 100_000,
    });
    let config = AgentConfig::parse(&config).map_err(|e| BenchError::TimedOut(e.to_string()))?;
    let IdleFleet { owners, agents, sessions, time } = fleet;
    let making = (0..owners * agents).map(|n| create_agent(venue, owner, &config, n / agents, n % agents));
    stream::iter(making).buffer_unordered(CREATIONS_AT_ONCE).try_collect::<()>().await?;
    let awake = usage::resident();
    let all = owners * agents * sessions;
    let sleeping = (0..all)
        .map(|n| create_sleeping_session(venue, owner, n / sessions / agents, n / sessions % agents, n % sessions));
    stream::iter(sleeping).buffer_unordered(CREATIONS_AT_ONCE).try_collect::<()>().await?;
    tokio::time::sleep(SETTLING_PAUSE).await;
    let bytes_per_session = usage::resident().saturating_sub(awake).checked_div(all as u64);

    let (start, before) = (Instant::now(), probe.sample());
    tokio::time::sleep(time).await;
    let (seconds, after) = (start.elapsed().as_secs_f64(), probe.sample());
    let spent = after.usage_per_second(&before, seconds);
    let (store, bus) = (spent.store(), spent.bus());
    let processes = spent.processes().map(|(process, used)| IdleProcess {
        process,
        cpu_ms_per_second: used.map(|(cpu, _)| cpu * 1000.0),
        written_bytes_per_second: used.map(|(_, written)| written),
    });
    Ok(IdleReport {
        owners,
        agents_per_owner: agents,
        sessions_per_agent: sessions,
        bytes_per_session,
        seconds,
        store_calls_per_second: store.values().sum(),
        store_calls_per_second_by_method: store,
        bus_calls_per_second: bus.values().sum(),
        bus_calls_per_second_by_method: bus,
        processes: processes.collect(),
        open_seconds: None,
    })
}

/// Creates the agent `number` of the owner `of`.
async fn create_agent(
    venue: &Venue,
    owner: &Owner,
    config: &AgentConfig,
    of: usize,
    number: usize,
) -> Result<(), BenchError> {
    agents::apply(venue, &idle_owner(owner, of), &agent(number), config, true, &Authority::without_limits()).await?;
    Ok(())
}

/// Creates the session `number` of an agent with a pending event and lets it sleep.
async fn create_sleeping_session(
    venue: &Venue,
    owner: &Owner,
    of: usize,
    of_agent: usize,
    number: usize,
) -> Result<(), BenchError> {
    let session = format!("s{number}").parse().expect("a legal id");
    let session = SessionKey { agent: agent(of_agent), session };
    let granted = raw::grant(venue, &idle_owner(owner, of), session).await?;
    let now = venue.now();
    let then = LeaseUse::Release { arrivals: granted.arrivals, due: Some(now.plus(SLEEP_TIME)), backoff: false };
    venue.store.release(now, &granted.lease, then).await?;
    Ok(())
}

fn idle_owner(owner: &Owner, number: usize) -> Owner {
    user(owner, &format!("idle-{number}"))
}

fn agent(number: usize) -> AgentId {
    AgentId::new(format!("idle-{number}")).expect("a legal id")
}
