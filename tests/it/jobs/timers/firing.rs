//! Fires: on time, once, after crashes, restarts and downtimes.

use super::{ECHO, On, START, all_jobs, boss, call_as, check_indexes, get, pass, run, set, until, venue};
use crate::support::both_stores::on_both;
use crate::support::venue::TestVenue;
use bytes::Bytes;
use futures::future::join_all;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::gate::{BusyPolicy, Gate, GateStatus};
use trellis::domain::ids::{AgentId, SessionKey};
use trellis::domain::job::JobStatus;
use trellis::domain::timer::TimerPhase;
use trellis::process::clock::Clock;
use trellis::store::faulty::{FaultAt, FaultPlan, FaultyStore};
use trellis::store::{DocEffect, DocWrite, Expect, Store, keys};
use trellis::venue::Venue;
use trellis::venue::jobs;
use trellis::venue::timers;

const TEN: Duration = Duration::from_secs(10);

on_both! {
    fifty_fires_swept_by_two_workers_are_fifty_jobs
    processes_that_fire_at_the_same_moment_fire_once
    a_timer_between_two_sweeps_fires_on_time
    a_crash_at_any_write_of_a_fire_is_one_fire
    a_fire_sent_before_a_crash_counts_however_late_it_is_seen
    overlap_skip_leaves_out_while_the_last_one_is_not_finished
    fires_retry_a_full_mailbox_and_queue_while_suspended
    timers_of_a_removed_agent_fail_and_say_so
    deleting_an_agent_ends_its_timers_at_once
}

async fn fifty_fires_swept_by_two_workers_are_fifty_jobs(on: On) {
    let Some((mut venue, _dir)) = venue(on, ECHO).await else { return };
    venue.sweep = TEN;
    venue.worker();
    venue.worker();
    let id = set(&venue, json!({"every": "10s"})).await;
    for n in 1..=50 {
        venue.venue.clock.advance(TEN);
        let fires = async || get(&venue, &id).await.fired == n;
        let soon = tokio::time::timeout(Duration::from_secs(10), until("it fires", fires)).await;
        if soon.is_err() {
            // The clock moved while both were within a sweep, and it stands until their next one: a new worker sweeps at
            // its start.
            venue.worker();
            until("it fires", fires).await;
        }
    }
    until("all are done", async || {
        all_jobs(&venue).await.iter().filter(|job| job.status == JobStatus::Complete).count() == 50
    })
    .await;
    assert_eq!(all_jobs(&venue).await.len(), 50);
    let timer = get(&venue, &id).await;
    assert_eq!((timer.fired, timer.skipped, timer.next), (50, 0, Some(START.plus(TEN * 51))));
    check_indexes(&venue).await;
}

async fn processes_that_fire_at_the_same_moment_fire_once(on: On) {
    let Some((venue, _dir)) = venue(on, ECHO).await else { return };
    let id = set(&venue, json!({"every": "10s", "catchUp": "all"})).await;
    for round in 1..=10_u64 {
        venue.venue.clock.advance(TEN * 3);
        let firing = (0..8).map(|_| trellis::venue::ingress::timers::fire_due(&venue.venue, &venue.owner));
        for fired in join_all(firing).await {
            assert!(!fired.unwrap().more);
        }
        assert_eq!(all_jobs(&venue).await.len() as u64, round * 3);
        assert_eq!(get(&venue, &id).await.fired, round * 3);
    }
    check_indexes(&venue).await;
}

async fn a_timer_between_two_sweeps_fires_on_time(on: On) {
    let Some((mut venue, _dir)) = venue(on, ECHO).await else { return };
    venue.sweep = Duration::from_hours(1);
    let id = set(&venue, json!({"every": "10s"})).await;
    venue.worker();
    // Its first sweep must have seen the timer before time goes on.
    let sweeps = || venue.venue.metrics.sweeps.get();
    until("it sweeps", async || sweeps() > 0).await;
    for n in 1..=5 {
        venue.venue.clock.advance(TEN);
        until("it fires", async || get(&venue, &id).await.fired == n).await;
    }
    assert!(venue.venue.clock.now().elapsed_since(START) < venue.sweep, "no other sweep was due");
}

/// The venue over another store.
fn over(venue: &TestVenue, store: Arc<dyn Store>) -> Venue {
    let Venue { bus, clock, name, key, secrets, boundaries, spend, quota, metrics, .. } = &*venue.venue;
    Venue {
        store,
        bus: Arc::clone(bus),
        clock: clock.clone(),
        name: name.clone(),
        key: key.clone(),
        catalog: trellis::ops::catalog(true),
        secrets: secrets.clone(),
        boundaries: boundaries.clone(),
        spend: spend.clone(),
        quota: quota.clone(),
        prompts: trellis::venue::context::PromptCache::default(),
        meters: trellis::venue::rates::Meters::default(),
        local: trellis::venue::local_worker::LocalWorker::default(),
        fleet: trellis::venue::registry::FleetCache::default(),
        history: trellis::venue::history::History::default(),
        metrics: Arc::clone(metrics),
        tracer: trellis::process::tracer::Tracer::default(),
    }
}

async fn a_crash_at_any_write_of_a_fire_is_one_fire(on: On) {
    for kind in ["task", "message"] {
        let mut call = 0;
        loop {
            call += 1;
            let mut hit = false;
            for at in [FaultAt::Before, FaultAt::After] {
                let Some((venue, _dir)) = venue(on, ECHO).await else { return };
                let id = set(&venue, json!({"every": "10s", "kind": kind, "overlap": "skip"})).await;
                venue.venue.clock.advance(TEN);
                let faulty = FaultyStore::new(Arc::clone(&venue.venue.store), FaultPlan::From { n: call, at });
                let dying = over(&venue, faulty.clone());
                let died = trellis::venue::ingress::timers::fire_due(&dying, &venue.owner).await;
                hit |= died.is_err();
                // Another process goes on, later.
                pass(&venue, Duration::from_secs(3)).await;
                let timer = get(&venue, &id).await;
                let next = Some(START.plus(TEN * 2));
                assert_eq!((timer.fired, timer.skipped, timer.next), (1, 0, next), "{kind} {call} {at:?}");
                let key = SessionKey { agent: "a".parse().unwrap(), session: "main".parse().unwrap() };
                let facts = venue.venue.store.sessions(&venue.owner, Some(&key.agent), None, 10).await.unwrap();
                let events: usize = facts.iter().map(|facts| facts.mailbox.len()).sum();
                assert_eq!(events, 1, "{kind} {call} {at:?}");
                check_indexes(&venue).await;
            }
            if !hit {
                break;
            }
        }
        assert!(call > 2, "admission and move are two writes at least");
    }
}

async fn a_fire_sent_before_a_crash_counts_however_late_it_is_seen(on: On) {
    for catch_up in ["one", "all", "skip"] {
        for call in 1..=3 {
            let Some((venue, _dir)) = venue(on, ECHO).await else { return };
            let id = set(&venue, json!({"every": "1h", "catchUp": catch_up})).await;
            venue.venue.clock.advance(Duration::from_hours(1));
            let plan = FaultPlan::From { n: call, at: FaultAt::Before };
            let dying = over(&venue, FaultyStore::new(Arc::clone(&venue.venue.store), plan));
            let _ = trellis::venue::ingress::timers::fire_due(&dying, &venue.owner).await;
            // It is looked at again when its time has long passed.
            pass(&venue, Duration::from_mins(30)).await;
            let timer = get(&venue, &id).await;
            assert_eq!(timer.fired, all_jobs(&venue).await.len() as u64, "{catch_up} {call}");
            assert_eq!(timer.fired + timer.skipped, 1, "{catch_up} {call}");
            check_indexes(&venue).await;
        }
    }
}

#[tokio::test]
async fn timers_survive_a_restart_and_catch_up() {
    let clock = Clock::manual(START);
    let (first, dir) = TestVenue::embedded_at(ECHO, clock.clone()).await;
    first.agent("a", json!({})).await;
    let mut ids = Vec::new();
    for catch_up in ["one", "all", "skip"] {
        ids.push(set(&first, json!({"every": "1h", "catchUp": catch_up})).await);
    }
    let once = set(&first, json!({"after": "30m"})).await;
    let late = set(&first, json!({"at": "2026-01-01T01:00:00Z", "catchUp": "skip"})).await;
    drop(first);
    clock.advance(Duration::from_mins(5 * 60 + 30));
    let venue = TestVenue::reopened(dir.path(), ECHO, clock).await;
    pass(&venue, Duration::ZERO).await;
    for (id, (fired, skipped)) in ids.iter().zip([(1, 4), (5, 0), (0, 5)]) {
        let timer = get(&venue, id).await;
        assert_eq!((timer.fired, timer.skipped), (fired, skipped), "{:?}", timer.catch_up);
        assert_eq!(timer.next, Some(START.plus(Duration::from_hours(6))));
    }
    let once = get(&venue, &once).await;
    assert_eq!((once.fired, &once.phase, once.next), (1, &TimerPhase::Fired, None));
    let late = get(&venue, &late).await;
    assert_eq!((late.fired, late.skipped, &late.phase), (0, 1, &TimerPhase::Fired));
    assert_eq!(all_jobs(&venue).await.len(), 7);
    check_indexes(&venue).await;
    // What fires no more is kept for a day.
    pass(&venue, Duration::from_hours(25)).await;
    assert!(timers::get(&venue.venue, &venue.owner, &once.id).await.unwrap().0.is_none());
    check_indexes(&venue).await;
}

async fn overlap_skip_leaves_out_while_the_last_one_is_not_finished(on: On) {
    let Some((venue, _dir)) = venue(on, ECHO).await else { return };
    let skips = set(&venue, json!({"every": "10s", "overlap": "skip", "input": "skips"})).await;
    let queues = set(&venue, json!({"every": "10s", "input": "queues"})).await;
    let told = set(&venue, json!({"every": "10s", "overlap": "skip", "kind": "message"})).await;
    for _ in 0..3 {
        pass(&venue, TEN).await;
    }
    for (id, counts) in [(&skips, (1, 2)), (&queues, (3, 0)), (&told, (1, 2))] {
        let timer = get(&venue, id).await;
        assert_eq!((timer.fired, timer.skipped), counts);
    }
    // Its job ends: the next one runs.
    let job = get(&venue, &skips).await.last.unwrap().job.unwrap();
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    pass(&venue, TEN).await;
    assert_eq!(get(&venue, &skips).await.fired, 2);
    // Its message is read: the next one is sent.
    venue.worker();
    until("it is read", async || {
        let agent: AgentId = "a".parse().unwrap();
        let sessions = venue.venue.store.sessions(&venue.owner, Some(&agent), None, 100).await.unwrap();
        sessions.iter().all(|session| session.mailbox.is_empty())
    })
    .await;
    pass(&venue, TEN).await;
    assert_eq!(get(&venue, &told).await.fired, 2);
}

/// Writes the gate of `a`: whether it runs, and how much its mailboxes hold.
async fn gate(venue: &TestVenue, status: GateStatus, mailbox: u32) {
    let gate = Gate { status, concurrency: 8, mailbox, busy: BusyPolicy::Queue };
    let change = DocEffect::Put(Bytes::from(gate.encode()));
    let write = DocWrite { key: keys::agent_gate(&"a".parse().unwrap()), expect: Expect::Any, change };
    venue.venue.store.write(venue.venue.now(), &venue.owner, &[write]).await.unwrap();
}

async fn fires_retry_a_full_mailbox_and_queue_while_suspended(on: On) {
    let Some((venue, _dir)) = venue(on, ECHO).await else { return };
    gate(&venue, GateStatus::Suspended, 1).await;
    let id = set(&venue, json!({"every": "1m", "kind": "message"})).await;
    pass(&venue, Duration::from_mins(1)).await;
    assert_eq!((get(&venue, &id).await.fired, get(&venue, &id).await.tries), (1, 0), "it queues");
    pass(&venue, Duration::from_mins(1)).await;
    let full = get(&venue, &id).await;
    assert_eq!((full.fired, full.tries, full.next), (1, 1, Some(START.plus(Duration::from_mins(2)))));
    let listed = run(&venue, "v/ops/timer/list", json!({})).await;
    assert!(listed["items"][0]["waits"].as_str().unwrap().contains("mailbox is full"), "{listed}");
    check_indexes(&venue).await;
    gate(&venue, GateStatus::Suspended, 5).await;
    pass(&venue, Duration::from_secs(5)).await;
    let through = get(&venue, &id).await;
    assert_eq!((through.fired, through.tries, through.next), (2, 0, Some(START.plus(Duration::from_mins(3)))));
}

async fn timers_of_a_removed_agent_fail_and_say_so(on: On) {
    let Some((venue, _dir)) = venue(on, ECHO).await else { return };
    let id = set(&venue, json!({"every": "10s"})).await;
    let other = set(&venue, json!({"every": "20s"})).await;
    let agent: AgentId = "a".parse().unwrap();
    let keys = [keys::agent(&agent), keys::agent_gate(&agent)];
    let gone = keys.map(|key| DocWrite { key, expect: Expect::Any, change: DocEffect::Delete });
    venue.venue.store.write(venue.venue.now(), &venue.owner, &gone).await.unwrap();
    pass(&venue, TEN).await;
    let failed = |timer: trellis::domain::timer::Timer| match timer.phase {
        TimerPhase::Failed { error } => error,
        phase => panic!("expected it failed, got {phase:?}"),
    };
    assert_eq!(failed(get(&venue, &id).await), "agent `a` was removed");
    // Another agent of its name isn't meant.
    venue.agent("a", json!({})).await;
    pass(&venue, TEN).await;
    assert!(failed(get(&venue, &other).await).contains("another one has its name"));
    assert!(all_jobs(&venue).await.is_empty());
    assert_eq!(run(&venue, "v/ops/timer/list", json!({})).await["total"], 0);
    let kept = run(&venue, "v/ops/timer/list", json!({"all": true, "agentId": "a"})).await;
    assert_eq!((&kept["total"], &kept["items"][0]["state"]), (&json!(2), &json!("failed")));
    check_indexes(&venue).await;
}

async fn deleting_an_agent_ends_its_timers_at_once(on: On) {
    let Some((venue, _dir)) = venue(on, ECHO).await else { return };
    venue.agent("b", json!({})).await;
    let id = set(&venue, json!({"every": "10s"})).await;
    let other = set(&venue, json!({"every": "10s", "agentId": "b"})).await;
    trellis::venue::agents::deletion::terminate(&venue.venue, &venue.owner, &"a".parse().unwrap()).await.unwrap();
    assert_eq!(get(&venue, &id).await.phase, TimerPhase::Failed { error: "agent `a` was deleted".into() });
    let late = json!({"agentId": "a", "input": 1, "every": "1h"});
    let refused = call_as(&venue.venue, &boss(&venue.owner), None, "v/ops/agent/trigger", late).await.unwrap_err();
    assert!(refused.to_string().contains("terminated"), "{refused}");
    pass(&venue, TEN).await;
    assert_eq!((all_jobs(&venue).await.len(), get(&venue, &other).await.fired), (1, 1));
    check_indexes(&venue).await;
}
