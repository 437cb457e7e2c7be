//! `trellis doctor`: which guarantees the configured servers give, and what to change.

use super::exit::{Exit, Failure};
use super::output::note;
use super::{Context, worker};
use crate::app::{App, Role};
use crate::store::Setting;
use crate::telemetry::Metrics;
use clap::Args;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads the settings of the configured store and queue and says which guarantees hold.
///
/// Exits with 1 when one doesn't hold. An embedded store must not be in use by another process.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis doctor --set store.url=redis://127.0.0.1 --set bus.url=nats://127.0.0.1")]
pub struct Doctor {}

/// What Trellis promises, as numbered in its design, and in which version.
const GUARANTEES: [(u8, &str); 7] = [
    (1, "accepted means finished, once"),
    (2, "a turn is all or nothing, and fenced"),
    (3, "a recorded model reply is never paid twice"),
    (4, "a tool that must not be repeated is never silently repeated"),
    (5, "outbound ids are a function of the turn"),
    (6, "authority only narrows"),
    (7, "what the model saw is reproducible"),
];

/// Those that rest on the store keeping what it acknowledged.
const DURABLE: &[u8] = &[1, 2, 3, 4, 7];
/// Those that rest on the queue keeping what it acknowledged.
const QUEUED: &[u8] = &[1];

/// Settings whose problem costs capacity or speed but no guarantee, and those that break few.
const REACH: [(&str, &[u8]); 8] = [
    ("redis save", &[]),
    ("redis maxmemory-policy", &[1, 2, 3, 4, 7]),
    ("nats version", &[]),
    ("nats jetstream", QUEUED),
    ("nats max_payload", &[]),
    ("nats replicas", QUEUED),
    ("nats sync_interval", QUEUED),
    ("nats stream size", &[]),
];

/// Values of settings that a server doesn't tell.
const UNTOLD: [&str; 2] = ["unknown", "not shown to clients"];

/// How one guarantee stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Holds,
    /// It rests on a setting that the server doesn't tell.
    Unknown,
    Broken,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Unknown => "unknown",
            Self::Broken => "broken",
        }
    }
}

impl Doctor {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let config = context.load(Vec::new())?.config;
        let app = App::open(&config, Role::Doctor, Arc::new(Metrics::new())).await.map_err(|e| worker::failure(&e))?;
        let unreachable = |e: &dyn std::error::Error| Failure::new(Exit::Unreachable, e.to_string());
        let store = app.venue.store.settings().await.map_err(|e| unreachable(&e))?;
        let bus = app.venue.bus.settings().await.map_err(|e| unreachable(&e))?;
        app.close().await;
        let settings: Vec<(Setting, &[u8])> = with_reach(store, DURABLE).chain(with_reach(bus, QUEUED)).collect();
        let verdicts: Vec<_> = GUARANTEES.iter().map(|(n, text)| (*n, *text, judge(*n, &settings))).collect();
        report(context, &settings, &verdicts)?;
        let broken = verdicts.iter().filter(|(_, _, verdict)| *verdict == Verdict::Broken).count();
        if broken == 0 {
            return Ok(Exit::Ok);
        }
        note(&format!("error: {broken} of {} guarantees do not hold with these settings", GUARANTEES.len()));
        Ok(Exit::Internal)
    }
}

/// Each setting with the guarantees that its problem touches.
fn with_reach(settings: Vec<Setting>, default: &'static [u8]) -> impl Iterator<Item = (Setting, &'static [u8])> {
    settings.into_iter().map(move |setting| {
        let reach = REACH.iter().find(|(name, _)| *name == setting.name).map_or(default, |(_, reach)| reach);
        (setting, reach)
    })
}

fn judge(guarantee: u8, settings: &[(Setting, &[u8])]) -> Verdict {
    let mut verdict = Verdict::Holds;
    for (setting, reach) in settings {
        if setting.problem.is_none() || !reach.contains(&guarantee) {
            continue;
        }
        if !is_untold(setting) {
            return Verdict::Broken;
        }
        verdict = Verdict::Unknown;
    }
    verdict
}

fn is_untold(setting: &Setting) -> bool {
    UNTOLD.contains(&setting.value.as_str())
}

fn state(setting: &Setting) -> &'static str {
    match &setting.problem {
        None => "ok",
        Some(_) if is_untold(setting) => "unknown",
        Some(_) => "problem",
    }
}

fn report(context: &Context, settings: &[(Setting, &[u8])], verdicts: &[(u8, &str, Verdict)]) -> Result<(), Failure> {
    let out = context.out;
    let value = json!({
        "settings": settings.iter().map(|(s, reach)| json!({
            "name": s.name, "value": s.value, "state": state(s), "problem": s.problem, "guarantees": reach,
        })).collect::<Value>(),
        "guarantees": verdicts.iter().map(|(n, text, verdict)| json!({
            "number": n, "text": text, "verdict": verdict.word(),
        })).collect::<Value>(),
    });
    out.value(&value, || {
        let rows: Vec<Vec<String>> =
            settings.iter().map(|(s, _)| vec![state(s).to_owned(), s.name.clone(), s.value.clone()]).collect();
        let mut text = out.table(&["STATE", "SETTING", "VALUE"], &rows);
        let rows: Vec<Vec<String>> = verdicts
            .iter()
            .map(|(n, text, verdict)| vec![verdict.word().to_owned(), n.to_string(), (*text).to_owned()])
            .collect();
        text = format!("{text}\n\n{}", out.table(&["VERDICT", "#", "GUARANTEE"], &rows));
        let advice: Vec<String> = settings
            .iter()
            .filter_map(|(s, _)| s.problem.as_ref().map(|problem| format!("- {} is `{}`: {problem}", s.name, s.value)))
            .collect();
        if advice.is_empty() { text } else { format!("{text}\n\nTo change or check:\n{}", advice.join("\n")) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str, problem: bool, default: &'static [u8], expected: [Verdict; 2]) {
        let problem = problem.then(|| "change it".to_owned());
        let setting = Setting { name: name.into(), value: value.into(), problem };
        let settings: Vec<_> = with_reach(vec![setting], default).collect();
        assert_eq!([judge(1, &settings), judge(2, &settings)], expected, "{name} {value}");
    }

    #[test]
    fn a_problem_breaks_what_rests_on_its_setting() {
        use Verdict::{Broken, Holds, Unknown};
        check("redis appendfsync", "always", false, DURABLE, [Holds, Holds]);
        check("redis appendfsync", "everysec", true, DURABLE, [Broken, Broken]);
        check("redis appendfsync", "unknown", true, DURABLE, [Unknown, Unknown]);
        check("redis save", "3600 1", true, DURABLE, [Holds, Holds]);
        check("nats sync_interval", "not shown to clients", true, QUEUED, [Unknown, Holds]);
        check("nats stream size", "9 of 10 bytes", true, QUEUED, [Holds, Holds]);
        check("embedded fsync", "off", true, DURABLE, [Broken, Broken]);
    }
}
