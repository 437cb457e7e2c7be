//! Timers: set by callers and by turns, fired on time and once, whatever happens in between.

mod firing;
mod fleet;
mod creation;

use crate::support::both_stores::On;
use crate::support::operate::{boss, operate_once};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::ids::EventId;
use trellis::domain::job::Job;
use trellis::domain::time::Millis;
use trellis::domain::timer::{Timer, TimerId};
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::Venue;
use trellis::venue::jobs;
use trellis::venue::operation::{Caller, OpError};
use trellis::venue::timers;

/// 2026-01-01T00:00:00Z, a Thursday.
const START: Millis = Millis(1_767_225_600_000);

const ECHO: &str = "[[rule]]\nthen = { text = \"done {{input}}\" }\n";

/// A venue whose clock stands until it is moved, with the agent `a`; `None` without a server for it.
async fn venue(on: On, rules: &str) -> Option<(TestVenue, tempfile::TempDir)> {
    let clock = Clock::manual(START);
    let (venue, dir) = on.venue(rules, clock).await?;
    venue.agent("a", json!({})).await;
    Some((venue, dir))
}

async fn call_as(
    venue: &Venue,
    caller: &Caller,
    key: Option<&str>,
    path: &str,
    input: Value,
) -> Result<Value, OpError> {
    operate_once(venue, caller, key.map(|key| EventId::new(key).unwrap()), path, input).await
}

/// An operation by somebody who may do everything.
async fn run(venue: &TestVenue, path: &str, input: Value) -> Value {
    call_as(&venue.venue, &boss(&venue.owner), None, path, input).await.unwrap()
}

/// Sets a timer for `a`; `how` says when, and whatever else.
async fn set(venue: &TestVenue, how: Value) -> TimerId {
    let mut input = json!({"agentId": "a", "input": "tick"});
    input.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
    let set = run(venue, "v/ops/agent/trigger", input).await;
    TimerId::new(set["timer"].as_str().unwrap()).unwrap()
}

/// A timer as it is stored.
async fn get(venue: &TestVenue, id: &TimerId) -> Timer {
    timers::get(&venue.venue, &venue.owner, id).await.unwrap().0.unwrap()
}

/// Moves the clock and fires what is due.
async fn pass(venue: &TestVenue, time: Duration) {
    venue.venue.clock.advance(time);
    while trellis::venue::ingress::timers::fire_due(&venue.venue, &venue.owner).await.unwrap().more {}
}

/// All jobs, the newest first.
async fn all_jobs(venue: &TestVenue) -> Vec<Job> {
    jobs::list(&venue.venue, &venue.owner, 0, 1_000).await.unwrap().items
}

/// Every timer has one place among those that are due, and an active one a place with its agent.
async fn check_indexes(venue: &TestVenue) {
    let scan = async |prefix: &str| {
        let found = venue.venue.store.scan(&venue.owner, prefix, None, false, 1_000).await.unwrap();
        found.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    let all = timers::list(&venue.venue, &venue.owner, None, true, 0, 1_000).await.unwrap().items;
    let mut due: Vec<_> = all.iter().map(|timer| keys::timer_due(timer.due, &timer.id)).collect();
    due.sort();
    assert_eq!(scan(keys::TIMERS_DUE).await, due);
    let active = all.iter().filter(|timer| timer.is_active());
    let mut active: Vec<_> = active.map(|timer| keys::agent_timer(&timer.agent, &timer.id)).collect();
    active.sort();
    assert_eq!(scan("m.of/").await, active);
}

/// Waits until something holds; it may take a while on a slow machine.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within a minute");
}
