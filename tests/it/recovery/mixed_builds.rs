//! What builds that work beside or after each other may count on: nothing that one doesn't know is lost by it.

use crate::support::cli::run;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::agent::{AgentConfig, AgentRecord};
use trellis::domain::approval::{Approval, AwaitingCall, AwaitingCalls};
use trellis::domain::authority::Authority;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::authority::policy::Policy;
use trellis::domain::budget::Account;
use trellis::domain::cap::CapUse;
use trellis::domain::dead::DeadLetter;
use trellis::domain::decode::read_stored;
use trellis::domain::event::{Event, EventKind, Mandate, Payload, Submission};
use trellis::domain::format::{FORMAT, FormatFit, StoreFormat};
use trellis::domain::goal::Segment;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::invocation::{InvokedOperation, OperationCaller};
use trellis::domain::job::{JobStatus, watch::ExternalWatch};
use trellis::domain::lattice::layout::Scope;
use trellis::domain::quota::Quota;
use trellis::domain::rate::Meter;
use trellis::domain::session::{PendingJob, SessionState};
use trellis::domain::time::Millis;
use trellis::domain::timer::Timer;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{Accounts, Amend, AmendOutcome, Amendment, DocWrite, Store, StoreInspection, keys};
use trellis::venue::{store_format, venue_owner};

const RULES: &str = "[[rule]]\nthen = { text = \"done\" }\n";

/// A record of a newer build, read and written again by this one.
fn keeps<T: DeserializeOwned + Serialize>(record: &Value) {
    let name = std::any::type_name::<T>();
    let mut newer = record.clone();
    newer["newer"] = json!({"a": [1, {"b": null}], "c": 1.5});
    let read = |record: &Value| -> T {
        read_stored(record.to_string().as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let written = serde_json::to_string(&read(&newer)).unwrap();
    assert_eq!(written.matches("\"newer\"").count(), 1, "{name}: {written}");
    // And no key of its own is taken for one of those, and written twice.
    let mut expected = serde_json::to_value(read(record)).unwrap();
    expected["newer"] = newer["newer"].clone();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), expected, "{name}");
    let bytes = serde_json::to_string(&expected).unwrap().len();
    assert_eq!(written.len(), bytes, "{name}: a key stands there twice: {written}");
}

#[test]
fn a_record_that_is_changed_keeps_the_keys_of_a_newer_build() {
    let (job, hash) = ("0f".repeat(16), "ab".repeat(32));
    let (due, session) = (json!({"created": 1, "due": 2}), json!({"agent": "a", "session": "s"}));
    let with = |base: &Value, more: Value| {
        let mut all = base.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    keeps::<SessionState>(&json!({"title": "x", "parked": true, "looseTurns": 2}));
    let model = json!({"provider": "scripted", "name": "x"});
    keeps::<AgentRecord>(
        &json!({"id": "a", "status": "ACTIVE", "config": {"model": model}, "configVersion": 1, "created": 1, "updated": 2}),
    );
    let timer = json!({"id": job, "origin": "e", "agent": "a", "agentCreated": 1, "kind": "task", "submission": {"input": 1},
        "schedule": {"at": 5}, "catchUp": "one", "overlap": "skip", "generation": 1, "tries": 0, "fired": 0, "skipped": 0});
    for phase in [json!({"state": "active"}), json!({"state": "failed", "error": "why"})] {
        keeps::<Timer>(&with(&with(&timer, due.clone()), phase));
    }
    let call = json!({"call": {"operation": "v/ops/x", "arguments": {}}});
    let asked = json!({"id": job, "turn": 1, "index": 0, "tool": "x", "digest": hash, "asked": 1, "expires": 2});
    keeps::<Approval>(&with(&with(&asked, session.clone()), call));
    keeps::<ExternalWatch>(&with(
        &due,
        json!({"job": job, "queue": "q", "startBy": 3, "heartbeatSeconds": 60, "deadline": 9}),
    ));
    keeps::<Account>(&json!({"origin": "agent", "limits": {}, "spent": {}}));
    keeps::<CapUse>(&json!({"spent": {}}));
    keeps::<Meter>(&json!({"requests": 5}));
    let caller = json!({"name": "me", "operator": false, "authority": {}, "envelope": {}});
    keeps::<InvokedOperation>(&json!({"job": job, "key": "e", "asker": caller, "due": 2, "begun": 0}));
    let task = Payload::Task { job: JobId::new(&job).unwrap(), input: json!(1) };
    let event = serde_json::to_value(Event::new("e".parse().unwrap(), Millis(1), task)).unwrap();
    keeps::<DeadLetter>(
        &json!({"job": job, "session": session, "event": event, "crashes": 5, "died": 2, "error": "x"}),
    );
}

/// A limit that is passed over is one that is lost.
#[test]
fn authority_records_with_unknown_keys_are_refused() {
    fn refuses<T: DeserializeOwned>(mut record: Value) {
        assert!(read_stored::<T>(record.to_string().as_bytes()).is_ok(), "{record}");
        record["newer"] = json!(1);
        let error = read_stored::<T>(record.to_string().as_bytes()).err().unwrap().to_string();
        assert!(error.contains("newer"), "{}: {error}", std::any::type_name::<T>());
    }
    let job = "0f".repeat(16);
    refuses::<Policy>(json!({}));
    refuses::<Envelope>(json!({}));
    refuses::<Submission>(json!({"input": 1}));
    refuses::<AgentConfig>(json!({"model": {"provider": "scripted", "name": "x"}}));
    refuses::<Quota>(json!({}));
    refuses::<Authority>(json!({"paths": [{"with": "w", "can": "crud"}], "home": {}}));
    refuses::<Scope>(json!({"job": job}));
    refuses::<Mandate>(json!({"event": "e", "envelope": {}}));
    refuses::<OperationCaller>(json!({"name": "me", "operator": false, "authority": {}, "envelope": {}}));
    refuses::<Segment>(json!({"frame": 0, "to": 1, "turns": 1, "items": 2, "summary": "x", "bound": {}}));
    refuses::<PendingJob>(json!({"agent": "a", "started": 1, "under": {}, "frame": 1}));
    let planned = json!({"id": "c", "tool": "x", "what": {"Err": "WHAT"}});
    let call = json!({"approval": job, "call": 0, "expires": 2, "planned": planned});
    refuses::<AwaitingCalls>(json!({"turn": 1, "job": job, "authority": {}, "calls": [call]}));
    refuses::<AwaitingCall>(call);
    // Wherever it stands: the session isn't read without it.
    let segment = json!({"frame": 0, "to": 1, "turns": 1, "items": 2, "summary": "x", "authority": {"newer": 1}});
    let error =
        read_stored::<SessionState>(json!({"goals": {"segments": [segment]}}).to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("newer"), "{error}");
}

async fn venues() -> Vec<(TestVenue, tempfile::TempDir, Option<String>)> {
    let (embedded, dir) = TestVenue::embedded(RULES).await;
    let mut all = vec![(embedded, dir, None)];
    if let Some(server) = RedisServer::shared() {
        let (venue, dir, prefix) = TestVenue::redis_at(server, RULES, Clock::system()).await;
        all.push((venue, dir, Some(prefix)));
    }
    for (venue, ..) in &mut all {
        // One that isn't given back lapses in time for this test, and counts.
        venue.lease = Duration::from_secs(2);
    }
    all
}

async fn task(venue: &TestVenue, id: &str) -> JobId {
    let said = Submission { input: json!("x"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    venue.arrive("helper", id, true, said).await.job.unwrap()
}

fn session() -> SessionKey {
    SessionKey { agent: "helper".parse().unwrap(), session: "s".parse().unwrap() }
}

/// Granted at least twice more, and not a crash counted.
async fn is_passed_on(venue: &TestVenue) {
    let store = &venue.venue.store;
    let facts = async || store.sessions(&venue.owner, None, None, 9).await.ok().and_then(|all| all.into_iter().next());
    let (mut epochs, mut crashes) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..1_200 {
        if let Some(facts) = facts().await {
            epochs.insert(facts.epoch);
            crashes = crashes.max(facts.mailbox.iter().map(|entry| entry.crashes).max().unwrap_or_default());
        }
        if epochs.len() > 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(epochs.len() > 2, "it comes again: {epochs:?}");
    assert_eq!(crashes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_a_newer_build_is_left_without_a_crash() {
    for (venue, _dir, _) in venues().await {
        venue.agent("helper", json!({})).await;
        venue.worker();
        let first = task(&venue, "t1").await;
        venue.ended(&first).await;
        let store = &venue.venue.store;
        let change = async |state: bytes::Bytes| -> bytes::Bytes {
            for _ in 0..600 {
                let facts = store.sessions(&venue.owner, None, None, 9).await.unwrap().remove(0);
                let (then, was) = (Amendment::State(state.clone()), facts.state.clone());
                let amend =
                    Amend { version: facts.version, expected_state: was.clone(), amendment: then, writes: Vec::new() };
                if store.amend(venue.venue.now(), &venue.owner, &session(), &amend).await.unwrap() == AmendOutcome::Done
                {
                    return was.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("always held");
        };
        let was = change(json!({"awaiting": {"brandNew": 1}}).to_string().into()).await;
        let second = task(&venue, "t2").await;
        is_passed_on(&venue).await;
        change(was).await;
        assert_eq!(venue.ended(&second).await.status, JobStatus::Complete);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_an_unknown_kind_is_left_in_place() {
    let Some(server) = RedisServer::shared() else { return };
    for (venue, _dir, prefix) in venues().await {
        let Some(prefix) = prefix else { continue };
        venue.agent("helper", json!({})).await;
        let job = task(&venue, "t1").await;
        let base = RedisServer::base(&prefix, &venue.owner);
        let key = format!("{base}:event:{}", session().token());
        let values: Vec<String> = redis::from_redis_value(server.command(&["HGETALL", &key]).await.unwrap()).unwrap();
        let [field, value] = &values[..] else { panic!("{values:?}") };
        assert!(EventKind::from_letter('z').is_none() && value.starts_with("t "), "{value}");
        server.command(&["HSET", &key, field, &value.replacen('t', "z", 1)]).await.unwrap();
        venue.worker();
        let place = format!("{base}:session:{}", session().token());
        let mut epochs = std::collections::BTreeSet::new();
        while epochs.len() < 2 {
            // None before the first grant.
            let epoch = server.command(&["HGET", &place, "epoch"]).await.unwrap();
            epochs.extend(redis::from_redis_value::<Option<String>>(epoch).unwrap());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let crashes = server.command(&["EXISTS", &format!("{base}:crash:{}", session().token())]).await.unwrap();
        assert_eq!(crashes, redis::Value::Int(0));
        server.command(&["HSET", &key, field, value]).await.unwrap();
        assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    }
}

/// As a build of that format leaves it.
pub(crate) async fn set_format(store: &dyn Store, format: u32) {
    let new = StoreFormat { format, by: "9.9.9".into() };
    let now = Millis(1);
    store.write(now, &venue_owner(), &[DocWrite::json(keys::FORMAT, &new)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_accepts_only_its_own_and_the_next_format() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let now = Millis(1);
    {
        let store = EmbeddedStore::open(&data).unwrap();
        for raise in [false, true] {
            store_format::compare_format(&*store, now, raise).await.unwrap();
            let found = (&*store as &dyn Store).get::<StoreFormat>(&venue_owner(), keys::FORMAT).await.unwrap();
            assert_eq!(found.map(|found| found.format), raise.then_some(FORMAT));
        }
        set_format(&*store, FORMAT + 1).await;
        assert_eq!(store_format::compare_format(&*store, now, true).await.unwrap(), FormatFit::Behind);
        set_format(&*store, FORMAT + 2).await;
    }
    for command in ["up", "doctor", "audit"] {
        let args: &[&str] = if command == "up" { &["--listen", "127.0.0.1:0"] } else { &[] };
        let refused = run(dir.path(), &[&[command, "--set", "store.url=embedded:data"], args].concat());
        refused.expect(6, "this build can't work on the store: the store has format 3, which trellis 9.9.9 has made");
    }
}

#[tokio::test]
async fn function_libraries_of_two_builds_coexist_until_unused() {
    let Some(server) = RedisServer::start() else { return };
    let options = server.options(ServerOrInjected::Server);
    let other = "trellis_0123456789ab";
    let code = format!("#!lua name={other}\nredis.register_function('{other}_admit', function() return 'other' end)");
    server.command(&["FUNCTION", "LOAD", &code]).await.unwrap();
    let libraries = async || {
        let found = server.command(&["FUNCTION", "LIST"]).await.unwrap();
        let text = format!("{found:?}");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut names: Vec<_> =
            words.filter(|w| w.starts_with("trellis_") && w.len() == other.len()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    };
    let store = RedisStore::open(options.clone()).await.unwrap();
    store.history().await.unwrap();
    assert_eq!(libraries().await.len(), 2, "this build's stands beside it");
    assert_eq!(server.text(&["FCALL", &format!("{other}_admit"), "0"]).await, "other");
    let key = format!("{}:libraries", options.prefix);
    let listed: Vec<String> =
        redis::from_redis_value(server.command(&["ZRANGE", &key, "0", "-1"]).await.unwrap()).unwrap();
    let [own] = &listed[..] else { panic!("{listed:?}") };
    // A process of the other build was there a minute ago, or an hour ago on a day that is over.
    let now: u64 = {
        let time: Vec<String> = redis::from_redis_value(server.command(&["TIME"]).await.unwrap()).unwrap();
        time[0].parse::<u64>().unwrap() * 1_000
    };
    for (age_min, left) in [(1, 2), (24 * 60 + 1, 1)] {
        let at = (now - age_min * 60_000).to_string();
        server.command(&["ZADD", &key, &at, other]).await.unwrap();
        // This one's own is in use, whatever is said.
        server.command(&["ZADD", &key, "1", own]).await.unwrap();
        let store = RedisStore::open(options.clone()).await.unwrap();
        store.history().await.unwrap();
        assert_eq!(libraries().await.len(), left, "{age_min}");
    }
    assert_eq!(libraries().await, std::slice::from_ref(own));
    let listed = server.command(&["ZCARD", &key]).await.unwrap();
    assert_eq!(listed, redis::Value::Int(1));
    // Who comes back to one that is gone puts it there again.
    server.command(&["FUNCTION", "DELETE", own]).await.unwrap();
    store.usage(&"t/u".parse().unwrap()).await.unwrap();
    assert_eq!(libraries().await, std::slice::from_ref(own));
}
