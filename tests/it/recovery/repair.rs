//! `audit --repair`: what is missing for good gets an end, what moves is left alone.

use crate::support::cli::{Up, run};
use crate::support::operate::{boss, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::time::Duration;
use trellis::domain::event::{Mandate, Submission};
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{ErrorCode, JobStatus};
use trellis::domain::principal::Principal;
use trellis::domain::session::{PendingJob, SessionState};
use trellis::domain::shard::Share;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::{DocEffect, DocWrite, EventKind, Expect, SessionFacts, SessionSnapshot, SetSessionOutcome, keys};
use trellis::venue::ingress::{self, Arrival};
use trellis::venue::jobs;
use trellis::venue::operation::Caller;
use trellis::venue::upkeep::audit::{self, AuditWatch};
use trellis::view::audit::RepairView;

const START: Millis = Millis(1_767_225_600_000);
const LATER: Duration = Duration::from_mins(11);
const ECHO: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";

/// Its time passes faster than that of its workers: no lease lapses because of it.
async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (mut venue, dir) = TestVenue::embedded_at(ECHO, Clock::manual(START)).await;
    venue.lease = Duration::from_hours(1);
    (venue, dir)
}

async fn repair(venue: &TestVenue) -> Vec<RepairView> {
    audit::repair(&venue.venue).await.unwrap()
}

async fn session(venue: &TestVenue, agent: &str) -> SessionFacts {
    let agent = agent.parse().unwrap();
    venue.venue.store.sessions(&venue.owner, Some(&agent), None, 10).await.unwrap().remove(0)
}

async fn write(venue: &TestVenue, key: String, change: DocEffect) {
    let write = DocWrite { key, expect: Expect::Any, change };
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_lost_from_its_mailbox_ends_and_the_audit_is_clean() {
    let Some(server) = RedisServer::shared() else { return };
    let (mut venue, _dir, prefix) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
    venue.lease = Duration::from_hours(1);
    venue.agent("helper", json!({})).await;
    let lost = venue.submit("helper", "t1", json!("first")).await;
    let session_id = Some(lost.session.session.clone());
    let other = Submission { input: json!("second"), session_id: session_id.clone(), ..Submission::default() };
    let other = venue.arrive("helper", "t2", true, other).await.job.unwrap();
    let message = Submission { input: json!("third"), session_id, ..Submission::default() };
    venue.arrive("helper", "m1", false, message).await;
    let key = format!("{}:mailbox:{}", RedisServer::base(&prefix, &venue.owner), lost.session.token());
    let mut places = Vec::new();
    if let redis::Value::Array(all) = server.command(&["ZRANGE", &key, "0", "-1"]).await.unwrap() {
        for place in all {
            let redis::Value::BulkString(bytes) = place else { panic!("{place:?}") };
            places.push(String::from_utf8(bytes).unwrap());
        }
    }
    for id in ["t1", "m1"] {
        let place = places.iter().find(|place| place.ends_with(&format!("\0{id}"))).unwrap();
        assert_eq!(server.command(&["ZREM", &key, place]).await.unwrap(), redis::Value::Int(1));
    }
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().unaccounted, 2);
    assert_eq!(repair(&venue).await, [], "it may be moving");
    venue.venue.clock.advance(LATER);
    let job = lost.job.unwrap();
    let repaired = repair(&venue).await;
    assert_eq!(repaired.len(), 2, "{repaired:?}");
    assert!(repaired[0].found.contains(job.as_str()) && repaired[0].owner == "local/me", "{repaired:?}");
    assert!(repaired[0].did.contains("put back"), "{repaired:?}");
    let books = audit::audit_all(&venue.venue).await.unwrap();
    assert_eq!((books.failed, books.pending, books.unaccounted), (0, 2, 0), "{books:?}");
    assert_eq!(repair(&venue).await, [], "once");
    // The same again is the same job.
    let again = venue.submit("helper", "t1", json!("first")).await;
    assert!(again.duplicate && again.job.as_ref() == Some(&job));
    venue.worker();
    for id in [job, other] {
        assert_eq!(until_ended(&venue, &id).await, (JobStatus::Complete, None), "it runs");
    }
}

/// How a job ends; time passes meanwhile.
async fn until_ended(venue: &TestVenue, job: &JobId) -> (JobStatus, Option<ErrorCode>) {
    for _ in 0..6_000 {
        let job = jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap();
        if job.status.is_terminal() {
            return (job.status, job.result.and_then(|result| result.error_code));
        }
        venue.venue.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it doesn't end");
}

/// A task of which everything is there but its place in a mailbox.
pub async fn lost(venue: &TestVenue, id: &str, values: serde_json::Value) -> JobId {
    let session_context = serde_json::from_value(values).unwrap();
    let arrival = Arrival {
        owner: venue.owner.clone(),
        agent: "helper".parse().unwrap(),
        task: true,
        id: id.parse().unwrap(),
        submission: Submission { input: json!(id), session_context, ..Submission::default() },
        received: venue.venue.now(),
        sequence: 0,
        by: Principal::ANYBODY,
        may_override: false,
        trace: None,
    };
    let admit = ingress::admission(&venue.venue, &arrival).unwrap();
    let open = admit.event.unwrap().open.unwrap();
    let status = keys::encode_status(JobStatus::Pending, venue.venue.now());
    write(venue, keys::job_head(&open.job), DocEffect::Put(open.head)).await;
    write(venue, keys::job_status(&open.job), DocEffect::Put(status.into())).await;
    write(venue, keys::job_list_entry(arrival.received, &open.job), DocEffect::Put("".into())).await;
    open.job
}

async fn losses_are_found_and_repaired(mut venue: TestVenue) {
    venue.lease = Duration::from_hours(1);
    venue.agent("helper", json!({})).await;
    // What is there isn't touched.
    let there = venue.submit("helper", "there", json!("x")).await.job.unwrap();
    let (whole, secret) = (lost(&venue, "whole", json!({})).await, lost(&venue, "values", json!({"pin": 1})).await);
    let (mut watch, all) = (AuditWatch::default(), Share::default());
    let mut look = async || {
        let mut found = Vec::new();
        watch.check_share(&venue.venue, &all, &mut found).await.unwrap();
        found
    };
    assert_eq!(look().await, [], "it may be moving");
    venue.venue.clock.advance(Duration::from_secs(21));
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().unaccounted, 2);
    let looked = look().await;
    assert_eq!(looked.len(), 2, "{looked:?}");
    assert_eq!(look().await, []);
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().unaccounted, 0);
    assert_eq!(until_ended(&venue, &secret).await, (JobStatus::Failed, Some(ErrorCode::Lost)), "its values are gone");
    venue.worker();
    for id in [there, whole] {
        assert_eq!(until_ended(&venue, &id).await, (JobStatus::Complete, None));
    }
    assert!(venue.venue.metrics.encode().contains("trellis_unaccounted 0"), "{}", venue.venue.metrics.encode());
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_are_found_and_repaired_on_an_embedded_store() {
    let (venue, _dir) = venue().await;
    losses_are_found_and_repaired(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_are_found_and_repaired_on_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _) = TestVenue::redis_at(server, ECHO, Clock::manual(START)).await;
    losses_are_found_and_repaired(venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_repairs_losses_within_a_minute() {
    let (mut venue, _dir) = venue().await;
    venue.audit = Duration::from_secs(20);
    venue.agent("helper", json!({})).await;
    venue.worker();
    let job = lost(&venue, "t", json!({})).await;
    measured(&venue, 1).await;
    assert_eq!(until_ended(&venue, &job).await, (JobStatus::Complete, None));
    assert!(
        venue.venue.now().elapsed_since(START) < Duration::from_mins(1),
        "{:?}",
        venue.venue.now().elapsed_since(START)
    );
    measured(&venue, 0).await;
}

/// Waits until the metric of what is lost says so; time passes meanwhile.
async fn measured(venue: &TestVenue, unaccounted: usize) {
    let line = format!("trellis_unaccounted {unaccounted}\n");
    for _ in 0..6_000 {
        if venue.venue.metrics.encode().contains(&line) {
            return;
        }
        venue.venue.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never says {line}: {}", venue.venue.metrics.encode());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_order_a_repair_and_sees_its_report() {
    let (venue, _dir) = venue().await;
    venue.agent("helper", json!({})).await;
    let job = lost(&venue, "t", json!({})).await;
    venue.venue.clock.advance(LATER);
    let operator = Caller { operator: true, ..boss(&venue.owner) };
    let audit = async |input| operate(&venue.venue, &operator, "v/ops/venue/audit", input).await.unwrap();
    let seen = audit(json!({})).await;
    assert_eq!((&seen["unaccounted"], seen["repaired"].as_array().map_or(0, Vec::len)), (&json!(1), 0), "{seen}");
    let repaired = audit(json!({"repair": true})).await;
    let did = &repaired["repaired"][0];
    assert!(did["found"].as_str().unwrap().contains(job.as_str()), "{repaired}");
    assert!(did["did"].as_str().unwrap().contains("put back"), "{repaired}");
    assert_eq!(repaired["unaccounted"], 0, "{repaired}");
    venue.worker();
    assert_eq!(until_ended(&venue, &job).await, (JobStatus::Complete, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_a_session_waits_for_is_sent_again() {
    let (venue, _dir) = venue().await;
    venue.agent("helper", json!({})).await;
    venue.agent("parent", json!({})).await;
    venue.worker();
    let child = venue.run("helper", "t", json!("x")).await.head.id;
    venue.shutdown.trigger();
    let gone = JobId::new(&"0f".repeat(16)).unwrap();
    let pending = [&child, &gone].map(|job| {
        let under = Some(Mandate::default());
        (job.clone(), PendingJob { agent: "helper".parse().unwrap(), started: START, under, frame: 0 })
    });
    let state = SessionState { pending: pending.into(), ..SessionState::default() };
    let snapshot = SessionSnapshot { version: 1, state: serde_json::to_vec(&state).unwrap().into(), quota: None };
    let key = SessionKey { agent: "parent".parse().unwrap(), session: "s".parse().unwrap() };
    let outcome =
        venue.venue.store.set_session(venue.venue.now(), &venue.owner, &key, Some(&snapshot), &[]).await.unwrap();
    assert_eq!(outcome, SetSessionOutcome::Done);
    assert_eq!(repair(&venue).await, [], "it may be on its way");
    venue.venue.clock.advance(LATER);
    let repaired = repair(&venue).await;
    assert_eq!(repaired.len(), 2, "{repaired:?}");
    let facts = session(&venue, "parent").await;
    let results = facts.mailbox.iter().filter(|entry| entry.kind == EventKind::Result);
    let mut results: Vec<_> = results.map(|entry| entry.job.clone().unwrap()).collect();
    results.sort();
    let mut wanted = vec![child, gone];
    wanted.sort();
    assert_eq!(results, wanted);
    assert_eq!(repair(&venue).await, [], "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_has_ended_and_places_without_documents_go() {
    let (venue, _dir) = venue().await;
    venue.agent("helper", json!({})).await;
    let job = venue.submit("helper", "t", json!("x")).await.job.unwrap();
    let status = keys::encode_status(JobStatus::Cancelled, venue.venue.now());
    write(&venue, keys::job_status(&job), DocEffect::Put(status.into())).await;
    let none = JobId::new(&"0f".repeat(16)).unwrap();
    write(&venue, keys::job_list_entry(START, &none), DocEffect::Put("".into())).await;
    let due = format!("{}{:016}-{none}", keys::TIMERS_DUE, START.0);
    write(&venue, due.clone(), DocEffect::Put("".into())).await;
    venue.venue.clock.advance(LATER);
    let repaired = repair(&venue).await;
    assert_eq!(repaired.len(), 3, "{repaired:?}");
    for key in [keys::job_list_entry(START, &none), due] {
        let doc = venue.venue.store.read(&venue.owner, &[key]).await.unwrap().remove(0);
        assert_eq!(doc.value, None);
    }
    venue.worker();
    for _ in 0..6_000 {
        if session(&venue, "helper").await.mailbox.is_empty() {
            assert_eq!(venue.model_calls().len(), 0, "it never ran");
            return;
        }
        venue.venue.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the task stays in the mailbox");
}

/// The books of a running venue that lack something, and put right by the command beside it.
#[test]
fn the_command_repairs_a_running_venue_and_lists_repairs() {
    // Its workers look by themselves no more often than once a day.
    let mut up = Up::start_with(&["worker.audit=1d"]);
    up.agent("helper", "echo");
    up.process.signal("TERM");
    up.process.ended();
    let data = up.dir.path().join("data");
    let losing = async {
        let venue = TestVenue::reopened(&data, "", Clock::manual(START)).await;
        [lost(&venue, "whole", json!({})).await, lost(&venue, "values", json!({"pin": 1})).await]
    };
    let [whole, values] = tokio::runtime::Runtime::new().unwrap().block_on(losing);
    up.start_again();
    for _ in 0..2 {
        let seen = up.run(&["audit"]).expect(1, &format!("missing: job {whole} (PENDING)"));
        assert!(seen.out.contains("unaccounted = 2") && !seen.err.contains("repaired"), "to look is no more: {seen:?}");
    }
    // The folder is held: the process that holds it is asked, as it is by its address.
    let listen = format!("http.listen={}", up.url.trim_start_matches("http://"));
    let beside = ["audit", "--repair", "--set", "store.url=embedded:data", "--set", &listen];
    let done = run(up.dir.path(), &beside).expect(0, "");
    assert!(done.out.contains("unaccounted = 0") && done.out.contains("failed = 1"), "{done:?}");
    let said = |job: &JobId, did: &str| {
        let of = |line: &&str| line.starts_with("repaired: local/me: ") && line.contains(job.as_str());
        assert!(done.err.lines().find(of).is_some_and(|line| line.contains(did)), "{}", done.err);
    };
    said(&whole, "put back");
    said(&values, "it is FAILED with LOST");
    // What was put back runs; what could not be is told.
    assert_eq!(up.run(&["job", "wait", whole.as_str(), "--timeout", "60s"]).ok(), "whole");
    up.run(&["job", "wait", values.as_str()]).expect(3, "FAILED (LOST)");
    let again = up.run(&["audit", "--repair", "--url", &up.url]).expect(0, "");
    assert!(again.out.contains("unaccounted = 0") && again.err.is_empty(), "once: {again:?}");
}

#[test]
fn the_command_repairs_and_lists_repairs() {
    let mut up = Up::start();
    up.process.signal("TERM");
    up.process.ended();
    let out = run(up.dir.path(), &["audit", "--repair", "--output", "json", "--data", "data"]).ok();
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&shown["unaccounted"], &shown["repaired"]), (&json!(0), &json!([])));
}
