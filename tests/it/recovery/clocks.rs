//! Machines of a fleet whose clocks differ: what is due is judged by the store's clock, and a worker whose own is far off
//! begins nothing.

use crate::jobs::timers::until;
use crate::support::nats;
use crate::support::operate::{boss, operate};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::bus::nats::{NatsBus, NatsOptions};
use trellis::domain::event::Submission;
use trellis::domain::ids::JobId;
use trellis::domain::job::JobStatus;
use trellis::domain::retention::RetentionRules;
use trellis::domain::time::Millis;
use trellis::domain::timer::TimerId;
use trellis::process::clock::Clock;
use trellis::store::Store;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::upkeep::doctor;
use trellis::venue::upkeep::retention::PACE;
use trellis::venue::{clocks, jobs, timers};

const ECHO: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";
const DAY: Duration = Duration::from_hours(24);

/// Long enough for several sweeps of a worker.
const SWEEPS: Duration = Duration::from_secs(2);

/// A store and a queue, for processes with any clocks.
struct Site {
    store: Arc<dyn Store>,
    bus: NatsOptions,
    dir: TempDir,
}

impl Site {
    /// `None` without the servers.
    async fn open() -> Option<Self> {
        let (redis, url) = (RedisServer::shared()?, nats::shared()?);
        let store = RedisStore::open(redis.options(ServerOrInjected::Server)).await.unwrap();
        Some(Self { store, bus: nats::options(&url), dir: tempfile::tempdir().unwrap() })
    }

    async fn process(&self, clock: Clock) -> TestVenue {
        let bus = NatsBus::open(&self.bus).await.unwrap();
        TestVenue::at(Arc::clone(&self.store), Arc::new(bus), self.dir.path(), ECHO, clock).await
    }
}

async fn status(venue: &TestVenue, job: &JobId) -> JobStatus {
    jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap().status
}

/// The value of a metric's line.
fn metric(venue: &TestVenue, name: &str) -> Option<f64> {
    let text = venue.venue.metrics.encode();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.map(|value| value.parse().unwrap())
}

async fn set_timer(venue: &TestVenue, after: &str) -> TimerId {
    let input = json!({"agentId": "a", "input": "tick", "after": after});
    let set = operate(&venue.venue, &boss(&venue.owner), "v/ops/agent/trigger", input).await.unwrap();
    TimerId::new(set["timer"].as_str().unwrap()).unwrap()
}

async fn fired(venue: &TestVenue, timer: &TimerId) -> u64 {
    timers::get(&venue.venue, &venue.owner, timer).await.unwrap().0.unwrap().fired
}

async fn submit(venue: &TestVenue, id: &str, submission: Submission) -> JobId {
    venue.arrive("a", id, true, submission).await.job.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_far_ahead_deletes_fires_and_runs_nothing() {
    let Some(site) = Site::open().await else { return };
    let right = site.process(Clock::system()).await;
    right.agent("a", json!({})).await;
    right.worker();
    let mut done = Vec::new();
    for n in 0..3 {
        done.push(right.run("a", &format!("t{n}"), json!(n)).await.head.id);
    }
    let timer = set_timer(&right, "480h").await;
    right.shutdown.trigger();
    right.shutdown.run(Duration::from_secs(5)).await;

    let clock = Clock::manual(Clock::system().now().plus(DAY * 40));
    let mut ahead = site.process(clock.clone()).await;
    ahead.retention = RetentionRules { jobs: Some(DAY * 30), turns: Some(DAY * 30) };
    ahead.worker();
    let waiting = submit(&ahead, "t9", Submission { input: json!("late"), ..Submission::default() }).await;
    until("the clocks are compared", async || metric(&ahead, "trellis_clock_wrong") == Some(1.0)).await;
    assert!(metric(&ahead, "trellis_clock_ahead_seconds{of=\"store\"}") > Some(3_400_000.0));
    assert!(metric(&ahead, "trellis_clock_ahead_seconds{of=\"queue\"}") > Some(3_400_000.0));
    for _ in 0..5 {
        clock.advance(PACE);
        tokio::time::sleep(SWEEPS / 5).await;
    }
    assert_eq!(fired(&ahead, &timer).await, 0);
    assert_eq!(status(&ahead, &waiting).await, JobStatus::Pending);
    for job in &done {
        assert_eq!(status(&ahead, job).await, JobStatus::Complete);
    }
    // A machine with a right clock takes over at once.
    let right = site.process(Clock::system()).await;
    right.worker();
    assert_eq!(right.ended(&waiting).await.status, JobStatus::Complete);
    assert_eq!(metric(&right, "trellis_clock_wrong"), Some(0.0));
    assert_eq!(fired(&right, &timer).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn due_times_are_judged_by_the_clock_of_the_store() {
    let Some(site) = Site::open().await else { return };
    let right = site.process(Clock::system()).await;
    right.agent("a", json!({})).await;
    let timer = set_timer(&right, "90s").await;
    let mut ahead = site.process(Clock::from_timers(Clock::system().now().plus(Duration::from_mins(2)))).await;
    ahead.clock_limit = Duration::from_mins(10);
    ahead.worker();
    let budget = serde_json::from_value(json!({"wallClock": 60})).unwrap();
    let job = submit(&right, "t1", Submission { budget, ..Submission::default() }).await;
    assert_eq!(ahead.ended(&job).await.status, JobStatus::Complete);
    tokio::time::sleep(SWEEPS).await;
    assert_eq!(fired(&right, &timer).await, 0);
    assert_eq!(metric(&ahead, "trellis_clock_wrong"), Some(0.0));
    assert!(metric(&ahead, "trellis_clock_ahead_seconds{of=\"store\"}") > Some(100.0));
    let told = doctor::examine(&ahead.venue).await.unwrap().advice(true);
    assert!(told.iter().any(|line| line.contains("ahead of that of the store")), "{told:?}");
    let apart = |one: &TestVenue, other: &TestVenue| one.venue.now().elapsed_since(other.venue.now());
    assert!(apart(&ahead, &right) < Duration::from_secs(5), "{} {}", ahead.venue.now(), right.venue.now());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_when_its_clock_is_right_again() {
    let Some(site) = Site::open().await else { return };
    let (behind, right) = (Duration::from_hours(1), Clock::system().now());
    let clock = Clock::manual(Millis(right.0 - 3_600_000));
    let venue = site.process(clock.clone()).await;
    venue.agent("a", json!({})).await;
    venue.worker();
    until("the clocks are compared", async || metric(&venue, "trellis_clock_wrong") == Some(1.0)).await;
    let job = submit(&venue, "t1", Submission { input: Value::Null, ..Submission::default() }).await;
    tokio::time::sleep(SWEEPS).await;
    assert_eq!(status(&venue, &job).await, JobStatus::Pending);
    // Somebody sets it.
    clock.advance(behind + Clock::system().now().elapsed_since(right));
    let ended = async || status(&venue, &job).await == JobStatus::Complete;
    until("it goes on", async || {
        clock.advance(Duration::from_millis(10));
        ended().await
    })
    .await;
    assert_eq!(metric(&venue, "trellis_clock_wrong"), Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_store_goes_by_the_clock_of_its_process() {
    let (venue, _dir) = TestVenue::embedded_at(ECHO, Clock::from_timers(Clock::system().now().plus(DAY * 40))).await;
    venue.agent("a", json!({})).await;
    venue.worker();
    assert_eq!(venue.run("a", "t1", json!(1)).await.status, JobStatus::Complete);
    let report = clocks::compare(&venue.venue).await.unwrap();
    assert_eq!((report.store, report.bus), (None, None));
}
