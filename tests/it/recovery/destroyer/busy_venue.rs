//! A venue in which everything is under way: what the destroyer takes apart.

use super::blockable_queue::LoadingQueue;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::budget::Budget;
use trellis::domain::cap::{Ceiling, SpendSettings};
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::job::JobStatus;
use trellis::domain::rate::RateLimit;
use trellis::domain::secret::KeyRing;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::{Admit, DocEffect, DocWrite, Expect, LeaseOutcome, LeaseRequest, Store, keys};
use trellis::venue::jobs;
use trellis::venue::rates::RateSettings;
use trellis::venue::secrets::Vault;

pub const START: Millis = Millis(1_767_225_600_000);

/// Rules of the cases.
pub const RULES: &str = r#"
[[rule]]
when = { agent = "top", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "middle", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "sender", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "helper", input = "go", wait = 0 } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = 100 } }] }

[[rule]]
when = { agent = "keeper", turn = 1 }
then = { calls = [
    { tool = "memory_write", arguments = { content = "likes tea" } },
    { tool = "files_write", arguments = { path = "a.txt", content = "kept" } },
] }

[[rule]]
when = { agent = "seller", turn = 1 }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "ocr", input = 1, wait = 0, startTimeout = 900, deadline = 1200 } }] }

[[rule]]
when = { agent = "slow", turn = 1 }
then = { calls = [{ tool = "test_once", arguments = { delay = 60000 } }] }

[[rule]]
when = { agent = "thief", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/forbidden", value = "stolen" } }] }

[[rule]]
then = { text = "done" }
"#;

/// Rules of the scene: the children hang.
pub fn hanging() -> String {
    format!("[[rule]]\nwhen = {{ agent = \"middle\" }}\nthen = {{ fault = \"hang\" }}\n{RULES}")
}

/// What must come of it.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Tasks that complete within some minutes.
    pub jobs: Vec<JobId>,
    /// A job for an external worker that nobody does, and the task that waits for it.
    pub outside: [JobId; 2],
    /// Sessions of a job that was cancelled before it began, and of the task of an agent that is suspended.
    pub stopped: [String; 2],
    /// By which ids are made.
    pub key: Vec<u8>,
    /// How many jobs the owner has.
    pub total: usize,
}

pub async fn run(venue: &TestVenue, path: &str, input: Value) -> Result<Value, String> {
    operate(&venue.venue, &boss(&venue.owner), path, input).await.map_err(|error| format!("{path}: {error}"))
}

/// A venue over these, with a secret's key, caps and limits.
pub async fn venue(
    store: Arc<dyn Store>,
    bus: Arc<LoadingQueue>,
    dir: &std::path::Path,
    rules: &str,
    clock: Clock,
) -> TestVenue {
    let mut venue = TestVenue::at(store, bus, dir, rules, clock).await;
    let inner = Arc::get_mut(&mut venue.venue).unwrap();
    inner.secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
    let many = || Ceiling::parse("tokens=1000000").unwrap();
    inner.spend = SpendSettings {
        session: many(),
        owner: many(),
        user: many(),
        models: vec![("scripted".into(), many())],
        ..SpendSettings::default()
    };
    let limit = RateLimit { of: "scripted".into(), concurrency: Some(1_000), requests: None, tokens: None };
    venue.rates = RateSettings { limits: vec![limit], hold: Duration::from_mins(1) };
    venue
}

/// Waits for something while time goes on.
async fn until<F: Future<Output = bool>>(venue: &TestVenue, what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..6_000 {
        if holds().await {
            return;
        }
        venue.venue.clock.advance(Duration::from_millis(25));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let jobs = jobs::list(&venue.venue, &venue.owner, 0, 99).await.unwrap().items;
    let jobs: Vec<_> = jobs.into_iter().map(|job| (job.head.agent, job.status, job.result)).collect();
    panic!("never: {what}: {jobs:?}");
}

async fn until_status(venue: &TestVenue, job: &JobId, status: JobStatus) {
    let is = || async {
        jobs::read_status(&venue.venue, &venue.owner, job).await.unwrap().is_some_and(|(is, _)| is == status)
    };
    until(venue, &format!("{job} is {status:?}"), is).await;
}

/// The jobs of an agent, the first ones first.
async fn jobs_of(venue: &TestVenue, agent: &str) -> Vec<JobId> {
    let mut jobs = jobs::list(&venue.venue, &venue.owner, 0, 99).await.unwrap().items;
    jobs.retain(|job| job.head.agent.as_str() == agent);
    jobs.sort_by_key(|job| job.head.created);
    jobs.into_iter().map(|job| job.head.id).collect()
}

async fn settings(venue: &TestVenue) {
    for agent in ["top", "helper", "sender", "thief", "asleep"] {
        venue.agent(agent, json!({})).await;
    }
    venue.agent("middle", json!({"concurrency": 1})).await;
    venue
        .agent("payer", json!({"tools": [{"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"}]}))
        .await;
    let resources = json!({"memory": {"mode": "read-write"}, "files": {"mode": "read-write"}});
    venue.agent("keeper", json!({"resources": resources})).await;
    venue.agent("seller", json!({"tools": ["v/ops/queue/publish"]})).await;
    venue.agent("slow", json!({"tools": ["v/ops/test/once"]})).await;
    venue.write("w/notes/a", json!({"text": "kept"})).await;
    venue.revoke("w/forbidden").await;
    for (path, input) in [
        ("v/ops/asset/store", json!({"content": "asset"})),
        ("v/ops/secret/set", json!({"name": "TOKEN", "value": "a secret value", "hosts": ["a.example.com"]})),
        ("v/ops/agent/trigger", json!({"agentId": "helper", "input": "tick", "after": "30m"})),
        ("v/ops/agent/suspend", json!({"agentId": "asleep"})),
    ] {
        run(venue, path, input).await.unwrap();
    }
    let quota =
        DocWrite { key: keys::QUOTA.into(), expect: Expect::Any, change: DocEffect::Put("100000 - - -".into()) };
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[quota]).await.unwrap();
}

/// A session that a worker holds which died in a turn before, and dies in this one.
async fn crash(venue: &TestVenue) -> JobId {
    let arrived = venue.submit("helper", "crashed", json!("go")).await;
    let ask = |token: &str| Admit {
        owner: venue.owner.clone(),
        session: arrived.session.clone(),
        event: None,
        lease: Some(LeaseRequest {
            token: token.into(),
            worker: "dead".into(),
            ttl: Duration::from_secs(30),
            mailbox_limit: 9,
            crash_limit: 9,
            owner_cap: 0,
        }),
    };
    for token in ["one", "two"] {
        let now = venue.venue.clock.advance(Duration::from_secs(31));
        let lease = venue.venue.store.admit(now, &ask(token)).await.unwrap().lease;
        assert!(matches!(lease, LeaseOutcome::Run(_)), "{lease:?}");
    }
    arrived.job.unwrap()
}

/// A parent that waits for a child that hangs, one whose child was cancelled, a task that waits for a person, one for an
/// external worker, one that died in a call, one whose message is not published, a timer, a job that has ended, an
/// agent that is suspended, and all that owners have.
pub async fn make(venue: &TestVenue, bus: &LoadingQueue) -> Scene {
    settings(venue).await;
    venue.worker();
    let owner = &venue.owner;
    let budget = Budget { turns: Some(90), ..Budget::default() };
    let submission = Submission {
        input: json!("go"),
        context: Some(vec![json!("app/user/ann"), json!({"with": "w", "can": "*"})]),
        budget,
        ..Submission::default()
    };
    let ended = venue.arrive("keeper", "ended", true, submission).await.job.unwrap();
    until_status(venue, &ended, JobStatus::Complete).await;
    let first = venue.submit("top", "first", json!("go")).await.job.unwrap();
    until(venue, "the first child", || async { jobs_of(venue, "middle").await.len() == 1 }).await;
    let second = venue.submit("top", "second", json!("go")).await.job.unwrap();
    until(venue, "the second child", || async { jobs_of(venue, "middle").await.len() == 2 }).await;
    let asked = venue.submit("payer", "asked", json!("go")).await.job.unwrap();
    until_status(venue, &asked, JobStatus::InputRequired).await;
    let seller = venue.submit("seller", "sold", json!("go")).await.job.unwrap();
    until(venue, "the job outside", || async { jobs_of(venue, "seller").await.len() == 2 }).await;
    venue.submit("asleep", "asleep", json!("go")).await;
    let slow = venue.submit("slow", "slow", json!("go")).await.job.unwrap();
    let is_called =
        || async { venue.model_calls().iter().any(|call| call["turn"].as_str().unwrap().contains("/slow/")) };
    until(venue, "the slow call", is_called).await;
    // What was decided is published.
    until(venue, "an empty outbox", || async { venue.venue.store.outbox(owner).await.unwrap().is_empty() }).await;
    let third = venue.submit("top", "third", json!("go")).await.job.unwrap();
    until(venue, "the third child", || async { jobs_of(venue, "middle").await.len() == 3 }).await;
    bus.hold();
    let sent = venue.submit("sender", "sent", json!("go")).await.job.unwrap();
    let children = jobs_of(venue, "middle").await;
    jobs::cancel(&venue.venue, owner, &children[1], None).await.unwrap();
    until(venue, "the child of the sender", || async { jobs_of(venue, "helper").await.len() == 1 }).await;
    until(venue, "the outbox", || async { venue.venue.store.outbox(owner).await.unwrap().len() >= 3 }).await;
    venue.shutdown.trigger();
    venue.shutdown.run(Duration::from_secs(1)).await;
    let crashed = crash(venue).await;
    for mark in [keys::ERASURES.to_owned(), keys::garbage("w.e/none/")] {
        venue.venue.store.write(venue.venue.now(), owner, &[DocWrite::index_entry(mark)]).await.unwrap();
    }
    venue.venue.store.due_owners(venue.venue.now(), "dead", Duration::from_secs(1), 1).await.unwrap();
    let outside = [jobs_of(venue, "seller").await.remove(1), seller];
    let jobs = vec![crashed, ended, first, second, third, asked, slow, sent];
    let total = jobs::list(&venue.venue, owner, 0, 1).await.unwrap().total;
    let cancelled = jobs::head(&venue.venue, owner, &children[1]).await.unwrap().unwrap();
    let key = venue.venue.key.clone();
    Scene { key, jobs, outside, stopped: [format!("middle/{}", cancelled.session), "asleep/".to_owned()], total }
}

/// Lets a worker live for more than a minute.
pub async fn live(venue: &mut TestVenue) {
    venue.audit = Duration::from_secs(20);
    venue.lease = Duration::from_hours(3);
    venue.worker();
    for _ in 0..75 {
        venue.venue.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(12)).await;
    }
}

/// Submits a task as a caller does.
async fn ask(venue: &TestVenue, agent: &str) -> Result<JobId, String> {
    let asked = run(venue, "v/ops/agent/request", json!({"agentId": agent, "input": "go", "wait": 0}));
    let job = tokio::time::timeout(Duration::from_secs(10), asked).await.map_err(|_| "no answer".to_owned())??;
    JobId::new(job["id"].as_str().unwrap_or_default()).map_err(|error| format!("{job}: {error}"))
}

/// Whether another owner is served.
pub async fn serves_others(venue: &mut TestVenue) -> Result<(), String> {
    let mine = std::mem::replace(&mut venue.owner, "local/other".parse::<Owner>().unwrap());
    let config = json!({"model": {"provider": "scripted", "name": "rules"}});
    let done = async {
        run(venue, "v/ops/agent/create", json!({"agentId": "helper", "config": config})).await?;
        finished(venue, &ask(venue, "helper").await?, JobStatus::Complete).await
    };
    let done = done.await;
    venue.owner = mine;
    done.map_err(|why| format!("another owner: {why}"))
}

async fn finished(venue: &TestVenue, job: &JobId, status: JobStatus) -> Result<(), String> {
    let mut last = None;
    for _ in 0..400 {
        last = jobs::get(&venue.venue, &venue.owner, job).await.map_err(|error| error.to_string())?;
        match &last {
            Some(job) if job.status == status && job.result.is_some() => return Ok(()),
            Some(job) if job.status.is_terminal() => break,
            _ => {}
        }
        venue.venue.clock.advance(Duration::from_millis(500));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("job {job} is never {status:?}: {:?}", last.map(|job| (job.head.agent, job.status, job.result))))
}

/// Whether what protects somebody holds, whatever else was lost: a revocation, a cancellation, a suspension.
pub async fn is_protected(venue: &TestVenue, scene: &Scene) -> Result<(), String> {
    // What can't be submitted steals nothing.
    if let Ok(id) = ask(venue, "thief").await {
        for _ in 0..300 {
            let state = jobs::read_status(&venue.venue, &venue.owner, &id).await;
            if state.is_err() || state.is_ok_and(|state| state.is_none_or(|(status, _)| status.is_terminal())) {
                break;
            }
            venue.venue.clock.advance(Duration::from_millis(500));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let is_stolen = venue.venue.store.doc(&venue.owner, "w/forbidden").await.is_ok_and(|doc| doc.value.is_some());
    if is_stolen {
        return Err("what was revoked was written".to_owned());
    }
    let calls = venue.model_calls();
    for session in &scene.stopped {
        if calls.iter().any(|call| call["turn"].as_str().is_some_and(|turn| turn.contains(session))) {
            return Err(format!("session {session}, which was stopped, has run"));
        }
    }
    Ok(())
}

/// Whether all that was under way comes to its end.
pub async fn finish(venue: &TestVenue, scene: &Scene) -> Result<(), String> {
    let found = venue.venue.store.scan(&venue.owner, keys::APPROVALS, None, false, 9).await;
    for (key, _) in found.map_err(|error| error.to_string())? {
        run(venue, "v/ops/approval/approve", json!({"id": key.strip_prefix(keys::APPROVALS).unwrap()})).await?;
    }
    for job in &scene.jobs {
        finished(venue, job, JobStatus::Complete).await?;
    }
    if venue.read("w/paid").await != Some(json!([100])) {
        return Err(format!("paid {:?}", venue.read("w/paid").await));
    }
    if venue.read("w/notes/a").await != Some(json!({"text": "kept"})) {
        return Err("a value is gone".to_owned());
    }
    let total = async || jobs::list(&venue.venue, &venue.owner, 0, 9).await.map(|page| page.total);
    let before = total().await.map_err(|error| error.to_string())?;
    if before < scene.total {
        return Err(format!("there are {before} jobs, not {}", scene.total));
    }
    venue.venue.clock.advance(Duration::from_mins(31));
    let mut fired = false;
    for _ in 0..300 {
        fired = total().await.map_err(|error| error.to_string())? > before;
        if fired {
            break;
        }
        venue.venue.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if !fired {
        return Err("the timer doesn't fire".to_owned());
    }
    finished(venue, &scene.outside[0], JobStatus::Failed).await?;
    finished(venue, &scene.outside[1], JobStatus::Complete).await
}
