//! A revocation between two turns, or inside one: nothing is forgotten, done twice or said not to have happened.

use crate::support::both_stores::{On, on_both};
use crate::support::operate;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::Capability;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::authority::policy::Revocation;
use trellis::domain::chat::ChatMessage;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::session::TurnRecord;
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::jobs;
use trellis::venue::ledger;
use trellis::venue::operation::Caller;
use trellis::venue::policy;

const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", text = "hear me" }
then = { text = "heard" }

[[rule]]
when = { agent = "clerk", turn = 1 }
then = { text = "I begin", calls = [
    { tool = "lattice_append", arguments = { path = "w/log", value = "one" } },
    { tool = "lattice_read", arguments = { path = "w/secret/pin" } },
] }

[[rule]]
when = { agent = "clerk", turn = 2 }
then = { text = "the pin is pin4711", calls = [
    { tool = "lattice_append", arguments = { path = "w/list", value = "two" } },
    { tool = "test_delay", arguments = { delay = 2500 } },
] }

[[rule]]
when = { agent = "clerk", turn = 3 }
then = { text = "done" }

[[rule]]
when = { agent = "sender", turn = 1 }
then = { calls = [
    { tool = "agent_request", arguments = { agentId = "idle", input = "work", wait = 0 } },
    { tool = "agent_message", arguments = { agentId = "idle", message = "hello" } },
    { tool = "agent_create", arguments = { agentId = "made", config = { model = { provider = "scripted", name = "rules" } } } },
    { tool = "agent_trigger", arguments = { agentId = "idle", input = "later", after = "1h" } },
    { tool = "test_once", arguments = { paid = true } },
    { tool = "lattice_write", arguments = { path = "w/out", value = 1 } },
    { tool = "lattice_read", arguments = { path = "w/secret/pin" } },
    { tool = "memory_write", arguments = { content = "remember me" } },
    { tool = "test_delay", arguments = { delay = 2500 } },
] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [
    { tool = "lattice_write", arguments = { path = "w/pay", value = 1 } },
    { tool = "test_delay", arguments = { delay = 2500 } },
] }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [
    { tool = "help", arguments = { question = "why?" } },
    { tool = "lattice_append", arguments = { path = "w/out", value = 1 } },
    { tool = "test_delay", arguments = { delay = 2500 } },
] }

[[rule]]
when = { agent = "guest", text = "the code is" }
then = { text = "I look", calls = [
    { tool = "agent_request", arguments = { agentId = "idle", input = "work", wait = 0 } },
    { tool = "lattice_append", arguments = { path = "w/list", value = "two" } },
    { tool = "lattice_read", arguments = { path = "w/secret/pin" } },
    { tool = "test_delay", arguments = { delay = 2500 } },
] }

[[rule]]
then = { text = "heard" }
"#;

/// A venue with a worker; `None` without a server for it.
async fn venue(on: On) -> Option<(TestVenue, tempfile::TempDir)> {
    let (venue, dir) = on.venue(RULES, Clock::system()).await?;
    venue.write("w/secret", json!({"pin": "pin4711"})).await;
    venue.worker();
    venue.agent("clerk", json!({"tools": ["v/ops/test/delay"]})).await;
    Some((venue, dir))
}

/// Waits until the calls of the reply of that number are made, but for its delay.
async fn calls_are_made(venue: &TestVenue, model_calls: usize) {
    while venue.model_calls().iter().filter(|call| call["event"] == "started").count() < model_calls {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(800)).await;
}

fn in_session(session: &str, grants: Option<Value>) -> Submission {
    let context = grants.map(|grants| grants.as_array().unwrap().clone());
    Submission { input: json!("go"), session_id: Some(session.parse().unwrap()), context, ..Submission::default() }
}

fn task() -> Submission {
    in_session("s", None)
}

/// The prompt of a turn as the model got it.
async fn prompt(venue: &TestVenue, agent: &str, turn: u64) -> String {
    let key = SessionKey { agent: agent.parse().unwrap(), session: "s".parse().unwrap() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &key, turn).await.unwrap().unwrap();
    let seen = past.seen.unwrap();
    let assembled = assemble(&seen.inputs.unwrap()).unwrap();
    assert_eq!(assembled.ledger.prompt, seen.ledger.prompt, "the record gives the prompt again");
    let texts = assembled.request.messages.into_iter().map(|message| match message {
        ChatMessage::User { text, .. } | ChatMessage::Tool { text, .. } => text,
        ChatMessage::Assistant { text, calls, .. } => {
            format!("{text} {}", calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>().join(" "))
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Runs the clerk's task with something revoked in its second turn; the turns, and the third prompt.
async fn clerk(venue: &TestVenue, revoked: &str) -> (Vec<TurnRecord>, String) {
    let job = venue.arrive("clerk", "c-1", true, task()).await.job.unwrap();
    calls_are_made(venue, 2).await;
    venue.revoke(revoked).await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete);
    let turns = venue.turns("clerk", "s").await;
    let asked = venue.model_calls().iter().filter(|call| call["event"] == "started").count();
    assert_eq!((turns.len(), asked), (3, 3), "no model was asked twice");
    (turns, prompt(venue, "clerk", 3).await)
}

fn outcomes(turn: &TurnRecord) -> Vec<&str> {
    turn.calls.iter().map(|call| call.outcome.as_str()).collect()
}

async fn unrelated(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let (turns, shown) = clerk(&venue, "w/elsewhere").await;
    assert_eq!(venue.read("w/log").await, Some(json!(["one"])));
    assert_eq!(venue.read("w/list").await, Some(json!(["two"])));
    assert!(shown.contains("the pin is pin4711") && !shown.contains("not shown"), "{shown}");
    assert_eq!(
        turns[1].authority.revocations(),
        [operate::on("w/elsewhere")],
        "it stands under what was left at its commit"
    );
    // Nor does a conversation lose what was said before.
    let job = venue.arrive("clerk", "c-2", true, task()).await.job.unwrap();
    venue.ended(&job).await;
    let shown = prompt(&venue, "clerk", 4).await;
    assert!(shown.contains("the pin is pin4711") && !shown.contains("not shown"), "{shown}");
}

async fn of_what_was_read(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let (_, shown) = clerk(&venue, "w/secret").await;
    assert_eq!(venue.read("w/log").await, Some(json!(["one"])));
    assert_eq!(venue.read("w/list").await, Some(json!(["two"])));
    assert!(!shown.contains("pin4711"), "{shown}");
    assert!(shown.contains("I begin lattice_append lattice_read"), "what it did before it knew: {shown}");
    assert!(shown.contains("What it returned is not shown: crud/read on w/secret/pin"), "{shown}");
    assert!(shown.contains("What was said here is not shown: it may repeat"), "{shown}");
    // Once it is answered there is a gap, and a line that says so.
    let job = venue.arrive("clerk", "c-2", true, task()).await.job.unwrap();
    venue.ended(&job).await;
    let shown = prompt(&venue, "clerk", 4).await;
    assert!(shown.contains("[Turns 1 to 2 are not shown here") && !shown.contains("pin4711"), "{shown}");
}

async fn of_what_was_written(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let (turns, shown) = clerk(&venue, "w/list").await;
    assert_eq!(venue.read("w/log").await, Some(json!(["one"])), "appended once");
    assert_eq!(venue.read("w/list").await, None, "taken back before its commit");
    assert_eq!(outcomes(&turns[1]), ["denied", "ok"]);
    assert!(shown.contains("Capability denied: lattice_append requires crud/append on w/list"), "{shown}");
    assert!(shown.contains("the pin is pin4711"), "{shown}");
    // What was committed and then revoked was done, and stays done.
    let Some((venue, _dir)) = self::venue(on).await else { return };
    let (turns, shown) = clerk(&venue, "w/log").await;
    assert_eq!(venue.read("w/log").await, Some(json!(["one"])), "appended once");
    assert_eq!(outcomes(&turns[0]), ["ok", "ok"]);
    assert!(shown.contains("[This call was made, and came to: ok."), "{shown}");
}

/// What holds the request of a session back from another that holds less.
async fn a_gap_is_marked(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.agent("talker", json!({})).await;
    let read = |path: &str| json!([{"with": path, "can": "crud/read"}]);
    for (n, path) in [(1, "w/a"), (2, "w/b"), (3, "w/a/x")] {
        let id = format!("m{n}");
        let submission = Submission { input: json!(format!("message {n}")), ..in_session("s", Some(read(path))) };
        let job = venue.arrive("talker", &id, true, submission).await.job.unwrap();
        venue.ended(&job).await;
    }
    let second = prompt(&venue, "talker", 2).await;
    assert!(second.contains("[Turn 1 is not shown here") && !second.contains("message 1"), "{second}");
    let third = prompt(&venue, "talker", 3).await;
    assert!(!third.contains("message 1") && third.contains("[Turns 1 to 2 are not shown here"), "{third}");
}

async fn what_went_out_is_done(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.agent("idle", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    let tools: Vec<_> =
        ["agent/create", "agent/trigger", "test/once", "test/delay"].map(|name| format!("v/ops/{name}")).into();
    let memory = json!({"memory": {"mode": "read-write"}});
    venue.agent("sender", json!({"tools": tools, "resources": memory})).await;
    let grants = json!([{"with": "", "can": "*"}, {"with": "r/team", "can": "*"}]);
    let job = venue.arrive("sender", "s-1", true, in_session("s", Some(grants))).await.job.unwrap();
    calls_are_made(&venue, 1).await;
    take_back(&venue, Some("agent:sender"), None).await;
    wait_for_turns(&venue, "sender", 1).await;
    let turns = venue.turns("sender", "s").await;
    assert_eq!(
        outcomes(&turns[0]),
        ["ok", "ok", "ok", "ok", "ok", "denied", "denied", "denied", "ok"],
        "{:?}",
        turns[0].said
    );
    assert_eq!(venue.read("w/out").await, None, "what could be held back was");
    let kept = venue.venue.store.scan(&venue.owner, keys::TIMERS_DUE, None, false, 10).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert!(venue.record("made").await.id.as_str() == "made");
    let all = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    let child = all.iter().find(|job| job.head.agent.as_str() == "idle").unwrap();
    let started = format!("{:?}", turns[0].said);
    assert!(started.contains(child.head.id.as_str()), "the record names the child that runs: {started}");
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
}

/// Takes back all that stands under a holder or a grant.
async fn take_back(venue: &TestVenue, holder: Option<&str>, grant: Option<&str>) {
    let (holder, grant) = (holder.map(str::to_owned), grant.map(str::to_owned));
    let (by, at) = ("test".into(), venue.venue.now());
    let revocation = Revocation { id: "r1".into(), path: None, holder, grant, reason: None, by, at };
    policy::revoke(&venue.venue, &venue.owner, revocation).await.unwrap().unwrap();
}

/// The job of the agent whose model never answers.
async fn child(venue: &TestVenue) -> Job {
    let all = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
    all.into_iter().find(|job| job.head.agent.as_str() == "idle").expect("a child was started")
}

/// An agent that hands a section on to a delegate; the section is from a path.
async fn boss(venue: &TestVenue) -> JobId {
    venue.agent("idle", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    let help = json!({
        "delegate": "idle", "name": "help", "description": "Knows more.", "wait": 0,
        "scopes": {"const": ["context/plan"]},
    });
    let config = json!({"tools": [help, "v/ops/test/delay"], "context": [{"ref": "w/secret", "label": "plan"}]});
    venue.agent("boss", config).await;
    let job = venue.arrive("boss", "b-1", true, task()).await.job.unwrap();
    calls_are_made(venue, 1).await;
    job
}

async fn a_delegate_that_was_asked_is_recorded_as_asked(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let job = boss(&venue).await;
    take_back(&venue, Some("agent:boss"), None).await;
    wait_for_turns(&venue, "boss", 1).await;
    let turns = venue.turns("boss", "s").await;
    assert_eq!(outcomes(&turns[0]), ["ok", "denied", "ok"], "{:?}", turns[0].said);
    assert_eq!(venue.read("w/out").await, None, "what could be held back was");
    let child = child(&venue).await;
    assert!(format!("{:?}", turns[0].said).contains(child.head.id.as_str()), "the record names the child");
    let parent = child.head.parent.as_ref().and_then(|parent| parent.job.clone());
    assert_eq!(parent.as_ref(), Some(&job));
    assert_eq!(venue.ended(&job).await.result.unwrap().error_code, Some(ErrorCode::CapDenied));
    jobs::cancel(&venue.venue, &venue.owner, &child.head.id, None).await.unwrap();
}

async fn a_section_that_went_out_with_a_delegate_is_said_to_have_gone(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    let job = boss(&venue).await;
    venue.revoke("w/secret").await;
    wait_for_turns(&venue, "boss", 1).await;
    let turns = venue.turns("boss", "s").await;
    assert_eq!(outcomes(&turns[0]), ["ok", "ok", "ok"], "{:?}", turns[0].said);
    assert_eq!(venue.read("w/out").await, Some(json!([1])), "what is not concerned is done");
    let child = child(&venue).await;
    assert!(!child.head.request.as_ref().unwrap().handed.scoped.is_empty(), "it took the section along");
    jobs::cancel(&venue.venue, &venue.owner, &child.head.id, None).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete, "it goes on");
    let turns = venue.turns("boss", "s").await.len() as u64;
    let shown = prompt(&venue, "boss", turns).await;
    assert!(shown.contains(child.head.id.as_str()) && !shown.contains("pin4711"), "{shown}");
}

/// A message that waits for no job: the turn that answers it, once it has.
async fn said(venue: &TestVenue, agent: &str, id: &str, submission: Submission) -> u64 {
    venue.arrive(agent, id, false, submission).await;
    for _ in 0..1200 {
        let turns = venue.turns(agent, "s").await;
        let mine = turns.iter().find(|turn| turn.events.iter().any(|event| event.as_str() == id));
        if let Some(turn) = mine.filter(|turn| format!("{:?}", turn.said).contains("heard")) {
            return turn.turn;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("`{id}` is not answered within a minute");
}

/// A chat whose grant is taken back while its turn runs, and others who go on in the same session.
async fn a_chat_under_a_grant_that_is_taken_back_keeps_what_was_done(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.agent("idle", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    venue.agent("guest", json!({"tools": ["v/ops/test/delay"]})).await;
    let envelope = Envelope { grants: vec!["jti-lost".to_owned()], ..Envelope::default() };
    let caller = Caller { envelope, ..operate::boss(&venue.owner) };
    let message = json!({"agentId": "guest", "message": "the code is pin1234", "sessionId": "s"});
    operate::operate(&venue.venue, &caller, "v/ops/agent/message", message).await.unwrap();
    calls_are_made(&venue, 1).await;
    take_back(&venue, None, Some("jti-lost")).await;
    wait_for_turns(&venue, "guest", 1).await;
    let first = venue.turns("guest", "s").await.remove(0);
    assert_eq!(outcomes(&first), ["ok", "denied", "denied", "ok"], "{:?}", first.said);
    assert_eq!(venue.read("w/list").await, None, "what could be held back was");
    let child = child(&venue).await;
    jobs::cancel(&venue.venue, &venue.owner, &child.head.id, None).await.unwrap();
    // Who may read all of it reads what was done, and why it stops there.
    let turn = said(&venue, "guest", "m-1", task()).await;
    let shown = prompt(&venue, "guest", turn).await;
    for part in ["the code is pin1234", child.head.id.as_str(), "nothing starts any more under grant `jti-lost`"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("pin4711"), "it was never told: {shown}");
    // Who may not sees that there is something.
    let narrow = in_session("s", Some(json!([{"with": "w/other", "can": "crud/read"}])));
    let turn = said(&venue, "guest", "m-2", narrow).await;
    let shown = prompt(&venue, "guest", turn).await;
    assert!(shown.contains("[Turns 1 to ") && shown.contains("not shown here"), "{shown}");
    assert!(!shown.contains("pin1234") && !shown.contains("I look"), "{shown}");
}

/// The clerk's two turns as a chat, with what it has read taken back in the second.
async fn a_chat_goes_on_with_the_gap_marked(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.arrive("clerk", "m-0", false, task()).await;
    calls_are_made(&venue, 2).await;
    venue.revoke("w/secret").await;
    wait_for_turns(&venue, "clerk", 3).await;
    let asked = venue.model_calls().iter().filter(|call| call["event"] == "started").count();
    assert_eq!(asked, 3, "no model was asked twice");
    assert_eq!(venue.read("w/log").await, Some(json!(["one"])), "appended once");
    assert_eq!(venue.read("w/list").await, Some(json!(["two"])));
    let shown = prompt(&venue, "clerk", 3).await;
    assert!(shown.contains("What it returned is not shown: crud/read on w/secret/pin"), "{shown}");
    assert!(shown.contains("I begin lattice_append lattice_read") && !shown.contains("pin4711"), "{shown}");
    let turn = said(&venue, "clerk", "m-1", Submission { input: json!("hear me"), ..task() }).await;
    let shown = prompt(&venue, "clerk", turn).await;
    assert!(shown.contains("[Turns 1 to 2 are not shown here") && !shown.contains("pin4711"), "{shown}");
}

async fn wait_for_turns(venue: &TestVenue, agent: &str, count: usize) {
    for _ in 0..1200 {
        if venue.turns(agent, "s").await.len() >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{agent} has not made {count} turns in a minute");
}

async fn nobody_is_asked_about_what_is_denied(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.agent("payer", json!({"tools": ["v/ops/test/delay"]})).await;
    let asks = vec![Capability { with: "w/pay".into(), can: "crud/write".into() }];
    policy::set_approvals(&venue.venue, &venue.owner, asks).await.unwrap().unwrap();
    let job: JobId = venue.arrive("payer", "p-1", true, task()).await.job.unwrap();
    calls_are_made(&venue, 1).await;
    venue.revoke("w/pay").await;
    assert_eq!(venue.ended(&job).await.status, JobStatus::Complete, "it goes on with the denial");
    let turns = venue.turns("payer", "s").await;
    assert_eq!(outcomes(&turns[0]), ["denied", "ok"]);
    let asked = venue.venue.store.scan(&venue.owner, keys::APPROVALS, None, false, 10).await.unwrap();
    assert!(asked.is_empty(), "{asked:?}");
}

on_both! {
    unrelated
    of_what_was_read
    of_what_was_written
    a_gap_is_marked
    what_went_out_is_done
    a_delegate_that_was_asked_is_recorded_as_asked
    a_section_that_went_out_with_a_delegate_is_said_to_have_gone
    a_chat_under_a_grant_that_is_taken_back_keeps_what_was_done
    a_chat_goes_on_with_the_gap_marked
    nobody_is_asked_about_what_is_denied
}
