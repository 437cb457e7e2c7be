//! What was revoked starts nothing any more: tasks, messages, timers, agents that were made, children.

mod restarted_work;

use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::Authority;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::ids::JobId;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::time::Millis;
use trellis::domain::timer::{Timer, TimerId, TimerPhase};
use trellis::process::clock::Clock;
use trellis::venue::jobs;
use trellis::venue::operation::Caller;
use trellis::venue::timers;

const START: Millis = Millis(1_767_225_600_000);

const RULES: &str = r#"
[[rule]]
when = { agent = "maker", turn = 1 }
then = { calls = [
    { tool = "agent_create", arguments = { agentId = "made", config = { model = { provider = "scripted", name = "rules" } } } },
] }

[[rule]]
when = { agent = "looper" }
then = { calls = [{ tool = "test_delay", arguments = { delay = 300 } }] }

[[rule]]
when = { agent = "slow" }
then = { text = "too late", delay_ms = 1500 }

[[rule]]
when = { agent = "top", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "idle", input = "go", wait = 0 } }] }

[[rule]]
then = { text = "done" }
"#;

async fn venue(on: On, clock: Clock) -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir) = on.venue(RULES, clock).await?;
    for agent in ["a", "maker", "looper", "slow", "top", "idle"] {
        venue.agent(agent, json!({})).await;
    }
    Some((venue, dir))
}

/// Somebody who came by a token of this id.
fn by(venue: &TestVenue, grant: &str) -> Caller {
    let envelope = Envelope { grants: vec![grant.to_owned()], ..Envelope::default() };
    Caller { envelope, ..Caller::new(venue.owner.clone(), "local/ann".into(), Authority::without_limits()) }
}

async fn run(venue: &TestVenue, caller: &Caller, operation: &str, input: Value) -> Value {
    operate(&venue.venue, caller, &format!("v/ops/{operation}"), input).await.unwrap()
}

async fn request(venue: &TestVenue, caller: &Caller, agent: &str) -> JobId {
    let asked = run(venue, caller, "agent/request", json!({"agentId": agent, "input": "go", "timeout": 0})).await;
    JobId::new(asked["job"].as_str().unwrap()).unwrap()
}

async fn revoke(venue: &TestVenue, what: Value) -> Value {
    run(venue, &boss(&venue.owner), "policy/revoke", what).await
}

async fn every(venue: &TestVenue, caller: &Caller, agent: &str) -> TimerId {
    let input = json!({"agentId": agent, "input": "tick", "every": "10s"});
    let set = run(venue, caller, "agent/trigger", input).await;
    TimerId::new(set["timer"].as_str().unwrap()).unwrap()
}

async fn timer(venue: &TestVenue, id: &TimerId) -> Timer {
    timers::get(&venue.venue, &venue.owner, id).await.unwrap().0.unwrap()
}

async fn pass(venue: &TestVenue, seconds: u64) {
    venue.venue.clock.advance(Duration::from_secs(seconds));
    while trellis::venue::ingress::timers::fire_due(&venue.venue, &venue.owner).await.unwrap().more {}
}

/// Calls of a model for an agent.
fn calls(venue: &TestVenue, agent: &str) -> usize {
    let of = |call: &Value| call["turn"].as_str().is_some_and(|turn| turn.contains(&format!("/{agent}/")));
    venue.model_calls().iter().filter(|call| call["event"] == "started" && of(call)).count()
}

fn is_refused(job: &Job, name: &str) {
    let result = job.result.as_ref().unwrap();
    assert_eq!((job.status, result.error_code), (JobStatus::Failed, Some(ErrorCode::CapDenied)), "{result:?}");
    let error = result.error.as_ref().unwrap();
    assert!(error.contains("nothing starts any more under") && error.contains(name), "{error}");
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let mut names: Vec<_> = list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn sorted<T: ToString>(list: &[T]) -> Vec<String> {
    let mut list: Vec<_> = list.iter().map(ToString::to_string).collect();
    list.sort();
    list
}

on_both! {
    timers_agents_and_tasks_of_a_revoked_grant_start_nothing
    a_message_of_a_revoked_grant_is_left_out_of_the_turn
    revocation_stops_unstarted_children_and_ends_tasks
    a_timer_fires_for_no_time_after_the_end_of_its_token
}

async fn timers_agents_and_tasks_of_a_revoked_grant_start_nothing(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::manual(START)).await else { return };
    let (lost, kept) = (by(&venue, "jti-lost"), by(&venue, "jti-kept"));
    let config = json!({"model": {"provider": "scripted", "name": "rules"}});
    run(&venue, &lost, "agent/create", json!({"agentId": "mine", "config": config})).await;
    let (own, of_mine, free) =
        (every(&venue, &lost, "a").await, every(&venue, &kept, "mine").await, every(&venue, &kept, "a").await);
    let (ours, of_agent, theirs) =
        (request(&venue, &lost, "a").await, request(&venue, &kept, "mine").await, request(&venue, &kept, "a").await);
    let answer = revoke(&venue, json!({"grant": "jti-lost"})).await;
    let stops = &answer["stops"];
    assert_eq!(stops["agents"], json!(["mine"]), "{answer}");
    assert_eq!(names(&stops["timers"], "timer"), sorted(&[own.clone(), of_mine.clone()]));
    assert_eq!(names(&stops["jobs"], "job"), sorted(&[ours.clone(), of_agent.clone()]));
    assert_eq!(stops["more"], false);
    venue.worker();
    is_refused(&venue.ended(&ours).await, "grant `jti-lost`");
    is_refused(&venue.ended(&of_agent).await, "grant `jti-lost`");
    assert_eq!(venue.ended(&theirs).await.status, JobStatus::Complete);
    assert_eq!(calls(&venue, "a"), 1);
    pass(&venue, 10).await;
    for id in [&own, &of_mine] {
        let timer = timer(&venue, id).await;
        assert!(
            matches!(&timer.phase, TimerPhase::Failed { error } if error.contains("grant `jti-lost`")),
            "{:?}",
            timer.phase
        );
        assert_eq!(timer.fired, 0);
    }
    assert_eq!(timer(&venue, &free).await.fired, 1, "another's goes on");
    // What is made out of what is revoked is revoked, too.
    run(&venue, &kept, "agent/fork", json!({"agentId": "mine", "to": "copy"})).await;
    is_refused(&venue.ended(&request(&venue, &kept, "copy").await).await, "grant `jti-lost`");
    // Who says all of it anew answers for it; and a revocation can be taken back.
    let overwrite = json!({"agentId": "copy", "config": config, "overwrite": true});
    run(&venue, &kept, "agent/create", overwrite).await;
    assert_eq!(venue.ended(&request(&venue, &kept, "copy").await).await.status, JobStatus::Complete);
    let operator = Caller { operator: true, ..boss(&venue.owner) };
    run(&venue, &operator, "policy/restore", json!({"id": answer["revoked"]})).await;
    assert_eq!(venue.ended(&request(&venue, &kept, "mine").await).await.status, JobStatus::Complete);
}

async fn a_message_of_a_revoked_grant_is_left_out_of_the_turn(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    for (grant, text) in [("jti-kept", "one"), ("jti-lost", "two"), ("jti-kept", "three")] {
        let message = json!({"agentId": "a", "message": text, "sessionId": "s"});
        run(&venue, &by(&venue, grant), "agent/message", message).await;
    }
    revoke(&venue, json!({"grant": "jti-lost"})).await;
    venue.worker();
    let mut turns = Vec::new();
    for _ in 0..1_000 {
        turns = venue.turns("a", "s").await;
        if turns.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let heard: Vec<_> = turns.iter().map(|turn| turn.events.len()).collect();
    assert_eq!((heard, calls(&venue, "a")), (vec![1, 2], 1));
}

async fn revocation_stops_unstarted_children_and_ends_tasks(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::system()).await else { return };
    venue.worker();
    let lost = by(&venue, "jti-lost");
    run(&venue, &boss(&venue.owner), "agent/suspend", json!({"agentId": "idle"})).await;
    let made = request(&venue, &lost, "maker").await;
    assert_eq!(venue.ended(&made).await.status, JobStatus::Complete);
    let (top, looper) = (request(&venue, &lost, "top").await, request(&venue, &lost, "looper").await);
    let called = |agent: &str| calls(&venue, agent);
    let mut child = None;
    for _ in 0..1_000 {
        let all = jobs::list(&venue.venue, &venue.owner, 0, 100).await.unwrap().items;
        child = all.into_iter().find(|job| job.head.agent.as_str() == "idle").map(|job| job.head.id);
        if child.is_some() && called("looper") > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let child = child.expect("a child was started");
    let answer = revoke(&venue, json!({"grant": "jti-lost"})).await;
    let stops = &answer["stops"];
    assert_eq!(stops["agents"], json!(["made"]), "what its turn has made: {answer}");
    // It counts from when it is written: what runs may have ended before the list was made.
    let seen = jobs::get(&venue.venue, &venue.owner, &looper).await.unwrap().unwrap();
    let stopped = seen.status.is_terminal();
    let expected: Vec<_> =
        [&top, &looper, &child].into_iter().filter(|job| **job != looper || !stopped).cloned().collect();
    let listed = names(&stops["jobs"], "job");
    assert!(listed == sorted(&expected) || listed == sorted(&[top.clone(), looper.clone(), child.clone()]), "{answer}");
    let parents: Vec<_> = stops["jobs"].as_array().unwrap().iter().filter_map(|job| job["parent"].as_str()).collect();
    assert_eq!(parents, [top.as_str()]);
    run(&venue, &boss(&venue.owner), "agent/resume", json!({"agentId": "idle"})).await;
    for job in [&child, &looper, &top] {
        is_refused(&venue.ended(job).await, "grant `jti-lost`");
    }
    assert_eq!((called("idle"), called("top")), (0, 1));
    assert!(called("looper") < 20, "it would have gone on");
    is_refused(&venue.ended(&request(&venue, &boss(&venue.owner), "made").await).await, "grant `jti-lost`");
}

async fn a_timer_fires_for_no_time_after_the_end_of_its_token(on: On) {
    let Some((venue, _dir)) = venue(on, Clock::manual(START)).await else { return };
    let mut ann = by(&venue, "jti");
    ann.envelope.expires = Some(START.plus(Duration::from_secs(25)));
    let late = json!({"agentId": "a", "input": "tick", "after": "30s"});
    let error = operate(&venue.venue, &ann, "v/ops/agent/trigger", late).await.unwrap_err().to_string();
    assert!(error.contains("would never fire: the token behind it ends at 2026-01-01T00:00:25"), "{error}");
    let again = every(&venue, &ann, "a").await;
    let once = run(&venue, &ann, "agent/trigger", json!({"agentId": "a", "input": "once", "after": "20s"})).await;
    let once = TimerId::new(once["timer"].as_str().unwrap()).unwrap();
    pass(&venue, 10).await;
    // Its time came while the token was good: that is when it is judged, not when it is looked at.
    pass(&venue, 100).await;
    for (id, fired) in [(&again, 2), (&once, 1)] {
        let timer = timer(&venue, id).await;
        assert_eq!((timer.fired, &timer.phase), (fired, &TimerPhase::Fired), "{timer:?}");
    }
}
