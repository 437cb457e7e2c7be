//! Quotas per owner as users meet them: over HTTP, in the queue, on the command line and in a turn, on both stores.

use crate::support::both_stores::{On, on_both};
use crate::support::cli::Up;
use crate::support::http::{Answer, Server};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::LiveSubject;
use trellis::domain::event::Submission;
use trellis::domain::job::JobStatus;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::quota::{ByteLimit, QuotaKind, QuotaSettings, QuotaUsage};
use trellis::domain::retention::RetentionRules;
use trellis::domain::secret::KeyRing;
use trellis::domain::shard::Share;
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::jobs;
use trellis::venue::quotas;
use trellis::venue::secrets::Vault;
use trellis::venue::upkeep::audit;
use trellis::venue::upkeep::retention::Janitor;

const RULES: &str = r#"
[[rule]]
when = { agent = "writer", turn = 1 }
then = { calls = [
  { tool = "lattice_write", arguments = { path = "w/new/a", value = "12345" } },
  { tool = "agent_request", arguments = { agentId = "a", input = "go", wait = 0 } },
  { tool = "lattice_write", arguments = { path = "w/old/a", value = "1" } },
  { tool = "lattice_delete", arguments = { path = "w/old/b" } },
  { tool = "lattice_write", arguments = { path = "w/old/c", value = "in its place" } },
] }

[[rule]]
when = { agent = "spreader", turn = 1 }
then = { calls = [
  { tool = "agent_request", arguments = { agentId = "a", input = "go", sessionId = "n1", wait = 0 } },
  { tool = "agent_message", arguments = { agentId = "a", message = "go", sessionId = "n2" } },
  { tool = "agent_message", arguments = { agentId = "a", message = "go", sessionId = "s" } },
] }

[[rule]]
when = { agent = "looper", turn = 1 }
then = { calls = [{ tool = "lattice_list", arguments = { path = "w" } }] }

[[rule]]
when = { agent = "seller", turn = 1 }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "ocr", input = 1, wait = 0 } }] }

[[rule]]
then = { text = "done" }
"#;

on_both! {
    an_owner_at_its_quota_hinders_no_other_and_can_delete
    whatever_adds_something_is_refused_and_writes_nothing
    a_queue_submission_over_quota_is_refused_and_may_be_retried
    a_turn_is_told_of_its_owners_quota_and_ends
    a_turn_begins_no_session_beyond_the_quota
    a_job_for_an_external_worker_beyond_the_quota_is_not_watched
    a_task_that_would_be_refused_replaces_nothing
    a_timer_is_replaced_by_one_that_is_as_large
    what_failed_is_driven_again_where_there_is_room
    a_fork_with_its_timeline_beyond_the_quota_leaves_nothing
    retention_and_a_removal_give_back_all_that_was_counted
}

async fn site(on: On) -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir) = on.venue(RULES, Clock::system()).await?;
    let (mut venue, dir) = (venue, dir);
    let keys = KeyRing::parse(&"01".repeat(32)).unwrap();
    Arc::get_mut(&mut venue.venue).unwrap().secrets = Vault::new(keys);
    for agent in ["a", "writer", "spreader"] {
        venue.agent(agent, json!({})).await;
    }
    Some((venue, dir))
}

async fn used(venue: &TestVenue) -> QuotaUsage {
    venue.venue.store.usage(&venue.owner).await.unwrap().used
}

/// Lets the owner keep so much more than it does.
async fn allow(venue: &TestVenue, kind: QuotaKind, more: u64) {
    let limit = Some(used(venue).await.get(kind) + more);
    quotas::set_limits(&venue.venue, &venue.owner, &[(kind, limit)]).await.unwrap();
    // Its own number is a document, too.
    let limit = Some(used(venue).await.get(kind) + more);
    quotas::set_limits(&venue.venue, &venue.owner, &[(kind, limit)]).await.unwrap();
}

async fn lift(venue: &TestVenue) {
    quotas::set_limits(&venue.venue, &venue.owner, &QuotaKind::ALL.map(|kind| (kind, None))).await.unwrap();
}

async fn counts_are_right(venue: &TestVenue) {
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().drift, Vec::<String>::new());
}

fn is_over(answer: &Answer, kind: QuotaKind) {
    answer.is_problem(507, &format!("QUOTA_EXCEEDED: this owner's quota of {}", kind.as_str()));
    assert_eq!(answer.body["code"], "QUOTA_EXCEEDED");
    assert_eq!(answer.header("retry-after"), "", "time alone makes no room");
}

async fn an_owner_at_its_quota_hinders_no_other_and_can_delete(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let run = async |owner: &str, operation: &str, input: Value| {
        let body = json!({"operation": format!("v/ops/lattice/{operation}"), "input": input});
        api.send(Method::POST, "/api/v1/run", &[("x-trellis-owner", owner)], body.to_string()).await
    };
    run("local/me", "write", json!({"path": "w/c/a", "value": "12345"})).await.body(200);
    let shown = api.get("/api/v1/quota").await.body(200);
    let documents = shown["documents"]["used"].as_u64().unwrap();
    assert_eq!((&shown["documents"]["limit"], &shown["documents"]["own"]), (&Value::Null, &json!(false)));
    api.put("/api/v1/quota", json!({"documents": documents + 2})).await.body(200);
    run("local/me", "write", json!({"path": "w/c/b", "value": "1"})).await.body(200);
    is_over(&run("local/me", "write", json!({"path": "w/c/c", "value": "1"})).await, QuotaKind::Documents);
    for (path, value) in [("w/c/a", "1"), ("w/c/a", "longer than it was before")] {
        run("local/me", "write", json!({"path": path, "value": value})).await.body(200);
    }
    for n in 0..3 {
        run("local/you", "write", json!({"path": format!("w/c/{n}"), "value": "1"})).await.body(200);
    }
    run("local/me", "delete", json!({"path": "w/c/b"})).await.body(200);
    run("local/me", "write", json!({"path": "w/c/c", "value": "1"})).await.body(200);
    let shown = api.get("/api/v1/quota").await.body(200);
    assert_eq!(shown["documents"], json!({"used": documents + 2, "limit": documents + 2, "own": true}));
    for (body, part) in [
        (json!({}), "expected `documents`"),
        (json!({"documents": -1}), "-1"),
        (json!({"files": 1}), "files"),
        (json!({"jobs": "many"}), "many"),
    ] {
        api.put("/api/v1/quota", body).await.is_problem(400, part);
    }
    let shown = api.put("/api/v1/quota", json!({"documents": null})).await.body(200);
    assert_eq!(shown["documents"]["own"], false);
    counts_are_right(&venue).await;
}

async fn whatever_adds_something_is_refused_and_writes_nothing(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.worker();
    let session_id = Some("s".parse().unwrap());
    let first = venue.arrive("a", "t1", true, Submission { session_id, ..Submission::default() }).await;
    assert_eq!(venue.ended(&first.job.unwrap()).await.status, JobStatus::Complete);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let task = json!({"input": "x"});
    let asset = json!({"content": "x".repeat(50_000)});
    let timer = json!({"every": "1h", "input": "x"});
    let invoke = |operation: &str, input: Value| json!({"operation": operation, "input": input});
    for (kind, method, path, body) in [
        (QuotaKind::Jobs, Method::POST, "agents/a/tasks", task.clone()),
        (QuotaKind::Sessions, Method::POST, "agents/a/tasks", task.clone()),
        (QuotaKind::Bytes, Method::POST, "agents/a/messages", task.clone()),
        (QuotaKind::Documents, Method::POST, "agents/a/messages", task.clone()),
        (QuotaKind::Jobs, Method::POST, "invoke", invoke("v/ops/lattice/write", json!({"path": "w/x", "value": 1}))),
        (QuotaKind::Jobs, Method::POST, "invoke", invoke("v/ops/lattice/read", json!({"path": "w/x"}))),
        (QuotaKind::Jobs, Method::POST, "run", invoke("v/ops/agent/request", json!({"agentId": "a", "input": 1}))),
        (QuotaKind::Documents, Method::POST, "run", invoke("v/ops/asset/store", asset.clone())),
        (QuotaKind::Bytes, Method::POST, "run", invoke("v/ops/asset/store", asset)),
        (QuotaKind::Documents, Method::PUT, "agents/new", json!({"model": {"provider": "scripted", "name": "echo"}})),
        (QuotaKind::Documents, Method::POST, "agents/a/fork", json!({"to": "copy"})),
        (QuotaKind::Bytes, Method::PATCH, "agents/a", json!({"config": {"systemPrompt": "longer than none"}})),
        (QuotaKind::Sessions, Method::POST, "agents/a/sessions/s/fork", json!({"to": "copy", "at": 1})),
        (QuotaKind::Documents, Method::POST, "agents/a/timers", timer),
        (QuotaKind::Bytes, Method::PUT, "secrets/mail", json!({"value": "hunter2hunter2"})),
    ] {
        allow(&venue, kind, 0).await;
        let before = used(&venue).await;
        let answer = api.send(method, &format!("/api/v1/{path}"), &[], body.to_string()).await;
        assert_eq!(answer.status.as_u16(), 507, "{kind:?} {path}: {}", answer.body);
        is_over(&answer, kind);
        assert_eq!(used(&venue).await, before, "{kind:?} {path}");
        lift(&venue).await;
    }
    allow(&venue, QuotaKind::Bytes, 0).await;
    for verb in ["suspend", "resume"] {
        assert!(api.put(&format!("/api/v1/agents/a/{verb}"), json!({})).await.status.is_success(), "{verb}");
    }
    lift(&venue).await;
    // What is there already is stored again as before.
    api.post("/api/v1/run", invoke("v/ops/asset/store", json!({"content": "kept"}))).await.body(200);
    allow(&venue, QuotaKind::Documents, 0).await;
    api.post("/api/v1/run", invoke("v/ops/asset/store", json!({"content": "kept"}))).await.body(200);
    counts_are_right(&venue).await;
}

async fn a_queue_submission_over_quota_is_refused_and_may_be_retried(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.worker();
    let bus = &venue.venue.bus;
    let mut answers = bus.listen(&LiveSubject::Reply("_INBOX.quota.1".into())).await.unwrap();
    quotas::set_limits(&venue.venue, &venue.owner, &[(QuotaKind::Documents, Some(1))]).await.unwrap();
    let to = MessageAddress::In { owner: venue.owner.clone(), agent: "a".parse().unwrap(), kind: InboundKind::Task };
    let body = json!({"input": "x", "replyTo": "_INBOX.quota.1"});
    let message = BusMessage { to, id: Some("q1".into()), body, trace: None };
    for expected in ["REJECTED", "REJECTED", "COMPLETE"] {
        if expected == "COMPLETE" {
            lift(&venue).await;
        }
        bus.publish(&message).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_mins(1), answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["status"], expected, "{answer}");
        if expected == "REJECTED" {
            assert_eq!(answer["errorCode"], "QUOTA_EXCEEDED", "{answer}");
            assert!(answer["error"].as_str().unwrap().contains("quota of documents is 1"), "{answer}");
            assert_eq!(used(&venue).await.jobs, 0, "no record is kept of it");
        }
    }
    assert_eq!(audit::audit_all(&venue.venue).await.unwrap().unaccounted, 0);
}

async fn a_turn_is_told_of_its_owners_quota_and_ends(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.worker();
    for (name, value) in [("a", "12345"), ("b", "12345")] {
        venue.write(&format!("w/old/{name}"), json!(value)).await;
    }
    // Room for the job itself, and for nothing else.
    allow(&venue, QuotaKind::Documents, 3).await;
    let submitted = venue.submit("writer", "t1", json!("go")).await;
    let job = venue.ended(&submitted.job.unwrap()).await;
    assert_eq!(job.status, JobStatus::Complete);
    let turns = venue.turns("writer", job.head.session.as_str()).await;
    let said = json!(turns[0].said).to_string();
    assert_eq!(said.matches("QUOTA_EXCEEDED: this owner's quota of documents").count(), 2, "{said}");
    assert_eq!(said.matches("\\\"written\\\":true").count(), 2, "{said}");
    let read = async |path: &str| venue.read(path).await;
    assert_eq!((read("w/new/a").await, read("w/old/b").await), (None, None));
    assert_eq!((read("w/old/a").await, read("w/old/c").await), (Some(json!("1")), Some(json!("in its place"))));
    assert_eq!(jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().total, 1, "no child was begun");
    assert!(used(&venue).await.documents > 3, "its own records are kept");
    counts_are_right(&venue).await;
}

async fn said(venue: &TestVenue, agent: &str) -> String {
    let submitted = venue.submit(agent, "t1", json!("go")).await;
    let job = venue.ended(&submitted.job.unwrap()).await;
    assert_eq!(job.status, JobStatus::Complete);
    let turns = venue.turns(agent, job.head.session.as_str()).await;
    json!(turns[0].said).to_string()
}

async fn a_turn_begins_no_session_beyond_the_quota(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.worker();
    let session_id = Some("s".parse().unwrap());
    let first = venue.arrive("a", "t0", true, Submission { session_id, ..Submission::default() }).await;
    assert_eq!(venue.ended(&first.job.unwrap()).await.status, JobStatus::Complete);
    // Room for its own session only.
    allow(&venue, QuotaKind::Sessions, 1).await;
    let said = said(&venue, "spreader").await;
    assert_eq!(said.matches("QUOTA_EXCEEDED: this owner's quota of sessions").count(), 2, "{said}");
    assert_eq!(said.matches("\\\"delivered\\\":true").count(), 1, "one that is there is written to: {said}");
    assert_eq!(used(&venue).await.sessions, 2);
    counts_are_right(&venue).await;
}

async fn a_job_for_an_external_worker_beyond_the_quota_is_not_watched(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.agent("seller", json!({"tools": ["v/ops/queue/publish"]})).await;
    venue.worker();
    allow(&venue, QuotaKind::Jobs, 1).await;
    let said = said(&venue, "seller").await;
    assert!(said.contains("QUOTA_EXCEEDED: this owner's quota of jobs"), "{said}");
    let watched = venue.venue.store.scan(&venue.owner, keys::OUTBOUND, None, false, 10).await.unwrap();
    assert_eq!(watched, []);
}

async fn a_task_that_would_be_refused_replaces_nothing(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.agent("slow", json!({"model": {"provider": "scripted", "name": "never"}, "busy": "replace"})).await;
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let task = |input: &str| json!({"input": input, "sessionId": "main"});
    let first = api.post("/api/v1/agents/slow/tasks", task("first")).await.body(202)["job"].clone();
    let first = first.as_str().unwrap().parse().unwrap();
    let status = async || jobs::get(&venue.venue, &venue.owner, &first).await.unwrap().unwrap().status;
    let large = "x".repeat(10_000);
    // It is kept twice: in the mailbox and in the record of its job.
    allow(&venue, QuotaKind::Bytes, 15_000).await;
    is_over(&api.post("/api/v1/agents/slow/tasks", task(&large)).await, QuotaKind::Bytes);
    assert_eq!(status().await, JobStatus::Pending);
    lift(&venue).await;
    api.post("/api/v1/agents/slow/tasks", task(&large)).await.body(202);
    assert_eq!(status().await, JobStatus::Cancelled);
}

async fn a_timer_is_replaced_by_one_that_is_as_large(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let set = async |input: &str| {
        api.post("/api/v1/agents/a/timers", json!({"name": "t", "every": "1h", "input": input})).await
    };
    set("12345").await.body(201);
    allow(&venue, QuotaKind::Bytes, 20).await;
    set("54321").await.body(201);
    is_over(&set(&"x".repeat(100)).await, QuotaKind::Bytes);
}

async fn a_fork_with_its_timeline_beyond_the_quota_leaves_nothing(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.worker();
    for id in ["t1", "t2"] {
        assert_eq!(venue.run("a", id, json!("x")).await.status, JobStatus::Complete);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let fork = async || api.post("/api/v1/agents/a/fork", json!({"to": "copy", "timeline": true})).await;
    // Room for one session of two; for both with their turns, and not for the agent.
    for (kind, more) in [(QuotaKind::Sessions, 1), (QuotaKind::Documents, 4)] {
        allow(&venue, kind, more).await;
        let before = used(&venue).await;
        is_over(&fork().await, kind);
        assert_eq!(used(&venue).await, before, "{kind:?}");
        lift(&venue).await;
    }
    let before = used(&venue).await;
    assert!(fork().await.status.is_success());
    let after = used(&venue).await;
    // Also who made the copy, and of which version of what.
    assert_eq!((after.sessions, after.documents), (before.sessions + 2, before.documents + 7));
    counts_are_right(&venue).await;
}

async fn retention_and_a_removal_give_back_all_that_was_counted(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.worker();
    let before = used(&venue).await;
    for n in 0..5 {
        let job = venue.run("a", &format!("t{n}"), json!("x")).await;
        assert_eq!(job.status, JobStatus::Complete);
    }
    let kept = used(&venue).await;
    assert_eq!((kept.jobs, kept.sessions), (before.jobs + 5, before.sessions + 5));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let rules = RetentionRules { jobs: Some(Duration::ZERO), turns: Some(Duration::ZERO) };
    let mut janitor = Janitor::new(rules);
    for _ in 0..10 {
        janitor.tidy_share(&venue.venue, &Share::default()).await.unwrap();
    }
    let left = used(&venue).await;
    assert_eq!((left.jobs, left.sessions), (before.jobs, before.sessions));
    assert!(left.bytes < kept.bytes && left.documents < kept.documents, "{kept:?} {left:?}");
    counts_are_right(&venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_a_drifted_count_and_repair_fixes_it() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, prefix) = TestVenue::redis_at(server, RULES, Clock::system()).await;
    venue.agent("a", json!({})).await;
    venue.write("w/c/a", json!("12345")).await;
    let right = used(&venue).await;
    counts_are_right(&venue).await;
    let key = format!("{}:count", RedisServer::base(&prefix, &venue.owner));
    server.command(&["HINCRBY", &key, "bytes", "1000"]).await.unwrap();
    let books = audit::audit_all(&venue.venue).await.unwrap();
    let line = format!("local/me: its quota counts {} bytes where {} are", right.bytes + 1000, right.bytes);
    assert_eq!((books.drift, books.unaccounted), (vec![line], 0));
    assert_eq!(used(&venue).await.bytes, right.bytes + 1000, "an audit changes nothing");
    let repaired = audit::repair(&venue.venue).await.unwrap();
    assert_eq!(repaired.len(), 1, "{repaired:?}");
    assert!(repaired[0].found.contains("its quota counts"), "{repaired:?}");
    assert_eq!(used(&venue).await, right);
    counts_are_right(&venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_the_stores_limit_is_nobodys_limit_without_one() {
    let (mut venue, _dir) = TestVenue::embedded(RULES).await;
    Arc::get_mut(&mut venue.venue).unwrap().quota =
        QuotaSettings { bytes: ByteLimit::Share(25), ..QuotaSettings::default() };
    assert!(venue.venue.quota().await.is_none());
    venue.write("w/a", json!("x".repeat(10_000))).await;
}

#[test]
fn operators_see_and_set_quotas_on_the_command_line() {
    let up = Up::start_with(&["quota.jobs=2"]);
    up.agent("clerk", "echo");
    for _ in 0..2 {
        up.run(&["submit", "clerk", "x", "--wait"]).ok();
    }
    up.run(&["submit", "clerk", "x"]).expect(6, "QUOTA_EXCEEDED: this owner's quota of jobs is 2, 2 are used");
    let table = up.run(&["quota"]).ok();
    let jobs = table.lines().find(|line| line.starts_with("jobs")).unwrap();
    assert_eq!(jobs.split_whitespace().collect::<Vec<_>>(), ["jobs", "2", "2", "the", "venue"], "{table}");
    assert!(table.lines().any(|line| line.starts_with("bytes") && line.contains("any")), "{table}");
    up.run(&["submit", "clerk", "x", "--owner", "local/you"]).expect(5, "no agent");
    up.run(&["quota", "set", "local/me", "--jobs", "many"]).expect(2, "expected a number or `default`");
    up.run(&["quota", "set", "local/me"]).expect(2, "expected `documents`");
    let set = up.run(&["quota", "set", "local/me", "--jobs", "3", "--output", "json"]).ok();
    let set: Value = serde_json::from_str(&set).unwrap();
    assert_eq!(set["jobs"], json!({"used": 2, "limit": 3, "own": true}));
    up.run(&["submit", "clerk", "x", "--wait"]).ok();
    let other = up.run(&["quota", "local/you"]).ok();
    assert!(other.contains("local/you"), "{other}");
    up.run(&["quota", "set", "local/me", "--jobs", "default"]).ok();
    up.run(&["submit", "clerk", "x"]).expect(6, "quota of jobs is 2, 3 are used");
}

async fn what_failed_is_driven_again_where_there_is_room(on: On) {
    let Some((venue, _dir)) = site(on).await else { return };
    venue.agent("looper", json!({"tools": ["v/ops/lattice/list"], "limits": {"turns": 1}})).await;
    venue.worker();
    let failed = venue.submit("looper", "t1", json!("x")).await.job.unwrap();
    assert_eq!(venue.ended(&failed).await.status, JobStatus::Failed);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let api = Server::of(Arc::clone(&venue.venue)).await;
    let bulk = json!({"action": "redrive", "agent": "looper", "expected": 1});
    let run = json!({"operation": "v/ops/dead/redrive", "input": {"id": failed}});
    for kind in [QuotaKind::Bytes, QuotaKind::Documents, QuotaKind::Jobs] {
        allow(&venue, kind, 0).await;
        let before = used(&venue).await;
        for (method, path, body) in [
            (Method::PUT, format!("jobs/{failed}/redrive"), json!({})),
            (Method::POST, "jobs".to_owned(), bulk.clone()),
            (Method::POST, "run".to_owned(), run.clone()),
        ] {
            let answer = api.send(method, &format!("/api/v1/{path}"), &[], body.to_string()).await;
            assert_eq!(answer.status.as_u16(), 507, "{kind:?} {path}: {}", answer.body);
            is_over(&answer, kind);
        }
        assert_eq!(used(&venue).await, before, "{kind:?}");
        lift(&venue).await;
    }
    let driven = api.post("/api/v1/jobs", bulk).await.body(200);
    assert_eq!((&driven["done"], &driven["failed"]), (&json!(1), &json!(0)), "{driven}");
    counts_are_right(&venue).await;
}
