//! One simulation from its seed to its end.

use super::callers::{self, Diary};
use super::check;
use super::fleet::Fleet;
use super::plan::{FAULT_TIME, Plan, PlannedFault};
use super::simulated_agents;
use super::world::Sabotage;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use trellis::domain::agent::AgentConfig;
use trellis::domain::authority::Authority;
use trellis::venue::agents;

/// Longest time after the last fault until nothing is under way any more.
const REST: Duration = Duration::from_mins(5);
/// Pause between two checks whether anything is under way.
const LOOK: Duration = Duration::from_millis(1_300);
/// Number of lines of the trace that are shown of a failure.
const LINES: usize = 60;

/// The result of a run.
pub struct Outcome {
    pub plan: Plan,
    /// Violations of the rules; a right run has none.
    pub wrong: Vec<String>,
    /// Hash and number of all lines of the trace.
    pub digest: (u64, u64),
    /// Last lines of the trace.
    pub tail: String,
    /// How often each kind of fault has affected something, by name.
    pub fault_counts: BTreeMap<&'static str, u64>,
    /// How many of each kind of thing were done, by name.
    pub done: BTreeMap<&'static str, u64>,
    pub simulated: Duration,
}

/// Returns the number of workers of a fleet, by its seed.
pub fn workers(seed: u64) -> usize {
    usize::try_from(1 + seed % 3).unwrap()
}

/// Runs a seed with these faults.
pub fn simulate(seed: u64, plan: Plan) -> Outcome {
    sabotaged(seed, plan, None)
}

/// Runs a seed with these faults over servers that have a bug on purpose.
pub fn sabotaged(seed: u64, plan: Plan, sabotage: Option<Sabotage>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let outcome = runtime.block_on(live_through(seed, plan, sabotage));
    // What waits for ever ends with it.
    drop(runtime);
    outcome
}

async fn live_through(seed: u64, plan: Plan, sabotage: Option<Sabotage>) -> Outcome {
    let fleet = Fleet::new(seed, plan.clone(), workers(seed), sabotage);
    let diary = Arc::new(Diary::default());
    prepare(&fleet).await;
    for worker in 0..fleet.workers {
        tokio::spawn(Arc::clone(&fleet).live(worker));
    }
    tokio::spawn(Arc::clone(&fleet).lose_tails());
    tokio::spawn(callers::decide(Arc::clone(&fleet)));
    tokio::spawn(callers::serve(Arc::clone(&fleet)));
    callers::work(Arc::clone(&fleet), Arc::clone(&diary)).await;
    let over = plan.faults.iter().map(PlannedFault::until).max().unwrap_or_default().max(FAULT_TIME);
    sleep(over.saturating_sub(fleet.world.now())).await;
    callers::end_timers(&fleet, &diary).await;
    let latest = fleet.world.now() + REST;
    let mut rests = 0;
    let mut moving = None;
    while rests < 2 && fleet.world.now() < latest {
        sleep(LOOK).await;
        moving = check::moving(&fleet).await;
        rests = if moving.is_none() { rests + 1 } else { 0 };
    }
    let simulated = fleet.world.now();
    let (mut wrong, done) = check::all(&fleet, &diary).await;
    if let Some(moving) = moving {
        wrong.insert(0, format!("it never ends: {moving}"));
    }
    let (digest, tail, fault_counts) =
        (fleet.world.trace_digest(), fleet.world.tail(usize::MAX), fleet.world.fault_counts());
    Outcome { plan, wrong, digest, tail, fault_counts, done, simulated }
}

async fn prepare(fleet: &Fleet) {
    let authority = Authority::without_limits();
    for (id, mut config) in simulated_agents::agents() {
        config["model"] = serde_json::json!({"provider": "scripted", "name": "rules"});
        let config = AgentConfig::parse(&config).unwrap();
        agents::apply(&fleet.venue, &fleet.owner, &id.parse().unwrap(), &config, true, &authority).await.unwrap();
    }
}

/// Returns the positions in the plan of the faults without which the run doesn't fail.
fn needed(seed: u64, plan: &Plan) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..plan.faults.len()).collect();
    for leave in (0..plan.faults.len()).rev() {
        let fewer: Vec<usize> = kept.iter().copied().filter(|at| *at != leave).collect();
        let faults = fewer.iter().map(|at| plan.faults[*at]).collect();
        if !simulate(seed, Plan { faults }).wrong.is_empty() {
            kept = fewer;
        }
    }
    kept
}

/// Describes a run that went wrong: its violations, its faults, the end of its trace, and how to repeat it.
pub fn failing(seed: u64, outcome: &Outcome) -> String {
    let needed = needed(seed, &outcome.plan);
    let mut text = format!("seed {seed} goes wrong:\n");
    for wrong in &outcome.wrong {
        let _ = writeln!(text, "- {wrong}");
    }
    let _ = writeln!(text, "its faults, with * those that it takes:");
    for (at, fault) in outcome.plan.faults.iter().enumerate() {
        let star = if needed.contains(&at) { '*' } else { ' ' };
        let _ = writeln!(text, "{star} {at}: {fault:?}");
    }
    let lines: Vec<&str> = outcome.tail.lines().collect();
    let end = &lines[lines.len().saturating_sub(LINES)..];
    let _ = writeln!(text, "the end of the trace:\n{}", end.join("\n"));
    let only = needed.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let _ = write!(text, "again: TRELLIS_SIMULATE_SEED={seed} TRELLIS_SIMULATE_ONLY={only} ");
    let _ = writeln!(text, "tests/run.sh --test it -- simulate::a_chosen_seed_ends_with_a_clean_audit --nocapture");
    text
}
