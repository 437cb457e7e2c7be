//! Durable bytes per turn of one session whose context grows by a kilobyte with every turn.

use super::BenchError;
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::Scope;
use crate::domain::principal::Principal;
use crate::store::keys;
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ingress::{self, Arrival};
use crate::venue::jobs;
use crate::venue::workspace::{Workspace, WriteOp};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Turns over which the mean is taken: from four before the turn to five after it. The manifest that is stored whole
/// every 50 turns counts where it falls into them.
const WINDOW: (u64, u64) = (4, 5);
/// Bytes that the context grows by in a turn.
pub(super) const GROWTH_BYTES: usize = 1_000;
/// Longest time of a turn.
const TURN_TIME_LIMIT: Duration = Duration::from_mins(1);
/// Durable bytes around one turn: keys and values of turn record, timeline, manifest and parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DurableGrowth {
    /// Number of the turn.
    pub turn: u64,
    /// Mean over the ten turns around it.
    pub bytes_per_turn: u64,
    /// Part of `bytes_per_turn` for manifests and parts, that is for the ledger.
    pub ledger_bytes_per_turn: u64,
    /// Size of the context's value at that turn.
    pub context_bytes: u64,
}

/// Measures the bytes around these turns, which ascend and lie apart. A worker must be running in this process; every
/// turn is a task and a commit. `owner` should have nothing else.
pub async fn growth(venue: &Arc<Venue>, owner: &Owner, around: &[u64]) -> Result<Vec<DurableGrowth>, BenchError> {
    let agent: AgentId = "bench-growth".parse().expect("a legal id");
    let session = SessionKey { agent, session: "main".parse().expect("a legal id") };
    let config = json!({
        "systemPrompt": "You answer with what you are asked.",
        "model": {"provider": "scripted", "name": "echo"},
        "context": ["w/bench/growth"],
    });
    let config = AgentConfig::parse(&config).map_err(|e| BenchError::TimedOut(e.to_string()))?;
    agents::apply(venue, owner, &session.agent, &config, true, &Authority::without_limits()).await?;
    let (before, after) = WINDOW;
    let run = ingress::fresh_id();
    let (mut found, mut begun) = (Vec::new(), (0, 0));
    for turn in 1..=around.iter().max().map_or(0, |last| last + after) {
        if around.iter().any(|at| turn + before == *at) {
            begun = durable_bytes(venue, owner, &session).await?;
        }
        grow(venue, owner, turn).await?;
        task(venue, owner, &session, format!("{run}-{turn}")).await?;
        if let Some(at) = around.iter().find(|at| turn == **at + after) {
            let now = durable_bytes(venue, owner, &session).await?;
            let mean = |now: u64, begun: u64| (now - begun) / (before + after + 1);
            found.push(DurableGrowth {
                turn: *at,
                bytes_per_turn: mean(now.0 + now.1, begun.0 + begun.1),
                ledger_bytes_per_turn: mean(now.1, begun.1),
                context_bytes: at * GROWTH_BYTES as u64,
            });
        }
    }
    Ok(found)
}

/// Makes a line of text that no other turn has.
pub(super) fn unique_line(turn: u64) -> String {
    let mut seed = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = format!("note {turn}:");
    while text.len() < GROWTH_BYTES {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let _ = write!(text, " {:x}", seed >> 40);
    }
    text.truncate(GROWTH_BYTES);
    text
}

async fn grow(venue: &Venue, owner: &Owner, turn: u64) -> Result<(), BenchError> {
    let tree = Workspace::new(Arc::clone(&venue.store), owner.clone(), Scope::default());
    let stuck = |error: String| BenchError::TimedOut(error);
    let path = Path::parse("w/bench/growth").map_err(|e| stuck(e.to_string()))?;
    let op = WriteOp::Append { path, value: unique_line(turn).into() };
    tree.apply_now(venue.now(), &op).await.map(drop).map_err(|e| stuck(e.to_string()))
}

pub(super) async fn task(
    venue: &Arc<Venue>,
    owner: &Owner,
    session: &SessionKey,
    id: String,
) -> Result<(), BenchError> {
    complete_task(venue, owner, session, id, json!("go on")).await
}

/// Submits a task and waits for its end.
pub(super) async fn complete_task(
    venue: &Arc<Venue>,
    owner: &Owner,
    session: &SessionKey,
    id: String,
    input: Value,
) -> Result<(), BenchError> {
    let stuck = |what: &str| BenchError::TimedOut(format!("task `{id}` {what}"));
    let arrival = Arrival {
        owner: owner.clone(),
        agent: session.agent.clone(),
        task: true,
        id: id.parse().map_err(|_| stuck("has no legal id"))?,
        submission: Submission { input, session_id: Some(session.session.clone()), ..Submission::default() },
        received: venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
        trace: None,
    };
    let job = ingress::submit(venue, &arrival).await?.job.ok_or_else(|| stuck("has no job"))?;
    let job = jobs::wait(venue, owner, &job, TURN_TIME_LIMIT).await?;
    match job {
        Some(job) if job.status.is_terminal() => Ok(()),
        Some(_) | None => Err(stuck("has not ended")),
    }
}

/// Returns the bytes of the session's turn records, and of its ledger.
async fn durable_bytes(venue: &Venue, owner: &Owner, session: &SessionKey) -> Result<(u64, u64), BenchError> {
    let records = bytes(venue, owner, &keys::turns(session)).await?;
    let timeline = bytes(venue, owner, &keys::timeline(&session.agent)).await?;
    let manifests = bytes(venue, owner, &keys::ledgers(session)).await?;
    Ok((records + timeline, manifests + bytes(venue, owner, keys::PARTS).await?))
}

async fn bytes(venue: &Venue, owner: &Owner, prefix: &str) -> Result<u64, BenchError> {
    let mut sum = 0;
    let mut documents = venue.store.docs(owner, prefix);
    while let Some(page) = documents.next().await? {
        sum += page.iter().map(|(key, doc)| key.len() + doc.value.as_ref().map_or(0, bytes::Bytes::len)).sum::<usize>();
    }
    Ok(sum as u64)
}
