//! `bench prefix`: measures how much of a session's last request is the beginning of the next one, which a provider's
//! cache can reuse.

use super::BenchError;
use super::ledger::complete_task;
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::chat::ModelRequest;
use crate::domain::context::assemble::assemble;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::Scope;
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::ingress;
use crate::venue::ledger;
use crate::venue::workspace::{Workspace, WriteOp};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Tasks of each session.
const TASKS: usize = 8;
/// Turns of each task: two with calls, and the answer.
const TURNS: u64 = 3;
/// Rules of the scripted model: it writes a value, reads an invoice, and answers. Its second and fourth task load a
/// path.
const RULES: &str = r#"
[[rule]]
when = { turn = 1, text = "\"load\":\"w/" }
then = { calls = [
  { tool = "context_load", arguments = { path = "{{input.load}}" } },
  { tool = "lattice_write", arguments = { path = "{{input.writes}}", value = "{{input.n}}.1 {{input.filler}}" } },
] }
[[rule]]
when = { turn = 1 }
then = { text = "I note down what is known.", calls = [
  { tool = "lattice_write", arguments = { path = "{{input.writes}}", value = "{{input.n}}.1 {{input.filler}}" } },
] }
[[rule]]
when = { turn = 2 }
then = { calls = [
  { tool = "lattice_read", arguments = { path = "w/bench/invoice" } },
  { tool = "lattice_write", arguments = { path = "{{input.writes}}", value = "{{input.n}}.2 {{input.filler}}" } },
] }
[[rule]]
then = { text = "Invoice {{input.n}} is right: its total is that of its lines, and the vendor is known." }
"#;

/// Result of `bench prefix`.
#[derive(Debug, Clone, Serialize)]
pub struct PrefixReport {
    /// A growing session with three entries of context and two loads.
    pub growing: KeptPrefix,
    /// A growing session with a load that changes in every turn.
    pub changing_load: KeptPrefix,
}

/// Common prefix of each request with the one before, in percent of the latter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeptPrefix {
    /// Smallest percentage of the session.
    pub min_percent: f64,
    /// Median of the percentages.
    pub median_percent: f64,
    /// Size of the last request in bytes: tools, system prompt and messages.
    pub last_request_bytes: usize,
    /// Percentage of every request from the second on.
    pub percent: Vec<f64>,
}

/// Returns the rules of the scripted model, for `models.scripted`.
pub const fn rules() -> &'static str {
    RULES
}

/// Measures the common prefixes. A worker must be running in this process.
pub async fn prefix(venue: &Arc<Venue>, owner: &Owner) -> Result<PrefixReport, BenchError> {
    write(venue, owner, "w/bench/policy", "Invoices over the limit need a second signature.\n".repeat(12)).await?;
    let lines: Vec<Value> = (0..6).map(|n| json!({"item": format!("part {n}"), "total": 12.5})).collect();
    write(venue, owner, "w/bench/invoice", json!({"vendor": "Acme", "lines": lines})).await?;
    let growing = session(venue, owner, "growing", "w/bench/notes").await?;
    // Every turn writes the value that the second task loads.
    let changing_load = session(venue, owner, "changing", "w/bench/first").await?;
    Ok(PrefixReport { growing, changing_load })
}

async fn session(venue: &Arc<Venue>, owner: &Owner, name: &str, writes: &str) -> Result<KeptPrefix, BenchError> {
    let stuck = |error: String| BenchError::TimedOut(error);
    // A store in use has the sessions of earlier runs.
    let run = ingress::fresh_id();
    let agent: AgentId = "bench-prefix".parse().expect("a legal id");
    let session = SessionKey { agent, session: format!("{name}-{run}").parse().expect("a legal id") };
    let config = json!({
        "systemPrompt": "You check invoices against the policy, note down what you find, and answer in one sentence.",
        "model": {"provider": "scripted", "name": "bench"},
        "context": ["w/bench/policy", {"text": "Amounts are in euros.", "label": "units"}, "w/bench/invoice"],
    });
    let config = AgentConfig::parse(&config).map_err(|e| stuck(e.to_string()))?;
    agents::apply(venue, owner, &session.agent, &config, true, &Authority::without_limits()).await?;
    for path in ["w/bench/first", "w/bench/second"] {
        write(venue, owner, path, "A note of last week. ".repeat(12)).await?;
    }
    for n in 1..=TASKS {
        let filler = "a note that is as long as notes are ".repeat(4);
        let mut input = json!({"n": n, "writes": writes, "filler": filler});
        match n {
            2 => input["load"] = "w/bench/first".into(),
            4 => input["load"] = "w/bench/second".into(),
            _ => {}
        }
        if name == "changing" {
            write(venue, owner, writes, format!("{n}.0 {filler}")).await?;
        }
        complete_task(venue, owner, &session, format!("{run}-{n}"), input).await?;
    }
    let mut requests = Vec::new();
    for turn in 1..=TURNS * TASKS as u64 {
        let past = ledger::load(&*venue.store, owner, &session, turn).await?;
        let seen = past.and_then(|past| past.seen).ok_or_else(|| stuck(format!("turn {turn} has no record")))?;
        let inputs = seen.inputs.map_err(|gone| stuck(format!("turn {turn} has lost {}", gone.join(", "))))?;
        let built = assemble(&inputs).map_err(|refused| stuck(refused.error.to_string()))?;
        requests.push(bytes(&built.request));
    }
    Ok(common_prefixes(&requests))
}

async fn write(venue: &Venue, owner: &Owner, path: &str, value: impl Into<Value>) -> Result<(), BenchError> {
    let tree = Workspace::new(Arc::clone(&venue.store), owner.clone(), Scope::default());
    let stuck = |error: String| BenchError::TimedOut(error);
    let path = Path::parse(path).map_err(|e| stuck(e.to_string()))?;
    let op = WriteOp::Write { path, value: value.into(), expect: None };
    tree.apply_now(venue.now(), &op).await.map(drop).map_err(|e| stuck(e.to_string()))
}

/// Returns a request in the order in which providers' caches compare it: tools, system prompt, messages.
fn bytes(request: &ModelRequest) -> String {
    let messages = request.messages.iter().map(|message| json!(message).to_string());
    let front = [json!(&*request.tools).to_string(), request.system.clone()];
    front.into_iter().chain(messages).collect::<Vec<_>>().join("\n")
}

fn common_prefixes(requests: &[String]) -> KeptPrefix {
    let common = |before: &str, now: &str| before.bytes().zip(now.bytes()).take_while(|(a, b)| a == b).count();
    #[expect(clippy::cast_precision_loss, reason = "bytes of a prompt")]
    let percent = |before: &str, now: &str| common(before, now) as f64 * 100.0 / before.len().max(1) as f64;
    let tenths = |percent: f64| (percent * 10.0).floor() / 10.0;
    let percent: Vec<f64> = requests.windows(2).map(|pair| tenths(percent(&pair[0], &pair[1]))).collect();
    let mut sorted = percent.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    KeptPrefix {
        min_percent: sorted.first().copied().unwrap_or(100.0),
        median_percent: sorted.get(sorted.len() / 2).copied().unwrap_or(100.0),
        last_request_bytes: requests.last().map_or(0, String::len),
        percent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_prefix_is_in_percent_of_the_request_before() {
        let requests = ["aaaaaaaaaa", "aaaaaaaabbbbbbbbbbbb", "aaaaaaaabb"].map(str::to_owned);
        let found = common_prefixes(&requests);
        assert_eq!(found.percent, [80.0, 50.0]);
        assert_eq!((found.min_percent, found.median_percent, found.last_request_bytes), (50.0, 80.0, 10));
    }
}
