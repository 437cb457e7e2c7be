//! `bench idle`: what a fleet uses whose agents have nothing to do.

use super::{BenchError, Probe, raw, usage};
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::ids::{AgentId, Owner, OwnerPart, SessionKey};
use crate::store::After;
use crate::venue::Venue;
use crate::venue::agents;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Agents that are made at the same time.
const WINDOW: usize = 64;

/// Between the last agent and the first look: what their making has left to do is done then.
const REST: Duration = Duration::from_secs(2);

/// Agents in all, and sessions: making more takes longer than anybody measures.
const MOST: usize = 1_000_000;

/// Sessions sleep so long that none wakes while it is measured.
const SLEEP: Duration = Duration::from_hours(24 * 365);

/// How long it may be measured.
const SECONDS: RangeInclusive<u64> = 1..=86_400;

/// Who has nothing to do, and for how long that is measured.
#[derive(Debug, Clone, Copy)]
pub struct IdleFleet {
    /// Owners.
    pub owners: usize,
    /// Agents of each.
    pub agents: usize,
    /// Sessions of each agent that sleep, each with one event that waits for something.
    pub sessions: usize,
    /// How long.
    pub time: Duration,
}

/// What `bench idle` found.
#[derive(Debug, Clone, Serialize)]
pub struct IdleReport {
    /// Owners.
    pub owners: usize,
    /// Agents of each.
    pub agents_per_owner: usize,
    /// Sleeping sessions of each.
    pub sessions_per_agent: usize,
    /// Memory of this process, the store when it is embedded, that each session takes.
    pub bytes_per_session: Option<u64>,
    /// How long it was measured.
    pub seconds: f64,
    /// Calls of the store.
    pub store_calls_per_second: f64,
    /// The same by method.
    pub store_calls_per_second_by_method: BTreeMap<&'static str, f64>,
    /// Calls of the bus.
    pub bus_calls_per_second: f64,
    /// The same by method.
    pub bus_calls_per_second_by_method: BTreeMap<&'static str, f64>,
    /// This process (worker, and store when embedded) and the servers.
    pub processes: Vec<IdleProcess>,
}

/// What a process uses.
#[derive(Debug, Clone, Serialize)]
pub struct IdleProcess {
    /// Which.
    pub process: String,
    /// CPU time; `None`: it doesn't run on this machine, or can't be looked at.
    pub cpu_ms_per_second: Option<f64>,
    /// Bytes that it had written to a disk.
    pub written_bytes_per_second: Option<f64>,
}

/// What the next process opens of what this one has left, and how long that takes.
pub async fn opening<T>(open: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    (open.await, start.elapsed())
}

/// Why such a fleet can't be measured.
pub fn idle_problem(IdleFleet { owners, agents, sessions, time }: IdleFleet) -> Option<String> {
    if owners == 0 || agents == 0 {
        return Some("expected at least one owner and one agent of each".to_owned());
    }
    if owners.saturating_mul(agents) > MOST {
        return Some(format!("expected at most {MOST} agents in all, got {owners} owners with {agents} each"));
    }
    let all = owners.saturating_mul(agents).saturating_mul(sessions);
    if all > MOST {
        return Some(format!("expected at most {MOST} sessions in all, got {all}"));
    }
    let seconds = time.as_secs();
    (!SECONDS.contains(&seconds))
        .then(|| format!("`--seconds`: expected {} to {}, got {seconds}", SECONDS.start(), SECONDS.end()))
}

/// Measures it. A worker must be running in this process.
pub async fn idle(
    venue: &Arc<Venue>,
    owner: &Owner,
    fleet: IdleFleet,
    probe: &Probe,
) -> Result<IdleReport, BenchError> {
    let config = json!({"systemPrompt": "You wait.", "model": {"provider": "scripted", "name": "echo"}});
    let config = AgentConfig::parse(&config).map_err(|e| BenchError::Stuck(e.to_string()))?;
    let IdleFleet { owners, agents, sessions, time } = fleet;
    let making = (0..owners * agents).map(|n| make(venue, owner, &config, (n / agents, n % agents)));
    stream::iter(making).buffer_unordered(WINDOW).try_collect::<()>().await?;
    let awake = usage::resident();
    let all = owners * agents * sessions;
    let sleeping = (0..all).map(|n| sleep(venue, owner, (n / sessions / agents, n / sessions % agents, n % sessions)));
    stream::iter(sleeping).buffer_unordered(WINDOW).try_collect::<()>().await?;
    tokio::time::sleep(REST).await;
    let bytes_per_session = usage::resident().saturating_sub(awake).checked_div(all as u64);

    let (start, before) = (Instant::now(), probe.look());
    tokio::time::sleep(time).await;
    let (seconds, after) = (start.elapsed().as_secs_f64(), probe.look());
    let spent = after.during(&before, seconds);
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
    })
}

/// One agent of one owner.
async fn make(
    venue: &Venue,
    owner: &Owner,
    config: &AgentConfig,
    (of, number): (usize, usize),
) -> Result<(), BenchError> {
    agents::apply(venue, &one_of(owner, of), &agent(number), config, true, &Authority::unlimited()).await?;
    Ok(())
}

/// One session of it that has been told something and waits.
async fn sleep(venue: &Venue, owner: &Owner, (of, of_agent, number): (usize, usize, usize)) -> Result<(), BenchError> {
    let session = format!("s{number}").parse().expect("a legal id");
    let session = SessionKey { agent: agent(of_agent), session };
    let granted = raw::grant(venue, &one_of(owner, of), session).await?;
    let now = venue.now();
    let then = After::Release { arrivals: granted.arrivals, due: Some(now.plus(SLEEP)), backoff: false };
    venue.store.release(now, &granted.lease, then).await?;
    Ok(())
}

fn one_of(owner: &Owner, number: usize) -> Owner {
    Owner::new(owner.tenant().clone(), OwnerPart::new(format!("idle-{number}")).expect("a legal name"))
}

fn agent(number: usize) -> AgentId {
    AgentId::new(format!("idle-{number}")).expect("a legal id")
}
