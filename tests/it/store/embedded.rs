//! Tests of what only the embedded store has: its folder, restarts, kills, the bus in the same database.

use crate::recovery::mixed_builds::set_format;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::bus::{Bus, WhenEmpty};
use trellis::domain::format::{FORMAT, FormatError};
use trellis::domain::ids::{EventId, Owner, SessionKey, sha256_hex};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::embedded::{EmbeddedStore, StoreOpenError};
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore, InjectedFault};
use trellis::store::{
    Admit, DocEffect, DocWrite, DocumentStore, EventKind, Expect, Grant, Intake, LeaseOutcome, LeaseRequest, LeaseUse,
    NewEvent, OutboxEntry, ReleaseOutcome, Store, StoreError, StoreInspection, WriteOutcome, keys,
};

const NOW: Millis = Millis(1_700_000_000_000);
/// Variable with the folder that the child process writes to.
const CHILD_DIR: &str = "TRELLIS_TEST_STORE_CHILD";
/// Variable with the size of the body of each message that the child publishes, in bytes; 0 by default.
const CHILD_BODY: &str = "TRELLIS_TEST_STORE_BODY";

fn owner() -> Owner {
    "acme/ann".parse().unwrap()
}

fn session(name: &str) -> SessionKey {
    SessionKey { agent: "clerk".parse().unwrap(), session: name.parse().unwrap() }
}

fn put(key: &str, value: impl Into<Bytes>) -> DocWrite {
    DocWrite { key: key.to_owned(), expect: Expect::Any, change: DocEffect::Put(value.into()) }
}

/// Opens the store of a folder, with an agent `clerk` that runs one session at a time and queues what arrives.
async fn open_store(dir: &Path) -> Arc<EmbeddedStore> {
    let store = EmbeddedStore::open(dir).unwrap();
    let gate = put(&keys::agent_gate(&session("x").agent), "ACTIVE 1 1000000 queue");
    assert_eq!(store.write(NOW, &owner(), &[gate]).await.unwrap(), WriteOutcome::Done);
    store
}

/// Makes the admission of message `id` to the session `to`, with a request for the lease; without an id the request
/// alone.
fn admit(to: &str, id: Option<&str>) -> Admit {
    let event = id.map(|id| NewEvent {
        id: EventId::new(id).unwrap(),
        body_hash: sha256_hex(id.as_bytes()),
        kind: EventKind::Message,
        job: None,
        order: "0001".to_owned(),
        body: Bytes::from_static(b"{}"),
        open: None,
        finish: None,
        outbox: vec![OutboxEntry { id: format!("out-{id}"), message: Bytes::from_static(b"m") }],
        quota: None,
        may_replace: false,
    });
    let token = uuid::Uuid::new_v4().to_string();
    let ttl = Duration::from_secs(30);
    let lease = LeaseRequest { token, worker: "w1".into(), ttl, mailbox_limit: 9, crash_limit: 5, owner_cap: 0 };
    Admit { owner: owner(), session: session(to), event, lease: Some(lease) }
}

/// Makes a request whose lease must be granted.
async fn acquire_lease(store: &impl Store, request: &Admit) -> Grant {
    match store.admit(NOW, request).await.unwrap().lease {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Returns all keys and values in the database of a store.
fn records(dir: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let database = fjall::Database::builder(dir.join("db")).open().unwrap();
    let all = ["docs", "mail", "core", "queue"].into_iter().flat_map(|name| {
        let keyspace = database.keyspace(name, fjall::KeyspaceCreateOptions::default).unwrap();
        let all: Vec<_> = keyspace.iter().map(|item| item.into_inner().unwrap()).collect();
        all.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec()))
    });
    all.collect()
}

#[tokio::test]
async fn a_store_that_this_build_cannot_work_on_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path()).await;
    acquire_lease(&*store, &admit("main", Some("e1"))).await;
    set_format(&*store, FORMAT + 2).await;
    drop(store);
    let before = records(dir.path());
    assert!(
        before.iter().any(|(_, value)| String::from_utf8_lossy(value).contains("\"w1\"")),
        "a session that is held"
    );
    for _ in 0..2 {
        let refused = EmbeddedStore::open(dir.path()).err().unwrap();
        assert!(matches!(&refused, StoreOpenError::Format(FormatError::Newer { found, .. }) if *found == FORMAT + 2));
        assert_eq!(records(dir.path()), before);
    }
}

#[tokio::test]
async fn a_restart_voids_leases_and_makes_work_due() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path()).await;
    acquire_lease(&*store, &admit("main", Some("e1"))).await;
    assert_eq!(store.admit(NOW, &admit("next", Some("e2"))).await.unwrap().lease, LeaseOutcome::Waiting);
    drop(store);

    let store = EmbeddedStore::open(dir.path()).unwrap();
    let swept = store.sweep(NOW, &owner(), Duration::from_secs(5), 10).await.unwrap();
    assert_eq!(swept.due, [session("main")]);
    let ids: Vec<_> = swept.outbox.iter().map(|e| e.id.as_str()).collect();
    assert_eq!(&ids[..2], ["out-e1", "out-e2"], "the process that was to publish them is gone");
    assert!(ids[2].starts_with("wake-"), "the lapsed lease left a slot for the waiting: {ids:?}");
    // Sessions that waited before the restart still go first.
    assert_eq!(store.admit(NOW, &admit("main", None)).await.unwrap().lease, LeaseOutcome::Waiting);
    let next = acquire_lease(&*store, &admit("next", None)).await;
    let then = LeaseUse::Release { arrivals: 1, due: None, backoff: false };
    let ReleaseOutcome::Done(given_back) = store.release(NOW, &next.lease, then).await.unwrap() else {
        panic!("expected to be the holder")
    };
    assert_eq!(given_back.wakes().len(), 1, "`main` waits");
    let main = acquire_lease(&*store, &admit("main", None)).await;
    assert_eq!((main.lease.epoch, main.mailbox[0].crashes), (NOW.0 + 1, 1), "it was not released: a crash");
    let [crash] = main.attempts.as_slice() else { panic!("one crash, got {:?}", main.attempts) };
    assert_eq!((&*crash.worker, crash.epoch, crash.lapsed), ("w1", NOW.0, NOW));
    let again = store.admit(NOW, &admit("main", Some("e1"))).await.unwrap();
    assert_eq!(again.intake, Intake::Duplicate);
}

#[tokio::test]
async fn a_second_opener_is_told_who_holds_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path()).await;
    let error = EmbeddedStore::open(dir.path()).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, StoreOpenError::Store(StoreError::Unavailable { .. })), "{text}");
    assert!(text.contains(&format!("process {} holds the folder", std::process::id())), "{text}");
    drop(store);
    open_store(dir.path()).await;
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let text = EmbeddedStore::open(&file.join("store")).err().unwrap().to_string();
    assert!(text.contains("can't create its folder") && text.contains("file/store"), "{text}");
}

#[tokio::test]
async fn deleted_documents_are_forgotten_after_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path()).await;
    let delete = |key: &str| DocWrite { change: DocEffect::Delete, ..put(key, "") };
    let day = Duration::from_hours(24);
    store.write(NOW, &owner(), &[put("w/a", "1"), put("w/b", "1")]).await.unwrap();
    store.write(NOW, &owner(), &[delete("w/a"), delete("w/b")]).await.unwrap();
    store.write(NOW, &owner(), &[put("w/b", "2")]).await.unwrap();
    let after = NOW.plus(day + Duration::from_secs(1));
    store.sweep(after, &owner(), day, 10).await.unwrap();
    let docs = store.read(&owner(), &["w/a".into(), "w/b".into()]).await.unwrap();
    assert_eq!((docs[0].version, docs[1].version), (0, 3));
}

#[tokio::test]
async fn a_faulty_store_fails_before_or_after_applying() {
    let dir = tempfile::tempdir().unwrap();
    let store = FaultyStore::new(open_store(dir.path()).await, FaultPlan::Nth { n: 2, at: FaultAt::Before });
    let write = async |key: &str| store.write(NOW, &owner(), &[put(key, "1")]).await.is_ok();
    let version = async |key: &str| store.read(&owner(), &[key.to_owned()]).await.unwrap()[0].version;
    assert_eq!((write("w/a").await, write("w/b").await, write("w/b").await), (true, false, true));
    assert_eq!((version("w/a").await, version("w/b").await, store.count_calls()), (1, 1, 3));
    assert_eq!(store.injected_faults(), [InjectedFault { call: 2, method: "write", at: FaultAt::Before }]);
    store.set_plan(FaultPlan::From { n: 1, at: FaultAt::After });
    assert_eq!((write("w/c").await, write("w/d").await), (false, false));
    assert_eq!((version("w/c").await, version("w/d").await), (1, 0));
}

#[tokio::test]
async fn completions_and_replies_reach_listeners_without_an_outbox() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path()).await;
    let bus = EmbeddedBus::new(store, Duration::from_secs(30), Clock::system()).unwrap();
    let to = |to: MessageAddress| BusMessage { to, id: Some("o".into()), body: json!({"n": 1}), trace: None };
    let out = to(MessageAddress::Out { owner: owner(), agent: "clerk".parse().unwrap(), job: "7".into() });
    let reply = to(MessageAddress::Reply("_INBOX.a".into()));
    let task = to(MessageAddress::In { owner: owner(), agent: "clerk".parse().unwrap(), kind: InboundKind::Task });
    bus.publish(&out).await.unwrap();
    let mut outbound = bus.listen_outbound();
    let mut replies = bus.listen(&trellis::bus::LiveSubject::Reply("_INBOX.a".into())).await.unwrap();
    for message in [&out, &reply, &task] {
        bus.publish(message).await.unwrap();
    }
    let told: BusMessage = serde_json::from_slice(&outbound.next().await.unwrap()).unwrap();
    assert_eq!(told, out);
    assert_eq!(replies.next().await.as_deref(), Some(&br#"{"n":1}"#[..]));
    assert_eq!([&out, &reply, &task].map(|message| bus.has_outside_listeners(&message.to)), [false, false, true]);
}

/// Returns at least `size` bytes of text that don't compress.
fn noise(size: usize) -> String {
    (0..size.div_ceil(64)).map(|n| sha256_hex(&n.to_be_bytes())).collect()
}

/// Runs only as the child of the tests below, which kill it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let store = open_store(Path::new(&dir)).await;
    let bus = EmbeddedBus::new(store.clone(), Duration::from_secs(30), Clock::system()).unwrap();
    let size = std::env::var(CHILD_BODY).map_or(0, |text| text.parse().unwrap());
    let run = std::process::id();
    let append = |writer: u64| {
        let (store, bus) = (store.clone(), bus.clone());
        async move {
            for n in 0u64.. {
                let id = format!("{run}-{writer}-{n}");
                let to = format!("s{writer}");
                store.admit(NOW, &Admit { lease: None, ..admit(&to, Some(&id)) }).await.unwrap();
                let message: BusMessage = serde_json::from_value(json!({
                    "to": {"in": {"owner": "acme/ann", "agent": "clerk", "kind": "task"}}, "id": id, "body": noise(size),
                }))
                .unwrap();
                bus.publish(&message).await.unwrap();
                println!("ack {id}");
            }
        }
    };
    futures::future::join_all((0..16).map(append)).await;
}

/// Lets a child process write to `dir` until at least `count` ids are acknowledged, kills it, and returns these ids.
/// Each message has a body of `body_size` bytes.
fn run_and_kill_child(dir: &Path, count: usize, body_size: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::embedded::child_process_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_BODY, body_size.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acks: Vec<String> = Vec::new();
    while acks.len() < count {
        let line = lines.next().expect("the child lives until it is killed");
        acks.extend(line.split_once("ack ").map(|(_, id)| id.to_owned()));
    }
    // `Child::kill` is SIGKILL.
    child.kill().unwrap();
    // The last line may be cut short by the kill.
    let mut rest: Vec<_> = lines.filter_map(|line| line.strip_prefix("ack ").map(str::to_owned)).collect();
    rest.pop();
    acks.append(&mut rest);
    child.wait().unwrap();
    acks
}

/// Runs only as the child of the test below, which lets it write no more.
#[tokio::test]
async fn child_process_writes_until_its_disk_is_full() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let store = open_store(Path::new(&dir)).await;
    let append = async |n: u64| {
        let id = format!("e{n}");
        let appended = store.admit(NOW, &Admit { lease: None, ..admit("main", Some(&id)) }).await;
        if appended.is_ok() {
            println!("ack {id}");
        }
        appended
    };
    for n in 0.. {
        if let Err(error) = append(n).await {
            println!("refused {error}");
            println!("again {}", append(n + 1).await.is_ok());
            let shown = store.sessions(&owner(), None, None, 9).await.unwrap();
            println!("shown {}", shown[0].mailbox.len());
            return;
        }
    }
}

#[tokio::test]
async fn a_failed_write_stops_later_ones_and_keeps_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    // The signal SIGXFSZ, of a file over its limit, would end the child; without it the write fails.
    let mut child = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "store::embedded::child_process_writes_until_its_disk_is_full", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acks = Vec::new();
    let mut said = |word: &str| {
        lines.find_map(|line| {
            acks.extend(line.split_once("ack ").map(|(_, id)| id.to_owned()));
            line.split_once(word).map(|(_, rest)| rest.to_owned())
        })
    };
    for _ in 0..20 {
        said("ack ").expect("the child writes");
    }
    let pid = child.id().to_string();
    assert!(Command::new("prlimit").args(["--fsize=1", "--pid", &pid]).status().unwrap().success());
    let refused = said("refused ").expect("a write fails");
    assert!(refused.contains("store"), "{refused}");
    assert_eq!(said("again ").as_deref(), Some("false"), "what came after was decided on top of it");
    let shown: usize = said("shown ").expect("reading goes on").parse().unwrap();
    child.wait().unwrap();
    assert_eq!(shown, acks.len(), "nothing is shown that could be lost");
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let facts = store.sessions(&owner(), None, None, 9).await.unwrap();
    let kept: HashSet<_> = facts[0].mailbox.iter().map(|event| &*event.key).collect();
    let lost: Vec<_> = acks.iter().filter(|id| !kept.contains(&*format!("0001|{id}"))).collect();
    assert!(lost.is_empty() && facts[0].arrivals == kept.len() as u64, "{lost:?}");
}

/// Panics unless each acknowledged id is an event in the store and a message in the queue, and no admission is half
/// done.
async fn assert_nothing_lost(store: &Arc<EmbeddedStore>, acks: &[String], when: &str) {
    let facts = store.sessions(&owner(), None, None, 100).await.unwrap();
    let kept: HashSet<_> = facts.iter().flat_map(|f| &f.mailbox).map(|e| &*e.key).collect();
    let bus = EmbeddedBus::new(Arc::clone(store), Duration::from_secs(30), Clock::system()).unwrap();
    let queued: HashSet<_> = bus.in_transit().await.unwrap().into_iter().collect();
    for id in acks {
        assert!(kept.contains(&*format!("0001|{id}")), "{when}: event {id} is lost");
        assert!(queued.contains(id), "{when}: message {id} is lost");
    }
    for facts in &facts {
        assert_eq!(facts.arrivals, facts.mailbox.len() as u64, "{when}: no half of an admission");
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=3 {
        let dir = dir.path().join(round.to_string());
        let acks = run_and_kill_child(&dir, 500 * round, 0);
        let store = EmbeddedStore::open(&dir).unwrap();
        assert_nothing_lost(&store, &acks, &format!("round {round}")).await;
    }
}

#[tokio::test]
async fn one_folder_survives_kill_after_kill() {
    const KILLS: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    let mut acks = Vec::new();
    for round in 1..=KILLS {
        acks.append(&mut run_and_kill_child(dir.path(), 100, 16 * 1024));
        let store = EmbeddedStore::open(dir.path()).unwrap();
        assert_nothing_lost(&store, &acks, &format!("kill {round}")).await;
    }
    assert!(acks.len() >= 100 * KILLS, "over 5 MB of text were written");
}

#[tokio::test]
async fn the_queue_lives_by_the_clock_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Millis(5_000));
    let bus = EmbeddedBus::new(open_store(dir.path()).await, Duration::from_hours(1), clock.clone()).unwrap();
    let to =
        MessageAddress::In { owner: "acme/ann".parse().unwrap(), agent: "a".parse().unwrap(), kind: InboundKind::Task };
    bus.publish(&BusMessage { to, id: Some("e1".into()), body: json!({}), trace: None }).await.unwrap();
    let first = bus.receive(8, WhenEmpty::Wait).await.unwrap();
    assert_eq!((first.len(), first[0].published, first[0].delivered), (1, Millis(5_000), 1));
    // A receiver waits already when the time for the acknowledgement ends.
    let waiting = bus.clone();
    let again = tokio::spawn(async move {
        loop {
            let got = waiting.receive(8, WhenEmpty::Wait).await.unwrap();
            if !got.is_empty() {
                return got;
            }
        }
    });
    clock.advance(Duration::from_mins(59));
    tokio::task::yield_now().await;
    assert!(!again.is_finished());
    clock.advance(Duration::from_mins(1));
    let second = again.await.unwrap();
    assert_eq!((second.len(), second[0].delivered), (1, 2));
    second[0].settle.nak(Duration::from_mins(1)).await;
    clock.advance(Duration::from_mins(1));
    assert_eq!(bus.receive(8, WhenEmpty::Wait).await.unwrap()[0].delivered, 3);
}
