//! Timers as they are set: what is refused, what replaces what, by callers and by turns.

use super::{ECHO, On, START, all_jobs, boss, call_as, check_indexes, get, pass, run, set, until, venue};
use crate::support::cli::Up;
use crate::support::http::Server;
use crate::support::operate::on;
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::job::JobStatus;
use trellis::domain::limits::TIMERS_PER_AGENT;
use trellis::domain::timer::{Timer, TimerPhase};
use trellis::venue::operation::Caller;
use trellis::venue::timers;

const TRIGGER: &str = "v/ops/agent/trigger";

#[tokio::test]
async fn bad_input_is_refused_with_the_reason() {
    let (venue, _dir) = venue(On::Embedded, ECHO).await.unwrap();
    for (how, part) in [
        (json!({}), "expected one of `at`, `after`, `every`, `cron`, got 0"),
        (json!({"at": 1, "every": "1h"}), "got 2"),
        (json!({"every": "500ms"}), "`every`: expected at least 1s"),
        (json!({"every": "soon"}), "`every`: expected a duration such as"),
        (json!({"at": "noon"}), "`at`: expected a time such as"),
        (json!({"at": "2025-12-31T23:00:00Z"}), "has passed, it is 2026-01-01T00:00:00.000Z"),
        (json!({"at": "2060-01-01T00:00:00Z"}), "farther away"),
        (json!({"cron": "0 25 * * *"}), "`cron`: hour `25`"),
        (json!({"cron": "0 0 30 2 *"}), "it would never fire"),
        (json!({"cron": "0 9 * * *", "timezone": "Mars/Base"}), "`timezone`: no time zone `Mars/Base`"),
        (json!({"every": "1h", "catchUp": "some"}), "/catchUp"),
        (json!({"every": "1h", "agentId": "b"}), "no agent `b`"),
        (json!({"every": "1h", "name": ""}), "`name`"),
        (json!({"every": "1h", "input": "x".repeat(150_000)}), "expected at most 131072"),
        (json!({"every": "1h", "context": [{"with": 1}]}), "grant"),
    ] {
        let mut input = json!({"agentId": "a", "input": "tick"});
        input.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
        let refused = call_as(&venue.venue, &boss(&venue.owner), None, TRIGGER, input).await;
        let refused = refused.map_or_else(|error| error.to_string(), |set| format!("{set} for `{part}`"));
        assert!(refused.contains(part) && !refused.contains("for `"), "{refused}");
    }
    assert!(timers::list(&venue.venue, &venue.owner, None, true, 0, 1_000).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_timer_needs_the_rights_of_its_request() {
    let (venue, _dir) = venue(On::Embedded, ECHO).await.unwrap();
    let holding = |cans: &[&str]| {
        let caps = cans.iter().map(|can| Capability { with: "g/a".into(), can: (*can).into() }).collect();
        Caller::new(venue.owner.clone(), "t/u".into(), Authority::new(Some(caps)))
    };
    let input = |kind: &str| json!({"agentId": "a", "input": 1, "every": "1h", "kind": kind});
    for (cans, kind, allowed) in [
        (&["agent/trigger", "agent/request"][..], "task", true),
        (&["agent/trigger", "agent/message"], "message", true),
        (&["agent/trigger", "agent/message"], "task", false),
        (&["agent/request"], "task", false),
        (&["crud"], "message", false),
    ] {
        let set = call_as(&venue.venue, &holding(cans), None, TRIGGER, input(kind)).await;
        assert_eq!(set.is_ok(), allowed, "{cans:?} {kind}: {set:?}");
    }
    let id = timers::list(&venue.venue, &venue.owner, None, false, 0, 1_000).await.unwrap().items.remove(0).id;
    let cancel = json!({"timer": id});
    let reader = holding(&["crud/read", "agent/request"]);
    assert!(call_as(&venue.venue, &reader, None, "v/ops/timer/cancel", cancel.clone()).await.is_err());
    let kept = get(&venue, &id).await;
    assert!(kept.is_active());
    // Who may not read the agent is not told that there is such a timer.
    let stranger = holding(&["agent/request"]);
    for (path, key) in [("timer/cancel", "timer"), ("scheduler/cancel", "handle"), ("scheduler/trigger", "handle")] {
        let unknown = "ab".repeat(16);
        let [answer, other] = [id.to_string(), unknown.clone()].map(|id| json!({key: id}));
        let answer = call_as(&venue.venue, &stranger, None, &format!("v/ops/{path}"), answer).await;
        let other = call_as(&venue.venue, &stranger, None, &format!("v/ops/{path}"), other).await;
        assert_eq!(format!("{answer:?}").replace(&id.to_string(), &unknown), format!("{other:?}"), "{path}");
        assert!(get(&venue, &id).await.is_active(), "{path}");
    }
    // It acts under no more than its setter had.
    assert!(kept.submission.envelope.bound.permits("crud/read", on("w/x")).is_err());
    assert!(call_as(&venue.venue, &holding(&["agent/trigger"]), None, "v/ops/timer/cancel", cancel).await.is_ok());
    assert_eq!(get(&venue, &id).await.phase, TimerPhase::Cancelled);
    check_indexes(&venue).await;
}

#[tokio::test]
async fn an_agent_has_a_hundred_timers_at_most() {
    let (venue, _dir) = venue(On::Embedded, ECHO).await.unwrap();
    let mut last = None;
    for _ in 0..TIMERS_PER_AGENT {
        last = Some(set(&venue, json!({"every": "1h"})).await);
    }
    let more = json!({"agentId": "a", "input": 1, "every": "1h"});
    let refused = call_as(&venue.venue, &boss(&venue.owner), None, TRIGGER, more.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("has 100 timers"), "{refused}");
    run(&venue, "v/ops/timer/cancel", json!({"timer": last})).await;
    call_as(&venue.venue, &boss(&venue.owner), None, TRIGGER, more).await.unwrap();
}

#[tokio::test]
async fn setting_a_timer_again_changes_nothing_or_replaces_it() {
    let (venue, _dir) = venue(On::Embedded, ECHO).await.unwrap();
    let daily = |cron: &str| json!({"agentId": "a", "input": 1, "cron": cron, "name": "daily"});
    let set = async |key: &str, input: Value| {
        call_as(&venue.venue, &boss(&venue.owner), Some(key), TRIGGER, input).await.unwrap()
    };
    let first = set("k1", daily("0 9 * * *")).await;
    assert_eq!(first["next"], "2026-01-01T09:00:00.000Z");
    assert_eq!(set("k2", daily("0 9 * * *")).await, first);
    let id = serde_json::from_value(first["timer"].clone()).unwrap();
    assert_eq!(get(&venue, &id).await.generation, 1);
    let moved = set("k3", daily("0 7 * * *")).await;
    assert_eq!((&moved["timer"], &moved["next"]), (&first["timer"], &json!("2026-01-01T07:00:00.000Z")));
    assert_eq!(get(&venue, &id).await.generation, 2);
    // Without a name the caller's own key is the name.
    let once = json!({"agentId": "a", "input": 1, "after": "1h"});
    let timer = set("k4", once.clone()).await;
    pass(&venue, Duration::from_mins(10)).await;
    assert_eq!(set("k4", once.clone()).await, timer);
    assert_ne!(set("k5", once).await["timer"], timer["timer"]);
    check_indexes(&venue).await;
    // The one that was replaced doesn't fire: at seven and at nine only what is set now does.
    pass(&venue, Duration::from_hours(10)).await;
    assert_eq!(get(&venue, &id).await.fired, 1);
    assert_eq!(all_jobs(&venue).await.len(), 3);
}

const TURNS: &str = r#"
[[rule]]
when = { agent = "a", turn = 1, text = "look at the oven" }
then = { text = "the oven is off" }

[[rule]]
when = { agent = "a", turn = 1 }
then = { calls = [
    { tool = "agent_wake", arguments = { after = "2h", note = "not this one" } },
    { tool = "agent_wake", arguments = { after = "1h", note = "look at the oven" } },
    { tool = "agent_trigger", arguments = { agentId = "b", input = "sweep", every = "30m" } },
    { tool = "agent_trigger", arguments = { agentId = "b", input = "sweep", every = "5s" } },
    { tool = "agent_wake", arguments = { after = "1s" } },
] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_wakes_itself_and_triggers_others_once() {
    let (mut venue, _dir) = venue(On::Embedded, TURNS).await.unwrap();
    venue.sweep = Duration::from_mins(1);
    venue.agent("a", json!({"tools": ["agent/wake", "agent/trigger", "timer/list"]})).await;
    venue.agent("b", json!({})).await;
    venue.worker();
    let done = venue.run("a", "t1", json!("go")).await;
    let session = done.head.session.to_string();
    let said = json!(venue.turns("a", &session).await[0].said).to_string();
    assert_eq!(said.matches("expected at least 10s").count(), 2, "a turn's timers are not so fast: {said}");
    let set = timers::list(&venue.venue, &venue.owner, None, true, 0, 1_000).await.unwrap().items;
    let [trigger, wake] = set.as_slice() else { panic!("expected two timers, got {set:#?}") };
    assert_eq!((&wake.name, wake.submission.session_id.as_ref()), (&Some("wake".into()), Some(&done.head.session)));
    assert_eq!(wake.next, Some(START.plus(Duration::from_hours(1))), "the second replaces the first");
    assert_eq!(trigger.submission.caller.as_deref(), Some("agent:a"));
    assert!(trigger.submission.envelope.holders.contains(&"agent:a".to_owned()));
    for n in 1..=2 {
        venue.venue.clock.advance(Duration::from_mins(30));
        until("the other is triggered", async || get(&venue, &trigger.id).await.fired == n).await;
    }
    until("it is woken", async || venue.turns("a", &session).await.len() == 3).await;
    let turns = venue.turns("a", &session).await;
    assert!(json!(turns[2].said).to_string().contains("the oven is off"), "{:?}", turns[2].said);
    until("the other has run twice", async || {
        all_jobs(&venue).await.iter().filter(|job| job.status == JobStatus::Complete).count() == 3
    })
    .await;
    // It is sent before it is moved on.
    until("it has fired", async || get(&venue, &wake.id).await.phase == TimerPhase::Fired).await;
    assert_eq!(get(&venue, &trigger.id).await.fired, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_timers_are_set_listed_and_cancelled() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let timers = "/api/v1/agents/clerk/timers";
    let set =
        server.post(timers, json!({"input": "x", "cron": "0 9 * * *", "timezone": "Europe/Berlin"})).await.body(201);
    server.post(timers, json!({"input": "x", "cron": "0 99 * * *"})).await.is_problem(400, "hour `99`");
    server.post("/api/v1/agents/nobody/timers", json!({"input": 1, "every": "1h"})).await.is_problem(404, "no agent");
    server.post(timers, json!([])).await.is_problem(400, "expected a JSON object as the body");
    let listed = server.get("/api/v1/timers?agentId=clerk").await.body(200);
    let timer = &listed["items"][0];
    assert_eq!((&listed["total"], &timer["timer"]), (&json!(1), &set["timer"]));
    assert_eq!(
        (&timer["cron"], &timer["timezone"], &timer["state"]),
        (&json!("0 9 * * *"), &json!("Europe/Berlin"), &json!("active"))
    );
    assert_eq!(timer["next"], set["next"]);
    let path = format!("/api/v1/timers/{}", set["timer"].as_str().unwrap());
    assert_eq!(server.send(Method::DELETE, &path, &[], "").await.body(200)["state"], "cancelled");
    assert_eq!(server.send(Method::DELETE, &path, &[], "").await.body(200)["state"], "cancelled");
    assert_eq!(server.get("/api/v1/timers").await.body(200)["total"], 0);
    assert_eq!(server.get("/api/v1/timers?all=true").await.body(200)["total"], 1);
    let unknown = format!("/api/v1/timers/{}", "0".repeat(32));
    server.send(Method::DELETE, &unknown, &[], "").await.is_problem(404, "no timer");
    server.send(Method::DELETE, "/api/v1/timers/x", &[], "").await.is_problem(400, "32 hexadecimal digits");
}

#[test]
fn by_command_a_timer_is_set_and_survives_kill_9() {
    let mut up = Up::start();
    up.agent("helper", "echo");
    let every = up.run(&["timer", "set", "helper", "report", "--cron", "@yearly", "--name", "yearly"]).ok();
    let once = up.run(&["timer", "set", "helper", "remind me", "--after", "2s"]).ok();
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    let jobs = |up: &Up| up.run(&["job", "list", "--output", "ndjson"]).ok();
    while !jobs(&up).contains("COMPLETE") {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(jobs(&up).lines().count(), 1);
    assert!(jobs(&up).contains("remind me"));
    // It is sent before it is moved on.
    while up.run(&["timer", "list"]).ok().contains(&once) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let list = up.run(&["timer", "list"]).ok();
    assert!(list.contains(&every) && list.contains("yearly"), "{list}");
    let all = up.run(&["timer", "list", "--all", "--output", "ndjson"]).ok();
    assert!(all.lines().any(|line| line.contains(&once) && line.contains("\"fired\"")), "{all}");
    up.run(&["timer", "cancel", &every]).expect(0, "");
    up.run(&["timer", "list"]).expect(0, "no timers");
    up.run(&["timer", "cancel", &"0".repeat(32)]).expect(5, "no timer");
    up.run(&["timer", "cancel", "x"]).expect(2, "32 hexadecimal digits");
    up.run(&["timer", "set", "helper", "x"]).expect(2, "--cron");
    up.run(&["timer", "set", "helper", "x", "--cron", "0 9 * *"]).expect(2, "expected 5 fields");
    up.run(&["timer", "set", "nobody", "x", "--every", "1h"]).expect(5, "no agent `nobody`");
}

#[tokio::test]
async fn a_timer_does_not_outlive_the_request_that_sets_it() {
    let (venue, _dir) = venue(On::Embedded, ECHO).await.unwrap();
    let mut caller = boss(&venue.owner);
    caller.envelope.deadline = Some(START.plus(Duration::from_mins(30)));
    let set = async |how: Value| {
        let mut input = json!({"agentId": "a", "input": 1});
        input.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
        call_as(&venue.venue, &caller, None, TRIGGER, input).await
    };
    let refused = set(json!({"after": "1h"})).await.unwrap_err();
    assert!(refused.to_string().contains("would never fire"), "{refused}");
    let set = set(json!({"every": "20m"})).await.unwrap();
    let id = serde_json::from_value(set["timer"].clone()).unwrap();
    pass(&venue, Duration::from_mins(20)).await;
    let Timer { fired, phase, .. } = get(&venue, &id).await;
    assert_eq!((fired, phase), (1, TimerPhase::Fired));
}

/// Kept in use: a venue by the system's clock sweeps as it did.
#[tokio::test(flavor = "multi_thread")]
async fn by_the_system_s_clock_a_timer_fires_too() {
    let (venue, _dir) = TestVenue::embedded(ECHO).await;
    venue.agent("a", json!({})).await;
    venue.worker();
    let id = set(&venue, json!({"after": "50ms"})).await;
    until("it fires", async || get(&venue, &id).await.fired == 1).await;
    let job = get(&venue, &id).await.last.unwrap().job.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
}
