//! New work is refused while there is room left for what was accepted to end.

use crate::support::cli::Up;
use crate::support::http::Server;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trellis::domain::event::Submission;
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::job::JobStatus;
use trellis::domain::job::Parent;
use trellis::domain::limits::STORE_LOOK;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::principal::Principal;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{Accounts, DocEffect, DocWrite, DocumentStore, Expect, StoreError};
use trellis::venue::ingress::{Arrival, SubmitError, submit};
use trellis::venue::upkeep::doctor;

const RULES: &str = r#"
[[rule]]
when = { agent = "slow", turn = 1 }
then = { calls = [{ tool = "test_delay", arguments = { delay = 2500 } }] }

[[rule]]
then = { text = "done" }
"#;

fn arrival(venue: &TestVenue, id: &str, submission: Submission) -> Arrival {
    Arrival {
        owner: venue.owner.clone(),
        agent: "slow".parse().unwrap(),
        task: true,
        id: EventId::new(id).unwrap(),
        submission,
        received: venue.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
        trace: None,
    }
}

async fn fill(venue: &TestVenue, change: DocEffect) {
    // One by one: the server counts what it is sent, too.
    for n in 0..19 {
        let write = DocWrite { key: format!("w/ballast/{n}"), expect: Expect::Any, change: change.clone() };
        venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
    }
    // A look is a second old at most.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
}

/// What of these arguments an operation knows.
fn only(operation: &str, mut input: serde_json::Value) -> serde_json::Value {
    let known: &[&str] = match operation {
        "v/ops/lattice/append" => &["path", "value"],
        "v/ops/lattice/read" => &["path"],
        "v/ops/agent/request" => &["agentId", "input"],
        _ => &[],
    };
    input.as_object_mut().unwrap().retain(|key, _| known.contains(&key.as_str()));
    input
}

#[tokio::test(flavor = "multi_thread")]
async fn new_work_stops_at_four_fifths_of_the_memory_of_redis() {
    let Some(server) = RedisServer::start() else { return };
    let (venue, _dir, _) = TestVenue::redis_at(&server, RULES, Clock::system()).await;
    venue.agent("slow", json!({"tools": ["v/ops/test/delay"]})).await;
    venue.worker();
    server.command(&["CONFIG", "SET", "maxmemory", "24mb"]).await.unwrap();
    let running = venue.submit("slow", "t1", json!("running")).await.job.unwrap();
    while trellis::venue::jobs::get(&venue.venue, &venue.owner, &running).await.unwrap().unwrap().status
        == JobStatus::Pending
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fill(&venue, DocEffect::Put(vec![b'x'; 1_000_000].into())).await;
    let level = venue.venue.store_fill().await;
    assert!(level.is_tight() && level.percent().unwrap() < 100, "{level}");

    // Over HTTP and from timers: refused, and not before the server is full.
    let error = submit(&venue.venue, &arrival(&venue, "t2", Submission::default())).await.unwrap_err();
    assert!(matches!(&error, SubmitError::Store(StoreError::Full { .. })), "{error}");
    assert!(error.to_string().contains("from 80 % on no new work is taken"), "{error}");
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let refused = api.post("/api/v1/agents/slow/tasks", json!({"input": 1})).await;
    assert_eq!(refused.header("retry-after"), "30");
    refused.is_problem(503, "from 80 %");
    // Each of them would make a record of a job, also of what only reads.
    for operation in ["v/ops/lattice/append", "v/ops/lattice/read", "v/ops/agent/request", "v/ops/agent/list"] {
        let input = json!({"path": "w/log", "value": 1, "agentId": "slow", "input": 1});
        let known = api.post("/api/v1/invoke", json!({"operation": operation, "input": only(operation, input)})).await;
        assert_eq!(known.header("retry-after"), "30", "{operation}");
        known.is_problem(503, "from 80 %");
    }
    let run = json!({"operation": "v/ops/lattice/append", "input": {"path": "w/log", "value": 1}});
    assert_eq!(api.post("/api/v1/run", run).await.status, 200, "what makes no job is done");
    assert!(venue.venue.metrics.encode().contains("trellis_store_fill_ratio"));
    let found = doctor::examine(&venue.venue).await.unwrap();
    assert!(found.advice(true).iter().any(|line| line.starts_with("redis memory is `")), "{:?}", found.advice(true));

    // Over the queue: it stays there.
    let to = MessageAddress::In { owner: venue.owner.clone(), agent: "slow".parse().unwrap(), kind: InboundKind::Task };
    let queued = BusMessage { to, id: Some("q1".into()), body: json!({"input": "queued"}), trace: None };
    venue.venue.bus.publish(&queued).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let id = JobId::derive(&venue.venue.key, &venue.owner, &EventId::new("q1").unwrap());
    assert_eq!(trellis::venue::jobs::get(&venue.venue, &venue.owner, &id).await.unwrap(), None);

    // What runs commits, what a turn has begun is let in, and what is in the way can be deleted.
    assert_eq!(venue.ended(&running).await.status, JobStatus::Complete);
    let session = trellis::domain::ids::SessionKey { agent: "slow".parse().unwrap(), session: "p".parse().unwrap() };
    let child = Submission { parent: Some(Parent { session, job: None }), ..Submission::default() };
    let child = submit(&venue.venue, &arrival(&venue, "child", child)).await.unwrap().job.unwrap();
    assert_eq!(venue.ended(&child).await.status, JobStatus::Complete);
    fill(&venue, DocEffect::Delete).await;
    assert!(!venue.venue.store_fill().await.is_tight());
    assert_eq!(venue.ended(&venue.submit("slow", "t2", json!(1)).await.job.unwrap()).await.status, JobStatus::Complete);
    for _ in 0..300 {
        if trellis::venue::jobs::get(&venue.venue, &venue.owner, &id).await.unwrap().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(venue.ended(&id).await.status, JobStatus::Complete, "it was in the queue meanwhile");
}

#[test]
fn an_embedded_store_has_the_limit_of_its_configuration() {
    let up = Up::start_with(&["store.max_bytes=1", "quota.bytes=0"]);
    up.agent("clerk", "echo");
    up.run(&["lattice", "write", "w/a", "1"]).ok();
    up.run(&["submit", "clerk", "x"]).expect(8, "from 80 % on no new work is taken");
    let doctor = up.run(&["doctor"]);
    assert!(doctor.out.contains("embedded size"), "{}{}", doctor.out, doctor.err);
}

/// A store with room for a few tables: journals alone may take half of it.
const SMALL: u64 = 256 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_store_takes_work_again_after_deletions() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open_within(dir.path(), Some(SMALL)).unwrap();
    let (owner, now) = ("local/me".parse().unwrap(), trellis::domain::time::Millis(1));
    let mut noise = vec![0; 1 << 20];
    let started = Instant::now();
    let change = async |n: u64, change: DocEffect| {
        let write = DocWrite { key: format!("w/ballast/{n}"), expect: Expect::Any, change };
        store.write(now, &owner, &[write]).await.unwrap();
    };
    let fill = async || store.fill(started.elapsed()).await.unwrap();
    // What is written over fills the disk, too.
    let mut written = 0;
    while !fill().await.is_tight() {
        getrandom::fill(&mut noise).unwrap();
        change(written % 60, DocEffect::Put(noise.clone().into())).await;
        written += 1;
        assert!(written < 5_000, "the store is never full: {}", fill().await);
        if written % 20 == 0 {
            tokio::time::sleep(STORE_LOOK).await;
        }
    }
    for n in 0..60 {
        change(n, DocEffect::Delete).await;
    }
    while fill().await.is_tight() {
        assert!(started.elapsed() < Duration::from_mins(3), "nothing is freed: {}", fill().await);
        tokio::time::sleep(STORE_LOOK).await;
    }
    assert!(fill().await.check_room("s").is_ok());
    let used = fill().await.used;
    assert!(used < SMALL, "{used}");
    // Nothing that is there was lost by it.
    change(7, DocEffect::Put(b"kept".to_vec().into())).await;
    drop(store);
    let store = EmbeddedStore::open_within(dir.path(), Some(SMALL)).unwrap();
    let found = store.read(&owner, &["w/ballast/7".into(), "w/ballast/8".into()]).await.unwrap();
    assert_eq!(found[0].value.as_deref(), Some(&b"kept"[..]));
    assert_eq!(found[1].value, None);
}
