//! `bench growth`: measures the bytes that reach disks per turn of one session whose context grows with every turn.

use super::cost::UsageDelta;
use super::ledger::{GROWTH_BYTES, task, unique_line};
use super::{BenchError, CostProbe};
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::Scope;
use crate::domain::limits::CONTEXT_BYTES_RANGE;
use crate::domain::session::TurnRecord;
use crate::store::keys;
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ingress;
use crate::venue::workspace::{Workspace, WriteOp};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

/// Turns over which the mean is taken: from four before the turn to five after it.
const WINDOW: (usize, usize) = (4, 5);
/// Turns around which the mean is taken, besides the last one.
const MEASURED_TURNS: [usize; 2] = [10, 100];

/// Result of `bench growth`.
#[derive(Debug, Clone, Serialize)]
pub struct GrowthReport {
    /// Bytes that the context grows by in a turn.
    pub grown_bytes_per_turn: usize,
    /// Means around a few turns.
    pub turns: Vec<TurnBytes>,
    /// Ratio of the bytes per turn of all processes; `None` if they are unknown or zero.
    pub largest_to_smallest: Option<f64>,
}

/// Bytes written around one turn.
#[derive(Debug, Clone, Serialize)]
pub struct TurnBytes {
    /// Number of the turn.
    pub turn: usize,
    /// Size of the context at that turn.
    pub context_bytes: usize,
    /// Tokens of the turn's prompt, context included, as the scripted model counts them.
    pub prompt_tokens: u64,
    /// Mean over the ten turns around it, of all known processes.
    pub written_bytes_per_turn: f64,
    /// Mean of each process, this one and the servers.
    pub processes: Vec<WrittenBytes>,
}

/// Bytes written by one process.
#[derive(Debug, Clone, Serialize)]
pub struct WrittenBytes {
    /// Name of the process.
    pub process: String,
    /// Bytes written to a disk per turn; `None` if the process is on another machine or not readable.
    pub written_bytes_per_turn: Option<f64>,
}

/// Returns why this number of turns can't be measured.
pub fn growth_problem(turns: usize) -> Option<String> {
    let least = MEASURED_TURNS[0] + WINDOW.0 + WINDOW.1 + 1;
    let most = CONTEXT_BYTES_RANGE.end() / 2 / GROWTH_BYTES;
    let legal = (least..=most).contains(&turns);
    (!legal).then(|| format!("`--turns`: expected {least} to {most}, got {turns}: the last ten are held against the 10th, and a prompt has an end"))
}

/// Measures the written bytes. A worker must be running in this process; every turn is a task and a commit.
pub async fn measure_growth(
    venue: &Arc<Venue>,
    owner: &Owner,
    turns: usize,
    probe: &CostProbe,
) -> Result<GrowthReport, BenchError> {
    // A store in use has the session and the context of earlier runs.
    let run = ingress::fresh_id();
    let context = format!("w/bench-{run}");
    let agent: AgentId = "bench-written".parse().expect("a legal id");
    let session = SessionKey { agent, session: run.as_str().parse().expect("a legal id") };
    let config = json!({
        "systemPrompt": "You answer with what you are asked.",
        "model": {"provider": "scripted", "name": "echo"},
        "context": [{"ref": context, "budget": CONTEXT_BYTES_RANGE.end()}],
        "contextBudget": {"bytes": CONTEXT_BYTES_RANGE.end()},
    });
    let config = AgentConfig::parse(&config).map_err(|e| BenchError::TimedOut(e.to_string()))?;
    agents::apply(venue, owner, &session.agent, &config, true, &Authority::without_limits()).await?;
    let (before, after) = WINDOW;
    let apart = before + after + 1;
    let mut places: Vec<usize> = MEASURED_TURNS.into_iter().filter(|place| place + apart <= turns).collect();
    places.push(turns);
    let (mut found, mut begun) = (Vec::new(), probe.sample());
    for turn in 1..=turns + after {
        if places.iter().any(|place| turn + before == *place) {
            begun = probe.sample();
        }
        grow(venue, owner, &context, turn).await?;
        task(venue, owner, &session, format!("{run}-{turn}")).await?;
        if let Some(place) = places.iter().find(|place| turn == **place + after) {
            let now = probe.sample();
            let record = keys::turn(&session, *place as u64);
            let record: Option<TurnRecord> = venue.store.get(owner, &record).await?;
            let prompt = record.map_or(0, |record| record.usage.input);
            found.push(turn_bytes(*place, prompt, &now.usage_per_task(&begun, apart)));
        }
    }
    let all = || found.iter().map(|turn| turn.written_bytes_per_turn);
    let (largest, smallest) = (all().fold(0.0, f64::max), all().fold(f64::INFINITY, f64::min));
    let largest_to_smallest = (smallest > 0.0).then(|| largest / smallest);
    Ok(GrowthReport { grown_bytes_per_turn: GROWTH_BYTES, turns: found, largest_to_smallest })
}

fn turn_bytes(turn: usize, prompt_tokens: u64, spent: &UsageDelta<'_>) -> TurnBytes {
    let written = spent
        .processes()
        .map(|(process, used)| WrittenBytes { process, written_bytes_per_turn: used.map(|(_, written)| written) });
    let processes: Vec<_> = written.collect();
    let known = processes.iter().filter_map(|process| process.written_bytes_per_turn);
    TurnBytes {
        turn,
        context_bytes: turn * GROWTH_BYTES,
        prompt_tokens,
        written_bytes_per_turn: known.sum(),
        processes,
    }
}

/// Adds a document to the context; existing ones are not rewritten.
async fn grow(venue: &Venue, owner: &Owner, context: &str, turn: usize) -> Result<(), BenchError> {
    let tree = Workspace::new(Arc::clone(&venue.store), owner.clone(), Scope::default());
    let stuck = |error: String| BenchError::TimedOut(error);
    let path = Path::parse(&format!("{context}/{turn:04}")).map_err(|e| stuck(e.to_string()))?;
    let op = WriteOp::Write { path, value: unique_line(turn as u64).into(), expect: None };
    tree.apply_now(venue.now(), &op).await.map(drop).map_err(|e| stuck(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_turn_lists_are_refused_with_the_limits() {
        for (turns, expected) in [(0, false), (19, false), (20, true), (300, true), (2_000, true), (2_001, false)] {
            assert_eq!(growth_problem(turns).is_none(), expected, "{turns}");
        }
        assert!(growth_problem(5).is_some_and(|problem| problem.contains("expected 20 to 2000, got 5")));
    }
}
