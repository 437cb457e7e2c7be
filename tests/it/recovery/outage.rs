//! A fleet whose Redis, then whose NATS, is killed and comes back: callers are told, nothing is lost.

use crate::support::both_stores::{On, on_both};
use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::nats::NatsServer;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trellis::domain::job::JobStatus;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::process::retry::RetryPolicy;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore};
use trellis::store::patient::PatientStore;
use trellis::venue::jobs;

/// A caller who waits longer for "not now" gives up first.
const PROMPT: Duration = Duration::from_secs(30);
/// Redelivery and backoff included.
const RECOVERED: Duration = Duration::from_mins(1);

struct Caller {
    http: Client,
    url: String,
}

impl Caller {
    async fn task(&self, agent: &str, id: &str) -> Response {
        let request = self.http.post(format!("{}/api/v1/agents/{agent}/tasks", self.url));
        let started = Instant::now();
        let body = json!({"input": id}).to_string();
        let response = request.header("Idempotency-Key", id).body(body).send().await.unwrap();
        assert!(started.elapsed() < PROMPT, "{id}: {:?}", started.elapsed());
        response
    }

    /// Tries again as long as it is told to: a connection that died meanwhile is noticed by its use.
    async fn accepted(&self, agent: &str, id: &str) {
        let started = Instant::now();
        loop {
            let response = self.task(agent, id).await;
            let again = response.headers().contains_key("retry-after");
            let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
            if status == 202 || status == 200 {
                return;
            }
            assert!(status == 503 && again && started.elapsed() < RECOVERED, "{id}: {status} {text}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Event ids of complete jobs, with how many jobs each has.
    async fn complete(&self) -> BTreeMap<String, u32> {
        let response = self.http.get(format!("{}/api/v1/jobs?details=true&limit=100", self.url)).send().await.unwrap();
        let list: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        let mut found = BTreeMap::new();
        for job in list["items"].as_array().unwrap().iter().filter(|job| job["status"] == "COMPLETE") {
            *found.entry(job["event"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        found
    }

    async fn all_complete(&self, ids: &[String]) {
        let started = Instant::now();
        let expected: BTreeMap<_, _> = ids.iter().map(|id| (id.clone(), 1)).collect();
        loop {
            let complete = self.complete().await;
            if complete == expected {
                return;
            }
            assert!(started.elapsed() < RECOVERED, "expected {expected:?}, got {complete:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_redis_and_nats_are_killed() {
    let (Some(mut nats), Some(mut redis)) = (NatsServer::start(), RedisServer::start()) else { return };
    let fleet = Fleet::new(nats.url(), &redis);
    fleet.slow_agent("slow", 400);
    let (mut worker, mut serve, url) = fleet.start_all();
    for agent in ["slow.toml", "echo.toml"] {
        run(fleet.path(), &["agent", "apply", agent, "--url", &url]).ok();
    }
    let caller = Caller { http: Client::new(), url };
    let mut ids: Vec<String> = (0..6).map(|n| format!("before-{n}")).collect();
    for id in &ids {
        caller.accepted("slow", id).await;
    }
    redis.kill();
    let refused = caller.task("echo", "meanwhile").await;
    assert_eq!(refused.status().as_u16(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    // The turns of the tasks end in the outage.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(redis.start_again());
    caller.accepted("echo", "meanwhile").await;
    ids.push("meanwhile".into());
    caller.all_complete(&ids).await;

    for n in 0..6 {
        ids.push(format!("again-{n}"));
        caller.accepted("slow", &ids[ids.len() - 1]).await;
    }
    nats.kill();
    // The store has it: the queue only makes it prompt.
    caller.accepted("echo", "without-nats").await;
    caller.accepted("echo", "without-nats-2").await;
    ids.extend(["without-nats".into(), "without-nats-2".into()]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    nats.restart();
    caller.all_complete(&ids).await;
    for process in [&mut worker, &mut serve] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}

/// Until it is so; time goes on meanwhile, as some look again later.
async fn until(clock: &Clock, what: &str, is_so: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < RECOVERED, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        clock.advance(Duration::from_millis(20));
    }
}

/// More outages than workers that a task may kill: each begins while its model is asked, and lasts longer than its lease.
async fn no_outage_of_the_store_counts_as_a_crash(on: On) {
    let rules = "[[rule]]\nthen = { text = \"done\", delay_ms = 100 }\n";
    let clock = Clock::manual(Millis(1_700_000_000_000));
    let Some((venue, dir)) = on.venue(rules, clock.clone()).await else { return };
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "rules"}})).await;
    let faulty = FaultyStore::new(Arc::clone(&venue.venue.store), FaultPlan::Never);
    let served = TestVenue::at(faulty.clone(), Arc::clone(&venue.venue.bus), dir.path(), rules, clock.clone()).await;
    served.worker();
    let job = venue.submit("a", "t", json!("go")).await.job.unwrap();
    for outage in 1..=6 {
        let asked = async || venue.model_calls().iter().filter(|call| call["event"] == "started").count() >= outage;
        until(&clock, "the model isn't asked", asked).await;
        faulty.set_plan(FaultPlan::From { n: 1, at: FaultAt::Before });
        until(&clock, "no commit fails", async || faulty.calls().contains(&"commit")).await;
        clock.advance(served.lease + Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(100)).await;
        faulty.set_plan(FaultPlan::Never);
    }
    let now = async || jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    until(&clock, "the job doesn't end", async || now().await.status.is_terminal()).await;
    let job = now().await;
    assert_eq!(job.status, JobStatus::Complete, "{:?}", job.result);
}

/// The store is away from one worker alone, while its model thinks for longer than a lease; another takes the session.
async fn a_worker_that_was_cut_off_and_lives_is_not_charged(on: On) {
    let rules = "[[rule]]\nthen = { text = \"done\", delay_ms = 2500 }\n";
    let Some((mut venue, dir)) = on.venue(rules, Clock::system()).await else { return };
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "rules"}})).await;
    let faulty = FaultyStore::new(Arc::clone(&venue.venue.store), FaultPlan::Never);
    // A renewal waits for the store, as in a process: its only answer is that another has the lease.
    let waits =
        RetryPolicy { first: Duration::from_millis(20), max: Duration::from_millis(50), ..RetryPolicy::CONNECT };
    let (store, bus) = (Arc::new(PatientStore::new(faulty.clone(), waits)), Arc::clone(&venue.venue.bus));
    let mut cut_off = TestVenue::at(store, bus, dir.path(), rules, Clock::system()).await;
    (cut_off.lease, venue.lease) = (Duration::from_millis(600), Duration::from_millis(600));
    cut_off.worker();
    let job = venue.submit("a", "t", json!("go")).await.job.unwrap();
    let clock = Clock::manual(Millis(0));
    let asked =
        async |times: usize| venue.model_calls().iter().filter(|call| call["event"] == "started").count() >= times;
    until(&clock, "the model isn't asked", async || asked(1).await).await;
    faulty.set_plan(FaultPlan::From { n: 1, at: FaultAt::Before });
    venue.worker();
    until(&clock, "nobody takes the session", async || asked(2).await).await;
    let charged = async || {
        let facts = venue.venue.store.sessions(&venue.owner, None, None, 10).await.unwrap();
        facts.iter().flat_map(|session| &session.mailbox).map(|entry| entry.crashes).sum::<u32>()
    };
    assert_eq!(charged().await, 1, "as long as nobody says otherwise");
    faulty.set_plan(FaultPlan::Never);
    until(&clock, "it is still charged", async || charged().await == 0).await;
    assert_ne!(jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap().status, JobStatus::Complete);
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
}

/// A reply that can't be recorded is asked for, and paid, again: less and less often, and never as a crash.
async fn a_session_that_keeps_failing_waits_longer(on: On) {
    let rules = "[[rule]]\nthen = { text = \"done\" }\n";
    let clock = Clock::manual(Millis(1_700_000_000_000));
    let Some((venue, dir)) = on.venue(rules, clock.clone()).await else { return };
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "rules"}})).await;
    let faulty = FaultyStore::new(Arc::clone(&venue.venue.store), FaultPlan::EachOf("commit"));
    let served = TestVenue::at(faulty.clone(), Arc::clone(&venue.venue.bus), dir.path(), rules, clock.clone()).await;
    served.worker();
    let job = venue.submit("a", "t", json!("go")).await.job.unwrap();
    let releases = || faulty.calls().iter().filter(|call| **call == "release").count();
    let still = Clock::manual(Millis(0));
    let mut waits = Vec::new();
    for failure in 1..=9 {
        until(&still, "the lease isn't given back", async || releases() == failure).await;
        let due = async || {
            let sessions = venue.venue.store.sessions(&venue.owner, None, None, 10).await.unwrap();
            sessions[0].due.filter(|_| sessions[0].lease_until.is_none())
        };
        until(&still, "the session isn't due again", async || due().await.is_some()).await;
        let wait = due().await.unwrap().elapsed_since(clock.now());
        waits.push(wait.as_secs());
        clock.advance(wait);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    faulty.set_plan(FaultPlan::Never);
    let job = async || jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
    until(&clock, "the job doesn't end", async || job().await.status.is_terminal()).await;
    assert_eq!(job().await.status, JobStatus::Complete, "{:?}", job().await.result);
}

on_both! {
    a_worker_that_was_cut_off_and_lives_is_not_charged
    no_outage_of_the_store_counts_as_a_crash
    a_session_that_keeps_failing_waits_longer
}
