//! The ledger of real turns: every prompt can be built again, whatever happened to its worker.

use crate::support::cli::Up;
use crate::support::operate::{boss, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::Job;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{DocEffect, DocWrite, Expect, Store, keys};
use trellis::venue::context::preview::{self, Preview};
use trellis::venue::ledger;
use trellis::venue::operation::Caller;

const RULES: &str = r#"
[[rule]]
when = { agent = "writer", turn = 1 }
then = { calls = [
  { tool = "lattice_append", arguments = { path = "w/notes", value = "{{input.note}}" } },
  { tool = "context_load", arguments = { path = "w/records/{{input.n}}", budget = 700 } },
  { tool = "lattice_read", arguments = { path = "w/plain" } },
] }

[[rule]]
when = { agent = "writer", turn = 2 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/records/{{input.n}}", value = { note = "{{input.note}}" } } }] }

[[rule]]
when = { agent = "writer" }
then = { text = "noted" }

[[rule]]
when = { agent = "asker", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "idle", input = "work", wait = 0 } }] }

[[rule]]
when = { agent = "idle" }
then = { text = "never", fault = "hang" }
"#;

#[derive(Clone, Copy, PartialEq)]
enum Backend {
    Embedded,
    Redis,
}

/// A store that can be opened again.
struct Disk {
    backend: Backend,
    dir: tempfile::TempDir,
    redis: Option<Arc<dyn Store>>,
}

impl Disk {
    async fn new(backend: Backend) -> Option<Self> {
        let redis: Option<Arc<dyn Store>> = match backend {
            Backend::Embedded => None,
            Backend::Redis => {
                let options = RedisServer::shared()?.options(ServerOrInjected::Server);
                Some(RedisStore::open(options).await.unwrap())
            }
        };
        Some(Self { backend, dir: tempfile::tempdir().unwrap(), redis })
    }

    async fn venue(&self, life: usize) -> TestVenue {
        let dir = self.dir.path().join(if self.backend == Backend::Redis { life.to_string() } else { "s".into() });
        std::fs::create_dir_all(&dir).unwrap();
        let embedded = open(&dir).await;
        let bus: Arc<dyn Bus> =
            Arc::new(EmbeddedBus::new(Arc::clone(&embedded), Duration::from_secs(2), Clock::system()).unwrap());
        let store: Arc<dyn Store> = match &self.redis {
            Some(redis) => Arc::clone(redis),
            None => embedded,
        };
        let venue = TestVenue::new(store, bus, &dir, RULES).await.foreseen();
        venue.worker();
        venue
    }
}

/// Once whoever had it open has let go of it.
async fn open(dir: &FilePath) -> Arc<EmbeddedStore> {
    for _ in 0..3000 {
        match EmbeddedStore::open(dir) {
            Ok(store) => return store,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    EmbeddedStore::open(dir).unwrap()
}

async fn ask(venue: &TestVenue, agent: &str, id: &str, session: &str, input: Value) -> Job {
    let submission = Submission { input, session_id: Some(session.parse().unwrap()), ..Submission::default() };
    let submitted = venue.arrive(agent, id, true, submission).await;
    venue.ended(&submitted.job.unwrap()).await
}

fn key(agent: &str, session: &str) -> SessionKey {
    SessionKey { agent: agent.parse().unwrap(), session: session.parse().unwrap() }
}

async fn writer(venue: &TestVenue) {
    let context = json!(["w/notes", {"ref": "w/plain", "label": "Plain"}, "Be brief, {{session.name}}.", "w/missing"]);
    venue.agent("writer", json!({"systemPrompt": "You keep notes.", "context": context})).await;
}

/// Turns of a session that replay to the hash that was recorded.
async fn replayed(venue: &TestVenue, session: &SessionKey) -> usize {
    let store = &*venue.venue.store;
    let docs = store.scan(&venue.owner, &keys::turns(session), None, false, 1_000).await.unwrap();
    let mut good = 0;
    for (_, doc) in docs {
        let record: trellis::domain::session::TurnRecord = serde_json::from_slice(&doc.value.unwrap()).unwrap();
        let past = ledger::load(store, &venue.owner, session, record.turn).await.unwrap().unwrap();
        let seen = past.seen.unwrap_or_else(|| panic!("turn {} of {session} has no ledger", record.turn));
        let again = assemble(&seen.inputs.unwrap()).unwrap();
        assert!(again.ledger == seen.ledger, "turn {} of {session}", record.turn);
        assert_eq!(again.ledger.prompt, record.prompt, "turn {} of {session}", record.turn);
        good += 1;
    }
    good
}

async fn long_scenario(backend: Backend) {
    let Some(disk) = Disk::new(backend).await else { return };
    let mut number = 0;
    for life in 0..3 {
        let venue = disk.venue(life).await;
        writer(&venue).await;
        venue.write("w/plain", json!(format!("plain text {life}, {}", "and more ".repeat(300)))).await;
        for _ in 0..5 {
            for session in ["a", "b", "c"] {
                number += 1;
                let input = json!({"n": format!("r{}", number % 4), "note": format!("note {number} ").repeat(20)});
                let job = ask(&venue, "writer", &format!("t{number}"), session, input).await;
                assert_eq!(job.result.unwrap().output.unwrap(), json!("noted"));
            }
        }
        let mut all = 0;
        for session in ["a", "b", "c"] {
            all += replayed(&venue, &key("writer", session)).await;
        }
        assert_eq!(all, number * 3, "three turns a task");
        venue.shutdown.trigger();
        drop(venue);
    }
    assert!(number * 3 >= 100);
}

#[tokio::test]
async fn turns_of_a_long_scenario_replay_to_their_hash_on_embedded() {
    long_scenario(Backend::Embedded).await;
}

#[tokio::test]
async fn turns_of_a_long_scenario_replay_to_their_hash_on_redis() {
    long_scenario(Backend::Redis).await;
}

fn preview(session: &str, task: Option<Value>) -> Preview {
    Preview { session: Some(session.parse().unwrap()), task, ..Preview::default() }
}

#[tokio::test]
async fn the_next_turn_of_a_session_is_what_was_shown_before() {
    let disk = Disk::new(Backend::Embedded).await.unwrap();
    let venue = disk.venue(0).await;
    writer(&venue).await;
    let input = json!({"n": "r", "note": "remembered"});
    ask(&venue, "writer", "t1", "a", input.clone()).await;
    let look = async |asked| preview::inputs(&venue.venue, &venue.owner, &"writer".parse().unwrap(), asked).await;
    let shown = look(preview("a", Some(input.clone()))).await.unwrap();
    assert!(shown.moment.turn.ends_with("/writer/a/4"), "{}", shown.moment.turn);
    let again = look(preview("a", Some(input.clone()))).await.unwrap();
    assert_eq!((&again.items, &again.transcript), (&shown.items, &shown.transcript), "looking changes nothing");
    ask(&venue, "writer", "t2", "a", input).await;
    let past = ledger::load(&*venue.venue.store, &venue.owner, &key("writer", "a"), 4).await.unwrap().unwrap();
    let real = past.seen.unwrap().inputs.unwrap();
    assert!(real.items.iter().any(|item| item.key == "loads/w/records/r"));
    assert_eq!((&shown.items, &shown.transcript), (&real.items, &real.transcript));
    assert_eq!((&shown.tools.specs, &shown.frame), (&real.tools.specs, &real.frame));
    let new = look(Preview::default()).await.unwrap();
    assert!(new.transcript.is_empty() && new.moment.turn.ends_with("/1"));
    let none = look(preview("never", None)).await.unwrap_err();
    assert_eq!(none.to_string(), "no session `writer/never`: nothing was ever sent to it");
}

#[tokio::test]
async fn the_next_turn_of_a_waiting_session_shows_what_it_waits_for() {
    let disk = Disk::new(Backend::Embedded).await.unwrap();
    let venue = disk.venue(0).await;
    venue.agent("idle", json!({})).await;
    venue.agent("asker", json!({})).await;
    let submission =
        Submission { input: json!("ask"), session_id: Some("a".parse().unwrap()), ..Submission::default() };
    venue.arrive("asker", "t1", true, submission).await;
    let mut seen = String::new();
    for _ in 0..1200 {
        let shown = preview::inputs(&venue.venue, &venue.owner, &"asker".parse().unwrap(), preview("a", None)).await;
        // Nothing was committed yet, or something was.
        if let Ok(inputs) = shown {
            seen = serde_json::to_string(&assemble(&inputs).unwrap().request).unwrap();
        }
        if seen.contains("status=STARTED (agent idle)") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for part in ["status=STARTED (agent idle)", "\"name\":\"agent_request\"", "[Tasks assigned to you]"] {
        assert!(seen.contains(part), "`{part}` in {seen}");
    }
}

#[tokio::test]
async fn a_preview_names_who_asks_as_the_turn_does() {
    let disk = Disk::new(Backend::Embedded).await.unwrap();
    let venue = disk.venue(0).await;
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let caller = Caller { name: "did:key:zBoss".into(), ..boss(&venue.owner) };
    let run = async |operation, input| operate(&venue.venue, &caller, operation, input).await.unwrap();
    let shown = run("agent/context", json!({"agentId": "echo", "task": "look"})).await;
    let asked = run("agent/request", json!({"agentId": "echo", "input": "look", "timeout": 0})).await;
    let job = venue.ended(&asked["id"].as_str().unwrap().parse().unwrap()).await;
    let session = key("echo", job.head.session.as_str());
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
    let real = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request;
    let real = json!(real.messages).to_string();
    for prompt in [shown.as_str().unwrap(), &real] {
        assert!(prompt.contains("(from: did:key:zBoss): look"), "{prompt}");
    }
}

#[tokio::test]
async fn a_part_that_is_gone_is_named() {
    let disk = Disk::new(Backend::Embedded).await.unwrap();
    let venue = disk.venue(0).await;
    writer(&venue).await;
    venue.write("w/plain", json!("to be erased ".repeat(30))).await;
    ask(&venue, "writer", "t1", "a", json!({"n": "r", "note": "short"})).await;
    let store = &*venue.venue.store;
    let parts = store.scan(&venue.owner, keys::PARTS, None, false, 1_000).await.unwrap();
    let erased: Vec<_> = parts.iter().filter(|(_, doc)| doc.value.as_ref().unwrap().starts_with(b"to be")).collect();
    assert_eq!(erased.len(), 1);
    let delete = DocWrite { key: erased[0].0.clone(), expect: Expect::Any, change: DocEffect::Delete };
    store.write(venue.venue.now(), &venue.owner, &[delete]).await.unwrap();
    let past = ledger::load(store, &venue.owner, &key("writer", "a"), 1).await.unwrap().unwrap();
    let seen = past.seen.unwrap();
    assert_eq!(seen.inputs.unwrap_err(), ["context/Plain"]);
    assert!(seen.ledger.rows.iter().any(|row| row.key == "context/Plain" && row.rendered > 300));
}

#[tokio::test]
async fn a_new_session_of_an_unchanged_agent_adds_one_document() {
    let disk = Disk::new(Backend::Embedded).await.unwrap();
    let venue = disk.venue(0).await;
    let config = json!({"model": {"provider": "scripted", "name": "echo"}, "systemPrompt": "Be exact. ".repeat(100)});
    venue.agent("echo", config).await;
    let parts = async || venue.venue.store.scan(&venue.owner, keys::PARTS, None, false, 1_000).await.unwrap().len();
    ask(&venue, "echo", "t1", "a", json!("x")).await;
    let before = parts().await;
    assert!(before > 5, "{before}");
    ask(&venue, "echo", "t2", "b", json!("x")).await;
    // The event has its own id and time.
    assert_eq!(parts().await, before + 1);
    let stored = venue.venue.store.read(&venue.owner, &[keys::ledger(&key("echo", "b"), 1)]).await.unwrap();
    let bytes = stored[0].value.as_ref().unwrap().len();
    assert!(bytes < 900, "{bytes}");
}

#[tokio::test]
async fn a_turn_costs_what_changed_however_large_the_context_is() {
    let disk = Disk::new(Backend::Embedded).await.unwrap();
    let venue = disk.venue(0).await;
    let found = trellis::bench::growth(&venue.venue, &venue.owner, &[10, 75]).await.unwrap();
    eprintln!("{found:#?}");
    let [early, late] = found.as_slice() else { panic!("expected two windows") };
    assert!(late.bytes_per_turn * 10 <= early.bytes_per_turn * 12, "{found:?}");
}

#[test]
fn the_command_line_shows_replays_and_explains_turns() {
    let up = Up::start();
    up.file("clerk.rules", "[[rule]]\nwhen = { turn = 1 }\nthen = { calls = [{ tool = \"lattice_read\", arguments = { path = \"w/vat\" } }] }\n\n[[rule]]\nthen = { text = \"done\" }\n");
    let config = json!({"model": {"provider": "scripted", "name": "clerk.rules"}, "systemPrompt": "You are a clerk.",
        "context": ["w/notes", "w/none"], "tools": ["v/ops/no/such"]});
    up.file("clerk.json", &config.to_string());
    up.run(&["agent", "apply", "clerk.json"]).ok();
    up.run(&["lattice", "write", "w/notes", "pay within 30 days"]).ok();
    up.run(&["lattice", "write", "w/vat", "19"]).ok();
    up.run(&["submit", "clerk", "check", "--wait", "--session", "s1"]).ok();
    let listed = up.run(&["turn", "list", "clerk"]).ok();
    assert!(
        listed.contains("clerk/s1/2") && listed.contains("lattice_read") && listed.contains("COMPLETE"),
        "{listed}"
    );
    let shown = up.run(&["turn", "show", "clerk/1"]).ok();
    for part in [
        "context/w/notes",
        "missing",
        "nothing is there",
        "not v/ops/no/such",
        "of 180,000 bytes used",
        "called    lattice_read: ok",
    ] {
        assert!(shown.contains(part), "`{part}` in {shown}");
    }
    let prompt = up.run(&["turn", "show", "clerk/s1/1", "--prompt"]).ok();
    assert!(prompt.contains("=== system ===\nYou are a clerk.") && prompt.contains("pay within 30 days"), "{prompt}");
    let diff = up.run(&["turn", "diff", "clerk/s1/1", "clerk/s1/2"]).ok();
    assert!(diff.contains("transcript") && diff.contains("+ [calls lattice_read"), "{diff}");
    let replayed = up.run(&["turn", "replay", "clerk", "--all"]).ok();
    assert_eq!(replayed.matches("  same  ").count(), 2, "{replayed}");
    let before = up.run(&["lattice", "read", "g/clerk/timeline"]).ok();
    let none = up.run(&["turn", "replay", "clerk/s1/1", "--without", "w/other"]);
    none.expect(5, "turn `clerk/s1/1` has no part from `w/other`; it has `context/w/notes` from `w/notes`");
    let without = up
        .run(&["turn", "replay", "clerk/s1/2", "--without", "w/vat", "--without", "w/notes", "--output", "json"])
        .ok();
    let without: Value = serde_json::from_str(&without).unwrap();
    assert_eq!((&without["same"], &without["experiment"]), (&json!(false), &json!(true)));
    let request = without["request"].to_string();
    assert!(!request.contains("pay within") && request.contains("[left out: w/vat]"), "{request}");
    let other = up.run(&["turn", "replay", "clerk/s1/1", "--model", "scripted/echo", "--ask"]).ok();
    assert!(other.contains("DIFFERENT") && other.contains("=== reply ("), "{other}");
    up.file("other.json", &json!({"model": {"provider": "scripted", "name": "echo"}, "systemPrompt": "You are a cook.", "context": ["w/notes", "w/menu"]}).to_string());
    let other = up.run(&["turn", "replay", "clerk/s1/1", "--agent-config", "other.json"]).ok();
    assert!(other.contains("it was not read in this turn") && other.contains("context/w/notes"), "{other}");
    assert_eq!(up.run(&["lattice", "read", "g/clerk/timeline"]).ok(), before, "nothing was committed");
    let next = up.run(&["context", "clerk", "--task", "look", "--prompt"]).ok();
    assert!(next.contains("pay within 30 days") && next.contains("): look"), "{next}");
    assert!(up.run(&["context", "clerk"]).ok().contains("context/w/none"));
    let next = up.run(&["context", "clerk", "--session", "s1", "--task", "look", "--prompt"]).ok();
    assert!(next.contains("[calls lattice_read") && next.contains("): look"), "{next}");
    up.run(&["context", "clerk", "--session", "s9"]).expect(5, "no session `clerk/s9`");
    let turns = up.run(&["turn", "list", "clerk", "--output", "ndjson"]).ok();
    assert_eq!(turns.lines().count(), 2, "looking changes nothing");
    let why = up.run(&["why", "w/notes"]).ok();
    assert!(why.contains("clerk/s1/1  context/w/notes") && why.contains("clerk/s1/2  context/w/notes"), "{why}");
    assert!(up.run(&["why", "w/vat"]).ok().contains("clerk/s1/1  tool lattice_read  w/vat"));
    assert_eq!(up.run(&["why", "w/none"]).ok(), "no turn has shown `w/none` to a model");
    up.run(&["turn", "show", "clerk/s1/9"]).expect(5, "its newest turn is 2");
    up.run(&["turn", "show", "clerk/9"]).expect(5, "no turn 9");
    up.run(&["turn", "show", "nobody/s/1"]).expect(5, "no agent `nobody`");
    up.run(&["turn", "show", "clerk"]).expect(2, "expected `AGENT/SESSION/TURN`");
    up.run(&["turn", "replay", "clerk/1", "--model", "x"]).expect(2, "expected `provider/name`");
    up.run(&["turn", "replay", "clerk/1", "--model", "nope/m"]).expect(0, "warning: `model`: no provider `nope`");
}
