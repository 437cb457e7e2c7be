//! Operations that callers invoke: jobs that a worker runs, once, whoever dies.

mod crashes;
mod fleet;

use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::operate;
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trellis::bus::LiveSubject;
use trellis::domain::authority::policy::Revocation;
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::limits::INVOKED_OPEN;
use trellis::process::clock::Clock;
use trellis::store::{DocEffect, DocWrite, Expect, keys};
use trellis::venue::operation_jobs::{self, RunTerms};
use trellis::venue::policy;
use trellis::venue::upkeep::audit;
use trellis::venue::upkeep::retention;

const RULES: &str = "[[rule]]\nthen = { text = \"heard: {{input}}\", delay_ms = 200 }\n";

/// A venue and its API, without a worker at first.
struct Site {
    venue: TestVenue,
    server: Server,
    _dir: tempfile::TempDir,
}

impl Site {
    /// `None` without a server for it.
    async fn open(on: On) -> Option<Self> {
        let (mut venue, dir) = on.venue(RULES, Clock::system()).await?;
        // Takes of workers that are gone lapse soon.
        venue.lease = Duration::from_secs(3);
        let server = Server::of(Arc::clone(&venue.venue)).await;
        Some(Self { venue, server, _dir: dir })
    }

    async fn invoke(&self, operation: &str, input: Value) -> Value {
        self.server.post("/api/v1/invoke", json!({"operation": operation, "input": input, "wait": 0})).await.body(201)
    }

    async fn job(&self, job: &Value) -> Value {
        self.server.get(&path(job)).await.body(200)
    }

    async fn ended(&self, job: &Value) -> Value {
        self.server.get(&format!("{}?wait=true", path(job))).await.body(200)
    }

    async fn becomes(&self, job: &Value, status: &str) -> Value {
        let start = Instant::now();
        loop {
            let now = self.job(job).await;
            if now["status"] == status {
                return now;
            }
            assert!(start.elapsed() < Duration::from_mins(1), "it never is {status}: {now}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Keys that are kept of operations that have not ended.
    async fn kept(&self) -> Vec<String> {
        let mut kept = Vec::new();
        for prefix in ["i/", keys::INVOKED_DUE] {
            let found = self.venue.venue.store.scan(&self.venue.owner, prefix, None, false, 100).await.unwrap();
            kept.extend(found.into_iter().map(|(key, _)| key));
        }
        kept
    }

    async fn unaccounted(&self) -> u64 {
        let books = audit::audit_owner(&self.venue.venue, &self.venue.owner).await.unwrap();
        eprintln!("{books:?}");
        books.unaccounted
    }

    /// A worker begins an operation and is gone.
    async fn begun_and_gone(&self, job: &Value) {
        let terms = RunTerms { worker: "gone", lease: Duration::from_millis(300), crash_limit: 5 };
        let taken = operation_jobs::acquire(&self.venue.venue, &self.venue.owner, &id(job), terms).await.unwrap();
        assert!(taken.is_some(), "it is there to be taken");
        let again = operation_jobs::acquire(&self.venue.venue, &self.venue.owner, &id(job), terms).await.unwrap();
        assert!(again.is_none(), "nobody else has it then");
    }
}

fn path(job: &Value) -> String {
    format!("/api/v1/jobs/{}", job["id"].as_str().unwrap())
}

fn id(job: &Value) -> JobId {
    JobId::new(job["id"].as_str().unwrap()).unwrap()
}

async fn an_invoked_operation_is_listed_and_answered_when_done(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let append = json!({"path": "w/log", "value": 1});
    let job = site.invoke("lattice/append", append.clone()).await;
    assert_eq!((&job["status"], &job["op"]), (&json!("PENDING"), &json!("v/ops/lattice/append")));
    assert_eq!((&job["input"], job.get("agent")), (&append, None));
    assert_eq!(site.server.get("/api/v1/jobs?status=PENDING").await.body(200)["items"], json!([job["id"]]));
    site.server.put(&format!("{}/pause", path(&job)), Value::Null).await.is_problem(409, "can't be paused");
    site.server.put(&format!("{}/delete", path(&job)), Value::Null).await.is_problem(409, "is PENDING: cancel it");
    assert_eq!((site.unaccounted().await, site.kept().await.len()), (0, 2));
    // It was there before its worker was: also a lost wake is only late.
    site.venue.worker();
    let done = site.ended(&job).await;
    assert_eq!((&done["status"], &done["output"]["newSize"]), (&json!("COMPLETE"), &json!(1)), "{done}");
    let waits = json!({"operation": "lattice/append", "input": append, "wait": true});
    let done = site.server.post("/api/v1/invoke", waits).await.body(200);
    assert_eq!(done["output"]["newSize"], 2, "answered when done");
    let slow = json!({"operation": "test/once", "input": {"delay": 1_500}});
    let start = Instant::now();
    let begun = site.server.post("/api/v1/invoke", slow).await.body(201);
    assert!(start.elapsed() < Duration::from_millis(1_400), "it doesn't run inside the request");
    assert!(["PENDING", "STARTED"].contains(&begun["status"].as_str().unwrap()), "{begun}");
    let started = site.becomes(&begun, "STARTED").await;
    assert_eq!(started.get("output"), None);
    assert_eq!(site.ended(&begun).await["output"], json!({"delay": 1_500}));
    let unknown = json!({"operation": "v/ops/job/result", "input": {"id": "0f".repeat(16)}, "wait": 0});
    let missing = site.server.post("/api/v1/invoke", unknown).await.body(200);
    assert_eq!(
        (&missing["status"], &missing["error"]),
        (&json!("FAILED"), &json!(format!("no job `{}`", "0f".repeat(16))))
    );
    assert_eq!((site.unaccounted().await, site.kept().await.len()), (0, 0));
    // Deleted, it is as if it had never been.
    site.server.put(&format!("{}/delete", path(&begun)), Value::Null).await.body(200);
    site.server.get(&path(&begun)).await.is_problem(404, "no job");
}

async fn a_request_that_is_repeated_runs_once(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let order =
        |value: u32| json!({"operation": "lattice/append", "input": {"path": "w/log", "value": value}, "wait": 0});
    let invoke = async |body: Value| site.server.post_once("k1", "/api/v1/invoke", body).await;
    let first = invoke(order(1)).await.body(201);
    assert_eq!(invoke(order(1)).await.body(200)["id"], first["id"]);
    invoke(order(2)).await.is_problem(409, "belongs to another request");
    site.venue.worker();
    let done = site.ended(&first).await;
    assert_eq!(invoke(order(1)).await.body(200), done);
    assert_eq!(site.venue.read("w/log").await, Some(json!([1])));
    site.server.put(&format!("{}/delete", path(&first)), Value::Null).await.body(200);
}

async fn an_unrepeatable_operation_never_runs_again(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let once = site.invoke("test/once", json!({"delay": 0})).await;
    let write = site.invoke("lattice/append", json!({"path": "w/log", "value": 1})).await;
    let read = site.invoke("test/delay", json!({"delay": 400})).await;
    for job in [&once, &write, &read] {
        site.begun_and_gone(job).await;
        assert_eq!(site.job(job).await["status"], "STARTED");
    }
    assert_eq!(site.unaccounted().await, 0);
    site.venue.worker();
    for job in [&once, &write] {
        let ended = site.ended(job).await;
        assert_eq!((&ended["status"], &ended["errorCode"]), (&json!("FAILED"), &json!("OUTCOME_UNKNOWN")), "{ended}");
        assert!(ended["error"].as_str().unwrap().contains("worker `gone` began"), "{ended}");
    }
    assert_eq!(site.ended(&read).await["status"], "COMPLETE", "what only reads is run again");
    assert_eq!(site.venue.read("w/log").await, None);
    assert_eq!((site.unaccounted().await, site.kept().await.len()), (0, 0));
    let redrive = json!({"operation": "v/ops/dead/redrive", "input": {"id": once["id"]}});
    site.server.post("/api/v1/run", redrive).await.is_problem(409, "it is the run of an operation; run that again");
}

async fn a_running_operation_is_cancelled_at_once(on: On) {
    let Some(site) = Site::open(on).await else { return };
    site.venue.worker();
    let never = site.invoke("test/never", json!({})).await;
    site.becomes(&never, "STARTED").await;
    let start = Instant::now();
    let cancelled = site.server.put(&format!("{}/cancel", path(&never)), json!({"reason": "enough"})).await.body(200);
    assert_eq!((&cancelled["status"], &cancelled["error"]), (&json!("CANCELLED"), &json!("cancelled: enough")));
    while !site.kept().await.is_empty() || site.venue.shutdown.turns() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "it still runs: {:?}", site.kept().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(site.job(&never).await["status"], "CANCELLED");
    // One that nobody has begun, too.
    let other = Site::open(on).await.unwrap();
    let waits = other.invoke("lattice/append", json!({"path": "w/log", "value": 1})).await;
    other.server.put(&format!("{}/cancel", path(&waits)), Value::Null).await.body(200);
    other.venue.worker();
    other.venue.venue.wake(&other.venue.owner, &trellis::domain::invocation::session(&id(&waits))).await;
    while !other.kept().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(other.venue.read("w/log").await, None);
}

async fn slow_operations_leave_room_to_other_owners_and_turns(on: On) {
    let Some(site) = Site::open(on).await else { return };
    site.venue.agent("clerk", json!({})).await;
    site.venue.worker();
    let of = async |owner: &str, operation: &str, input: Value, wait: Value| {
        let body = json!({"operation": operation, "input": input, "wait": wait});
        site.server.send(Method::POST, "/api/v1/invoke", &[("X-Trellis-Owner", owner)], body.to_string()).await
    };
    // More than all places, and more than all slots.
    for _ in 0..20 {
        of("local/slow", "test/never", json!({}), json!(0)).await.body(201);
    }
    let quick = of("local/me", "lattice/append", json!({"path": "w/log", "value": 1}), json!(true)).await.body(200);
    assert_eq!(quick["status"], "COMPLETE", "{quick}");
    let chat = json!({"agentId": "clerk", "message": "hello"});
    let chats: Vec<_> = (0..4).map(|_| of("local/me", "agent/chat", chat.clone(), json!(true))).collect();
    for chat in futures::future::join_all(chats).await {
        assert_eq!(chat.body(200)["status"], "COMPLETE");
    }
    let slow: Owner = "local/slow".parse().unwrap();
    let started = trellis::venue::jobs::list(&site.venue.venue, &slow, 0, 100).await.unwrap().items;
    let running = started.iter().filter(|job| job.status.as_str() == "STARTED").count();
    assert_eq!((started.len(), running), (20, 6), "75 % of 8 places");
}

async fn no_operation_starts_under_a_revoked_grant(on: On) {
    let Some(mut site) = Site::open(on).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let (issuer, auth) = crate::authority::tokens::issuer(dir.path());
    site.server = Server::with(Arc::clone(&site.venue.venue), auth).await;
    site.venue.owner = "acme/ann".parse().unwrap();
    let invoke = async |jti: &str, path: &str| {
        let token = crate::authority::tokens::token(&issuer, "acme/ann", &json!({"jti": jti}));
        let bearer = format!("Bearer {token}");
        let body = json!({"operation": "lattice/append", "input": {"path": path, "value": 1}, "wait": 0});
        let headers = [("Authorization", bearer.as_str())];
        site.server.send(Method::POST, "/api/v1/invoke", &headers, body.to_string()).await.body(201)
    };
    let (lost, kept, narrowed) = (invoke("t1", "w/a").await, invoke("t2", "w/b").await, invoke("t2", "w/c/d").await);
    let revocation = |id: &str, grant: Option<&str>, path: Option<&str>| Revocation {
        id: id.into(),
        path: path.map(operate::on),
        holder: None,
        grant: grant.map(str::to_owned),
        reason: None,
        by: "test".into(),
        at: site.venue.venue.now(),
    };
    for revocation in [revocation("r1", Some("t1"), None), revocation("r2", Some("t2"), Some("w/c"))] {
        policy::revoke(&site.venue.venue, &site.venue.owner, revocation).await.unwrap().unwrap();
    }
    site.venue.worker();
    for job in [&lost, &narrowed] {
        let ended = site.venue.ended(&id(job)).await;
        let code = ended.result.unwrap().error_code.map(|code| json!(code));
        assert_eq!((ended.status.as_str(), code), ("FAILED", Some(json!("CAP_DENIED"))));
    }
    assert_eq!(site.venue.ended(&id(&kept)).await.status.as_str(), "COMPLETE");
    let read = [site.venue.read("w/a").await, site.venue.read("w/b").await, site.venue.read("w/c/d").await];
    assert_eq!(read, [None, Some(json!([1])), None]);
}

async fn a_revocation_names_operations_that_still_run(on: On) {
    let Some(site) = Site::open(on).await else { return };
    site.venue.worker();
    let job = site.invoke("test/once", json!({"delay": 1_500})).await;
    site.becomes(&job, "STARTED").await;
    let revoke = json!({"operation": "policy/revoke", "input": {"grant": job["id"]}});
    let told = site.server.post("/api/v1/run", revoke).await.body(200);
    let listed = json!([{"job": job["id"], "op": "v/ops/test/once", "status": "STARTED"}]);
    assert_eq!((&told["stops"]["running"], &told["stops"]["jobs"]), (&listed, &json!([])), "{told}");
    assert_eq!(site.ended(&job).await["status"], "COMPLETE");
}

async fn a_waiting_operation_does_not_start_once_revoked(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let input = json!({"path": "w/log", "value": 1});
    let (lost, kept) = (site.invoke("lattice/append", input.clone()).await, site.invoke("lattice/append", input).await);
    let told = site.server.post("/api/v1/run", json!({"operation": "policy/revoke", "input": {"grant": lost["id"]}}));
    let told = told.await.body(200);
    assert_eq!(told["stops"]["jobs"][0]["job"], lost["id"], "{told}");
    site.venue.worker();
    let (lost, kept) = (site.ended(&lost).await, site.ended(&kept).await);
    assert_eq!((&lost["status"], &lost["errorCode"]), (&json!("FAILED"), &json!("CAP_DENIED")), "{lost}");
    assert_eq!(kept["status"], "COMPLETE", "{kept}");
    assert_eq!(site.venue.read("w/log").await, Some(json!([1])));
}

async fn lost_operations_are_missed_and_too_many_refused(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let job = site.invoke("lattice/append", json!({"path": "w/log", "value": 1})).await;
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let write = |key: String, change: DocEffect| DocWrite { key, expect: Expect::Any, change };
    for key in site.kept().await {
        venue.store.write(venue.now(), owner, &[write(key, DocEffect::Delete)]).await.unwrap();
    }
    assert_eq!(site.unaccounted().await, 1, "{job}");
    let place = |n: usize| {
        keys::invoked_due(venue.now().plus(Duration::from_hours(1)), &JobId::new(&format!("{n:032x}")).unwrap())
    };
    let full: Vec<_> = (0..INVOKED_OPEN).map(|n| write(place(n), DocEffect::Put(bytes::Bytes::new()))).collect();
    for some in full.chunks(100) {
        venue.store.write(venue.now(), owner, some).await.unwrap();
    }
    let body = json!({"operation": "lattice/append", "input": {"path": "w/log", "value": 2}});
    let refused = site.server.post("/api/v1/invoke", body).await;
    refused.is_problem(429, "has 1000 operations that have not ended");
    assert_eq!(refused.header("retry-after"), "5");
    site.server.post("/api/v1/invoke", json!({"operation": "test/echo"})).await.body(201);
    let jobs = site.server.get("/api/v1/jobs").await.body(200);
    assert_eq!(jobs["total"], 2, "nothing was written of the refused one");
    // Places that stand for nothing go when their time comes.
    let stale = keys::invoked_due(venue.now(), &id(&job));
    venue.store.write(venue.now(), owner, &[write(stale.clone(), DocEffect::Put(bytes::Bytes::new()))]).await.unwrap();
    assert_eq!(operation_jobs::list_due(venue, owner).await.unwrap(), []);
    assert_eq!(venue.store.read(owner, &[stale]).await.unwrap()[0].value, None);
}

async fn an_invoked_operation_is_forgotten_with_its_job(on: On) {
    let Some(site) = Site::open(on).await else { return };
    let job = site.invoke("test/once", json!({"delay": 0})).await;
    operate::as_worker(&site.venue.venue, &site.venue.owner).await;
    assert_eq!(site.job(&job).await["status"], "COMPLETE");
    let found = trellis::venue::jobs::get(&site.venue.venue, &site.venue.owner, &id(&job)).await.unwrap().unwrap();
    let deleted = retention::delete(&site.venue.venue, &site.venue.owner, &found).await.unwrap();
    assert_eq!(deleted, retention::DeletionOutcome::Done);
    for prefix in ["j/", "l/", "i/", "i.due/"] {
        let left = site.venue.venue.store.scan(&site.venue.owner, prefix, None, false, 10).await.unwrap();
        assert!(left.is_empty(), "{prefix}: {left:?}");
    }
}

/// What must not be told by a signal alone: a wake of somebody else's, or of nothing, changes nothing.
async fn a_wake_only_makes_a_worker_look(on: On) {
    let Some(site) = Site::open(on).await else { return };
    site.venue.worker();
    let unknown = JobId::new(&"0f".repeat(16)).unwrap();
    for _ in 0..50 {
        site.venue.venue.wake(&site.venue.owner, &trellis::domain::invocation::session(&unknown)).await;
    }
    let control = LiveSubject::Control(site.venue.owner.clone());
    site.venue.venue.bus.signal(&control, bytes::Bytes::from(unknown.to_string())).await.unwrap();
    let body = json!({"operation": "lattice/append", "input": {"path": "w/log", "value": 1}, "wait": true});
    let done = site.server.post("/api/v1/invoke", body).await.body(200);
    assert_eq!(done["status"], "COMPLETE");
    assert_eq!(site.server.get("/api/v1/jobs").await.body(200)["total"], 1);
}

on_both! {
    an_invoked_operation_is_listed_and_answered_when_done
    a_request_that_is_repeated_runs_once
    an_unrepeatable_operation_never_runs_again
    a_running_operation_is_cancelled_at_once
    slow_operations_leave_room_to_other_owners_and_turns
    no_operation_starts_under_a_revoked_grant
    a_revocation_names_operations_that_still_run
    a_waiting_operation_does_not_start_once_revoked
    lost_operations_are_missed_and_too_many_refused
    an_invoked_operation_is_forgotten_with_its_job
    a_wake_only_makes_a_worker_look
}
