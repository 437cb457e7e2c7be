//! Timers over Redis and NATS: workers that never sweep again fire them when the queue rings.

use super::{ECHO, all_jobs, check_indexes, get, run, set, until};
use crate::support::nats::{self, NatsServer};
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::bus::Alarm;
use trellis::bus::nats::NatsBus;
use trellis::domain::job::JobStatus;
use trellis::domain::time::Millis;
use trellis::domain::timer::{TimerId, TimerPhase};
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::venue::ingress::timers::AlarmOutcome;

/// A venue over the shared Redis and this NATS, by the system's clock, whose workers sweep once; with
/// the agent `a`. `None` without a server.
async fn fleet(url: Option<String>) -> Option<(TestVenue, TempDir)> {
    let (redis, url) = (RedisServer::shared()?, url?);
    let store = RedisStore::open(redis.options(ServerOrInjected::Server)).await.unwrap();
    let bus = NatsBus::open(&nats::options(&url)).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut venue = TestVenue::new(store, Arc::new(bus), dir.path(), ECHO).await;
    venue.sweep = Duration::from_hours(1);
    venue.agent("a", json!({})).await;
    Some((venue, dir))
}

/// Starts so many workers and waits until each has swept.
async fn workers(venue: &TestVenue, n: u64) {
    let looks = || venue.venue.metrics.sweeps.get();
    let before = looks();
    for _ in 0..n {
        venue.worker();
    }
    until("they sweep", async || looks() >= before + n).await;
}

/// Alarms that the queue has.
async fn stored(venue: &TestVenue) -> String {
    let settings = venue.venue.bus.settings().await.unwrap();
    settings.into_iter().find(|setting| setting.name == "nats timers").unwrap().value
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_fires_once_by_its_alarm_with_two_workers() {
    let Some((venue, _dir)) = fleet(nats::shared()).await else { return };
    workers(&venue, 2).await;
    let mut once = Vec::new();
    for n in 0..20 {
        once.push(set(&venue, json!({"after": format!("{}ms", 100 * (n % 5))})).await);
    }
    for id in &once {
        until("it fires", async || get(&venue, id).await.phase == TimerPhase::Fired).await;
        let timer = get(&venue, id).await;
        assert_eq!((timer.fired, timer.skipped), (1, 0));
        assert_eq!(venue.ended(&timer.last.unwrap().job.unwrap()).await.status, JobStatus::Complete);
    }
    assert_eq!(all_jobs(&venue).await.len(), 20);
    // Each fire sets the next alarm.
    let again = set(&venue, json!({"every": "1s"})).await;
    until("it fires three times", async || get(&venue, &again).await.fired >= 3).await;
    run(&venue, "v/ops/timer/cancel", json!({"timer": again})).await;
    until("nothing is left to ring", async || stored(&venue).await.starts_with("0 ")).await;
    assert_eq!(get(&venue, &again).await.phase, TimerPhase::Cancelled);
    check_indexes(&venue).await;
    assert_eq!(venue.venue.metrics.sweeps.get(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_came_later_fires_what_was_set_before() {
    let Some((venue, _dir)) = fleet(nats::shared()).await else { return };
    // The sweep of a start must find nothing: on a machine that stands still it does.
    for _ in 0..10 {
        let id = set(&venue, json!({"after": "3s"})).await;
        let due = get(&venue, &id).await.due;
        workers(&venue, 1).await;
        let in_time = venue.venue.now() < due;
        until("it fires", async || get(&venue, &id).await.phase == TimerPhase::Fired).await;
        let sent = get(&venue, &id).await.last.unwrap();
        assert_eq!(sent.at, due);
        assert_eq!(venue.ended(&sent.job.unwrap()).await.status, JobStatus::Complete);
        if in_time {
            return;
        }
    }
    panic!("the first sweep always came too late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_is_set_anew_fires_at_its_new_time_only() {
    let Some((venue, _dir)) = fleet(nats::shared()).await else { return };
    workers(&venue, 1).await;
    let far = set(&venue, json!({"after": "1h", "name": "one"})).await;
    let near = set(&venue, json!({"after": "500ms", "name": "one"})).await;
    assert_eq!(far, near);
    until("it fires", async || get(&venue, &near).await.phase == TimerPhase::Fired).await;
    assert_eq!((get(&venue, &near).await.generation, all_jobs(&venue).await.len()), (2, 1));
    until("the first alarm is gone", async || stored(&venue).await.starts_with("0 ")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_counts_only_for_the_timer_that_is_in_the_store() {
    let Some((venue, _dir)) = fleet(nats::shared()).await else { return };
    let hour = set(&venue, json!({"after": "1h"})).await;
    let cancelled = set(&venue, json!({"after": "1h"})).await;
    run(&venue, "v/ops/timer/cancel", json!({"timer": cancelled})).await;
    assert!(stored(&venue).await.starts_with("1 "), "the one of the cancelled timer is taken back");
    let past = set(&venue, json!({"every": "1s"})).await;
    let first = get(&venue, &past).await;
    until("it is due", async || venue.venue.now() >= first.due).await;
    let of = |timer: &TimerId, generation: u64, at: Millis| Alarm {
        owner: venue.owner.clone(),
        timer: timer.clone(),
        generation,
        at,
    };
    let due = get(&venue, &hour).await.due;
    let now = venue.venue.now();
    let ring = async |alarm: &Alarm| trellis::venue::ingress::timers::fire_alarm(&venue.venue, alarm).await.unwrap();
    let stale = [
        of(&TimerId::from_text("nobody's"), 1, now),
        of(&cancelled, 1, now),
        of(&hour, 2, now),
        of(&hour, 1, now),
        of(&past, 2, first.due),
    ];
    for alarm in &stale {
        assert_eq!(ring(alarm).await, AlarmOutcome::Stale, "{alarm:?}");
    }
    assert!(matches!(ring(&of(&hour, 1, due)).await, AlarmOutcome::Early(wait) if wait > Duration::from_mins(50)));
    assert!(all_jobs(&venue).await.is_empty());
    // The same again, and together with others: it fires once.
    let right = of(&past, 1, first.due);
    let results = futures::future::join_all((0..4).map(|_| ring(&right))).await;
    assert!(results.contains(&AlarmOutcome::Fired), "{results:?}");
    assert_eq!(ring(&right).await, AlarmOutcome::Stale);
    let moved = get(&venue, &past).await;
    assert_eq!(all_jobs(&venue).await.len() as u64, moved.fired);
    run(&venue, "v/ops/timer/cancel", json!({"timer": past})).await;
    // As messages they are taken and ignored.
    workers(&venue, 1).await;
    let (fired, jobs) = (get(&venue, &past).await.fired, all_jobs(&venue).await.len());
    let alarms = venue.venue.bus.alarms().unwrap();
    for alarm in stale.iter().chain([&right]) {
        alarms.set(alarm).await.unwrap();
    }
    // The one of `hour`, too: a stale one has taken its place.
    until("all are taken", async || stored(&venue).await.starts_with("0 ")).await;
    assert_eq!((get(&venue, &past).await.fired, all_jobs(&venue).await.len()), (fired, jobs));
    check_indexes(&venue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_ring_after_the_queue_s_server_was_killed() {
    let Some(mut server) = NatsServer::start() else { return };
    let Some((venue, _dir)) = fleet(Some(server.url())).await else { return };
    workers(&venue, 1).await;
    let id = set(&venue, json!({"after": "1s"})).await;
    server.kill();
    // It falls due while the server is away.
    until("it is due", async || venue.venue.now() >= get(&venue, &id).await.due).await;
    server.restart();
    until("it fires", async || get(&venue, &id).await.phase == TimerPhase::Fired).await;
    let job = get(&venue, &id).await.last.unwrap().job.unwrap();
    assert_eq!(all_jobs(&venue).await.len(), 1);
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    assert_eq!(venue.venue.metrics.sweeps.get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_whose_alarm_is_lost_fires_by_the_sweep() {
    let Some((mut venue, _dir)) = fleet(nats::shared()).await else { return };
    let id = set(&venue, json!({"after": "1s"})).await;
    venue.venue.bus.alarms().unwrap().clear(&venue.owner, &id).await.unwrap();
    venue.sweep = Duration::from_millis(200);
    workers(&venue, 1).await;
    until("it fires", async || get(&venue, &id).await.phase == TimerPhase::Fired).await;
    let job = get(&venue, &id).await.last.unwrap().job.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
}
