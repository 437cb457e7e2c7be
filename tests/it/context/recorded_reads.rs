//! What was read: in the ledger, in `why`, in experiments, and after the agent is gone.

use crate::support::cli::Up;
use crate::support::python;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;
use trellis::domain::authority::Authority;
use trellis::domain::authority::trail::Trail;
use trellis::domain::event::Submission;
use trellis::domain::ids::{AgentId, SessionKey, sha256_hex};
use trellis::domain::retention::RetentionRules;
use trellis::domain::shard::Share;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::venue::agents::lifecycle;
use trellis::venue::ledger::experiment::{Experiment, TurnFacts, assemble_prompt};
use trellis::venue::ledger::path_uses::{self, PathUse};
use trellis::venue::ledger::{self, PastTurn};
use trellis::venue::upkeep::retention::Janitor;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/prompt_hash.py");

const RULES: &str = r#"
[[rule]]
when = { agent = "reader", turn = 1 }
then = { calls = [
  { tool = "lattice_read", arguments = { path = ["w", "secret", "a"] } },
  { tool = "lattice_read", arguments = { paths = [["w", "secret", "a"], "w/plain"] } },
  { tool = "job_run", arguments = { operation = "v/ops/job/run", input = { operation = "v/ops/lattice/inspect", input = { path = "w/secret" } } } },
  { tool = "lattice_aggregate", arguments = { path = "w/secret", groupBy = "kind" } },
  { tool = "lattice_copy", arguments = { from = "w/secret/a", to = "w/open/a" } },
  { tool = "lattice_write", arguments = { path = "w/secret/new", value = "written" } },
  { tool = "lattice_read", arguments = { path = "w/plain" } },
] }

[[rule]]
when = { agent = "reader", turn = 2 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/open/a" } }] }

[[rule]]
when = { agent = "reader" }
then = { text = "done" }
"#;

const TOOLS: [&str; 6] = [
    "v/ops/lattice/read",
    "v/ops/lattice/aggregate",
    "v/ops/lattice/copy",
    "v/ops/lattice/write",
    "v/ops/lattice/slice",
    "v/ops/job/run",
];

fn key() -> SessionKey {
    SessionKey { agent: "reader".parse().unwrap(), session: "s".parse().unwrap() }
}

async fn reader(venue: &TestVenue) {
    venue.worker();
    venue.write("w/secret/a", json!("the first secret")).await;
    venue.write("w/secret/b", json!({"kind": "x", "text": "the second secret"})).await;
    venue.write("w/plain", json!("plain")).await;
    let context = json!([
        {"op": "v/ops/lattice/read", "input": {"path": ["w", "secret", "b"]}, "label": "Read"},
        {"op": "v/ops/job/run", "input": {"operation": "v/ops/json/select", "input": {"path": "w/secret/b", "select": "text"}}, "label": "Nested"},
        {"ref": "w/secret", "label": "Above"},
        "w/plain",
    ]);
    let config =
        json!({"context": context, "tools": TOOLS, "defaultTools": false, "caps": [{"with": "w", "can": "crud"}]});
    venue.agent("reader", config).await;
    let submission = Submission { input: json!("go"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let submitted = venue.arrive("reader", "t1", true, submission).await;
    venue.ended(&submitted.job.unwrap()).await;
}

async fn past(venue: &TestVenue, turn: u64) -> PastTurn {
    ledger::load(&*venue.venue.store, &venue.owner, &key(), turn).await.unwrap().unwrap()
}

async fn why(venue: &TestVenue, path: &str) -> Vec<PathUse> {
    path_uses::uses_of_agent(&*venue.venue.store, &venue.owner, &"reader".parse().unwrap(), path).await.unwrap()
}

#[tokio::test]
async fn why_lists_every_way_to_a_model_and_no_mere_write() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    reader(&venue).await;
    let ways = async |path: &str, turn: u64| {
        let found = why(&venue, path).await.into_iter().filter(|reached| reached.turn == turn);
        found.map(|reached| (reached.via, reached.source, reached.through)).collect::<Vec<_>>()
    };
    let has = |ways: &[(String, String, String)], via: &str, source: &str, through: &str| {
        let found = ways.iter().any(|way| (way.0.as_str(), way.1.as_str(), way.2.as_str()) == (via, source, through));
        assert!(found, "{via} {source} {through} in {ways:#?}");
    };
    let first = ways("w/secret/a", 1).await;
    has(&first, "tool lattice_read", "w/secret/a", "v/ops/lattice/read");
    has(&first, "tool job_run", "w/secret", "v/ops/lattice/inspect");
    has(&first, "tool lattice_aggregate", "w/secret", "v/ops/lattice/aggregate");
    has(&first, "tool lattice_copy", "w/secret/a", "v/ops/lattice/copy");
    has(&first, "context/Above", "w/secret", "");
    let second = ways("w/secret/b", 1).await;
    has(&second, "context/Read", "w/secret/b", "v/ops/lattice/read");
    has(&second, "context/Nested", "w/secret/b", "v/ops/json/select");
    assert!(ways("w/secret/new", 1).await.iter().all(|(via, ..)| via != "tool lattice_write"));
    assert!(ways("w/open/a", 1).await.is_empty(), "it was only written");
    has(&ways("w/open/a", 2).await, "tool lattice_read", "w/open/a", "v/ops/lattice/read");
    let version = why(&venue, "w/secret/a").await.into_iter().find(|reached| reached.source == "w/secret/a");
    assert!(version.unwrap().version.is_some_and(|version| version > 0));
}

#[tokio::test]
async fn the_ledger_names_versions_hashes_reads_and_turns() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    reader(&venue).await;
    let ledger = past(&venue, 2).await.seen.unwrap().ledger;
    let row = |key: &str| ledger.rows.iter().find(|row| row.key == key).unwrap();
    let plain = row("context/w/plain");
    assert_eq!(plain.origin.version, Some(1));
    assert_eq!(plain.origin.hash.as_deref(), Some(sha256_hex(b"plain").as_str()));
    let reads = &row("context/Read").origin.reads;
    assert_eq!((reads[0].path.as_str(), reads[0].allowed.as_deref()), ("w/secret/b", Some("crud on w")));
    assert_eq!(reads[0].through, "v/ops/lattice/read");
    assert_eq!(row("transcript").source.as_deref(), Some("turns 1"));
    let before = past(&venue, 1).await.seen.unwrap().ledger;
    let same = |key: &str| before.rows.iter().find(|row| row.key == key).unwrap().origin.hash.clone();
    assert_eq!(same("context/w/plain"), plain.origin.hash);
    assert_ne!(same("context/Above"), row("context/Above").origin.hash, "a key was written to it");
}

#[tokio::test]
async fn a_collection_is_named_by_a_hash_and_not_by_a_version() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    reader(&venue).await;
    let mut hashes = Vec::new();
    for turn in [1, 2] {
        let ledger = past(&venue, turn).await.seen.unwrap().ledger;
        let origin = ledger.rows.iter().find(|row| row.key == "context/Above").unwrap().origin.clone();
        assert_eq!(origin.version, None, "its entries have versions of their own");
        let uses = why(&venue, "w/secret").await;
        let reached = uses.into_iter().find(|reached| reached.turn == turn && reached.via == "context/Above").unwrap();
        assert_eq!((reached.version, &reached.hash), (None, &origin.hash));
        hashes.push(origin.hash.unwrap());
    }
    assert_ne!(hashes[0], hashes[1], "a key was written to it");
    let mut entries = why(&venue, "w/secret/a").await.into_iter().filter(|reached| reached.source == "w/secret/a");
    assert!(entries.all(|reached| reached.hash.is_none()), "an entry has a version");
}

#[tokio::test]
async fn an_excluded_source_is_nowhere_in_the_prompt() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    reader(&venue).await;
    let shown = async |turn: u64, without: &[&str]| {
        let inputs = past(&venue, turn).await.seen.unwrap().inputs.unwrap();
        let without = without.iter().map(|path| (*path).to_owned()).collect();
        let experiment = Experiment { without, ..Experiment::default() };
        let inputs =
            experiment.apply(inputs, &venue.venue.catalog.compiled_view(), &TurnFacts::default()).unwrap().inputs;
        serde_json::to_string(&assemble_prompt(&inputs).unwrap().request.messages).unwrap()
    };
    let whole = shown(3, &[]).await;
    assert!(whole.contains("the first secret") && whole.contains("the second secret"), "{whole}");
    let without = shown(3, &["w/secret/a"]).await;
    assert!(!without.contains("the first secret"), "not by a path above, an array, a nested call or a copy: {without}");
    assert!(without.contains("the second secret"), "what lies beside it stays: {without}");
    let without = shown(3, &["w/secret/b"]).await;
    assert!(!without.contains("the second secret"), "not by an operation: {without}");
    assert!(shown(3, &["w/secret"]).await.contains("plain"));
}

async fn removal(venue: TestVenue, clock: &Clock) {
    reader(&venue).await;
    let agent: AgentId = "reader".parse().unwrap();
    let before = why(&venue, "w/secret/a").await;
    assert!(before.len() > 5);
    let store = &*venue.venue.store;
    let by = lifecycle::AgentEditor { authority: &Authority::without_limits(), trail: &Trail::default(), turn: false };
    trellis::venue::agents::deletion::remove(&venue.venue, &venue.owner, &agent, by).await.unwrap();
    assert!(why(&venue, "w/secret/a").await.is_empty(), "its turns are gone");
    let after = path_uses::removed_uses(store, &venue.owner, Some(&agent), "w/secret/a").await.unwrap();
    assert!(after.iter().all(|reached| reached.removed.is_some()));
    let after: Vec<_> = after.into_iter().map(|reached| PathUse { removed: None, ..reached }).collect();
    assert_eq!(after, before);
    assert!(path_uses::removed_uses(store, &venue.owner, None, "w/nothing").await.unwrap().is_empty());
    // A new agent of that name has its own.
    venue.agent("reader", json!({})).await;
    let rules = RetentionRules { turns: Some(Duration::from_hours(90 * 24)), ..RetentionRules::NEVER };
    let mut janitor = Janitor::new(rules);
    clock.advance(Duration::from_hours(89 * 24));
    janitor.tidy_share(&venue.venue, &Share::default()).await.unwrap();
    assert!(!path_uses::removed_uses(store, &venue.owner, None, "w/secret").await.unwrap().is_empty());
    clock.advance(Duration::from_hours(2 * 24));
    janitor.tidy_share(&venue.venue, &Share::default()).await.unwrap();
    assert!(
        path_uses::removed_uses(store, &venue.owner, None, "w/secret").await.unwrap().is_empty(),
        "as long as its turns"
    );
}

#[tokio::test]
async fn a_removed_agents_reads_are_kept_as_long_as_turns_embedded() {
    let clock = Clock::manual(Millis(1_700_000_000_000));
    let (venue, _dir) = TestVenue::embedded_at(RULES, clock.clone()).await;
    removal(venue, &clock).await;
}

#[tokio::test]
async fn a_removed_agents_reads_are_kept_as_long_as_turns_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let clock = Clock::manual(Millis(1_700_000_000_000));
    let (venue, _dir, _prefix) = TestVenue::redis_at(server, RULES, clock.clone()).await;
    removal(venue, &clock).await;
}

#[test]
fn the_prompt_hash_can_be_recomputed_from_outside() {
    let Some(python) = python::with("hashlib") else { return };
    let up = Up::start();
    let config = json!({"model": {"provider": "scripted", "name": "echo", "temperature": 0.3},
        "systemPrompt": "Grüße, 😀\u{2028}end", "context": ["w/numbers", "w/none"]});
    up.file("clerk.json", &config.to_string());
    up.run(&["agent", "apply", "clerk.json"]).ok();
    up.run(&["lattice", "write", "w/numbers", "{\"a\": 1e30, \"b\": [0.1, 1e-7, 18446744073709551615]}"]).ok();
    up.run(&["submit", "clerk", "hello", "--wait", "--session", "s1"]).ok();
    let shown = up.run(&["turn", "show", "clerk/s1/1", "--prompt", "--output", "json"]).ok();
    assert!(shown.contains("(from: local/me): hello"), "who has asked over HTTP is known: {shown}");
    up.file("request.json", &shown);
    let output =
        Command::new(python).args([PROGRAM, &up.dir.path().join("request.json").display().to_string()]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_str(&up.run(&["turn", "show", "clerk/s1/1", "--output", "json"]).ok()).unwrap();
    assert_eq!(
        (shown["ledger"]["prompt"].as_str(), shown["record"]["prompt"].as_str()),
        (Some(said.as_str()), Some(said.as_str()))
    );
}

/// Everything that copies what it reads, in one turn, and the copies read in the next.
const COPIES: &str = r#"
[[rule]]
when = { agent = "copier", turn = 1 }
then = { calls = [
  { tool = "asset_pin", arguments = { path = "w/secret/a", name = "p" } },
  { tool = "asset_pin", arguments = { path = "w/plain" } },
  { tool = "agent_create", arguments = { agentId = "made", config = "w/secret/config" } },
  { tool = "agent_update", arguments = { agentId = "known", config = "w/secret/config" } },
  { tool = "agent_fork", arguments = { agentId = "source", to = "forked" } },
  { tool = "agent_request", arguments = { agentId = "known", input = "go", outputPath = "w/out" } },
] }

[[rule]]
when = { agent = "copier", turn = 2 }
then = { calls = [
  { tool = "asset_content", arguments = { id = "o/p" } },
  { tool = "asset_content", arguments = { id = "o/plain" } },
  { tool = "lattice_read", arguments = { path = "g/made" } },
  { tool = "lattice_read", arguments = { path = "g/known" } },
  { tool = "lattice_read", arguments = { path = "g/forked" } },
  { tool = "lattice_read", arguments = { path = "w/out" } },
] }

[[rule]]
when = { agent = "copier", turn = 3 }
then = { calls = [
  { tool = "asset_pin", arguments = { path = "a/HASH", name = "again" } },
] }

[[rule]]
when = { agent = "copier", turn = 4 }
then = { calls = [{ tool = "asset_content", arguments = { id = "o/again" } }] }

[[rule]]
when = { agent = "copier" }
then = { text = "done" }

[[rule]]
when = { agent = "known" }
then = { text = "the output of a child" }
"#;

#[tokio::test]
async fn copies_of_an_excluded_source_are_left_out() {
    let hash = sha256_hex(b"the first secret");
    let (venue, _dir) = TestVenue::embedded(&COPIES.replace("HASH", &hash)).await;
    venue.worker();
    venue.write("w/secret/a", json!("the first secret")).await;
    venue.write("w/plain", json!("plain")).await;
    let rules = json!({"provider": "scripted", "name": "rules"});
    venue.write("w/secret/config", json!({"model": rules, "systemPrompt": "the configured secret"})).await;
    venue.agent("known", json!({})).await;
    venue.agent("source", json!({"systemPrompt": "the forked secret"})).await;
    let tools =
        ["asset/pin", "asset/content", "agent/create", "agent/update", "agent/fork", "agent/request", "lattice/read"];
    let tools: Vec<_> = tools.iter().map(|name| format!("v/ops/{name}")).collect();
    venue.agent("copier", json!({"tools": tools, "defaultTools": false})).await;
    let submission = Submission { input: json!("go"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let job = venue.ended(&venue.arrive("copier", "t1", true, submission).await.job.unwrap()).await;
    let key = SessionKey { agent: "copier".parse().unwrap(), session: "s".parse().unwrap() };
    let shown = async |without: &[&str]| {
        let last = venue.turns("copier", "s").await.last().unwrap().turn;
        let past = ledger::load(&*venue.venue.store, &venue.owner, &key, last).await.unwrap();
        let inputs = past.unwrap_or_else(|| panic!("no turn {last}: {job:?}")).seen.unwrap().inputs.unwrap();
        let without = without.iter().map(|path| (*path).to_owned()).collect();
        let inputs = Experiment { without, ..Experiment::default() }
            .apply(inputs, &venue.venue.catalog.compiled_view(), &TurnFacts::default())
            .unwrap()
            .inputs;
        serde_json::to_string(&assemble_prompt(&inputs).unwrap().request.messages).unwrap()
    };
    let secrets = ["the first secret", "the configured secret", "the forked secret", "the output of a child"];
    let whole = shown(&[]).await;
    for (secret, times) in secrets.iter().zip([2, 2, 1, 1]) {
        assert!(whole.matches(secret).count() >= times, "{secret}: {whole}");
    }
    let calls = venue.turns("copier", "s").await;
    let child = calls[0].calls[5].reads.iter().flatten().find(|seen| seen.into.as_deref() == Some("w/out"));
    let child = child.unwrap().path.clone();
    for (path, secret) in ["w/secret/a", "w/secret/config", "g/source", &child].iter().zip(secrets) {
        let without = shown(&[path]).await;
        assert!(!without.contains(secret), "{secret} without {path}: {without}");
        assert!(without.contains("plain"), "{path}: {without}");
        for other in secrets.iter().filter(|other| **other != secret) {
            assert!(without.contains(other), "{other} without {path}: {without}");
        }
    }
    let agent: AgentId = "copier".parse().unwrap();
    let why = path_uses::uses_of_agent(&*venue.venue.store, &venue.owner, &agent, "w/secret/a").await.unwrap();
    let found: Vec<_> = why.iter().map(|reached| reached.source.as_str()).collect();
    let asset = format!("a/{hash}");
    let session = "g/copier/sessions/s";
    assert_eq!(found, ["w/secret/a", "w/secret/a", &asset, "o/p", &asset, &asset, &asset, "o/again", session]);
}

/// A section that an operation has read, and a conversation, go to a child.
const HANDED: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [
  { tool = "lattice_read", arguments = { path = "w/told" } },
  { tool = "asset_pin", arguments = { path = "w/told", name = "told" } },
] }

[[rule]]
when = { agent = "boss", turn = 2 }
then = { calls = [{ tool = "help", arguments = { question = "why?" } }] }

[[rule]]
when = { agent = "helper", turn = 1 }
then = { calls = [
  { tool = "asset_content", arguments = { id = "o/told" } },
  { tool = "show", arguments = {} },
] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test]
async fn delegated_data_is_left_out_with_its_source() {
    let (venue, _dir) = TestVenue::embedded(HANDED).await;
    venue.worker();
    venue.write("w/secret", json!({"read": "the secret read", "path": "the secret at a path"})).await;
    venue.write("w/told", json!("the secret told")).await;
    let help = json!({
        "_delegate": "helper", "name": "help", "description": "Knows more.", "wait": 60000,
        "_scopes": {"const": ["context/read", "context/path", "transcript"]},
    });
    let context = json!([
        {"op": "v/ops/lattice/read", "input": {"path": "w/secret/read"}, "label": "read"},
        {"ref": "w/secret/path", "label": "path"},
    ]);
    let tools = json!([help, "v/ops/lattice/read", "v/ops/asset/pin"]);
    venue.agent("boss", json!({"tools": tools, "context": context, "defaultTools": false})).await;
    let show = json!({"operation": "v/ops/test/scoped", "name": "show", "scopes": {"const": ["context/read"]}});
    venue.agent("helper", json!({"tools": ["v/ops/asset/content", show], "defaultTools": false})).await;
    let job = venue.run("boss", "t1", json!("go")).await;
    let helper: AgentId = "helper".parse().unwrap();
    let sessions = venue.venue.store.sessions(&venue.owner, Some(&helper), None, 10).await.unwrap();
    let key = sessions.first().unwrap_or_else(|| panic!("no child: {job:?}")).key.clone();
    let shown = async |without: &[&str]| {
        let past = ledger::load(&*venue.venue.store, &venue.owner, &key, 2).await.unwrap().unwrap();
        let without = without.iter().map(|path| (*path).to_owned()).collect();
        let experiment = Experiment { without, ..Experiment::default() };
        let inputs = past.seen.unwrap().inputs.unwrap();
        let inputs =
            experiment.apply(inputs, &venue.venue.catalog.compiled_view(), &TurnFacts::default()).unwrap().inputs;
        serde_json::to_string(&assemble_prompt(&inputs).unwrap().request.messages).unwrap()
    };
    let secrets = [
        ("w/secret/read", "the secret read", 2),
        ("w/secret/path", "the secret at a path", 1),
        ("w/told", "the secret told", 2),
    ];
    let whole = shown(&[]).await;
    for (path, secret, times) in secrets {
        assert!(whole.matches(secret).count() >= times, "{secret}: {whole}");
        let without = shown(&[path]).await;
        assert!(!without.contains(secret), "{secret} without {path}: {without}");
        let why = path_uses::uses_of_agent(&*venue.venue.store, &venue.owner, &helper, path).await.unwrap();
        assert!(!why.is_empty(), "{path}");
    }
}
