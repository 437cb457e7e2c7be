//! Sessions with a time to live: an event that comes after it finds one that is new and empty, wherever one looks.

use crate::support::operate::operate;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::authority::Authority;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::{AgentId, SessionKey};
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::agents::{lifecycle, sessions};
use trellis::venue::jobs;
use trellis::venue::ledger;
use trellis::venue::operation::Caller;
use trellis::venue::spending;

/// 2026-01-01T00:00:00Z.
const START: Millis = Millis(1_767_225_600_000);
const MINUTE: Duration = Duration::from_mins(1);

/// Keeps something in `c/` when it is asked to.
const RULES: &str = r#"
[[rule]]
when = { text = "keep this", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "c/x", value = "kept in c" } }] }

[[rule]]
then = { text = "done" }
"#;

fn key(session: &str) -> SessionKey {
    SessionKey { agent: "a".parse().unwrap(), session: session.parse().unwrap() }
}

async fn agent(venue: &mut TestVenue) {
    // Time passes faster here than for its workers: no lease lapses because of it.
    venue.lease = Duration::from_hours(24 * 365);
    let context = json!([{"ref": "c/x", "label": "scratch"}]);
    venue.agent("a", json!({"session": {"ttl": "1h"}, "context": context})).await;
    venue.worker();
}

async fn accepted(venue: &TestVenue, session: &str, id: &str, input: &str) -> trellis::domain::ids::JobId {
    let session_id = Some(session.parse().unwrap());
    let submission = Submission { input: json!(input), session_id, ..Submission::default() };
    venue.arrive("a", id, true, submission).await.job.unwrap()
}

/// The job once it has ended and its session rests. Time goes on meanwhile, a little.
async fn ended(venue: &TestVenue, session: &str, job: &trellis::domain::ids::JobId) {
    for _ in 0..6_000 {
        let found = jobs::get(&venue.venue, &venue.owner, job).await.unwrap().unwrap();
        let facts = sessions::find(&venue.venue, &venue.owner, &key(session)).await.unwrap().unwrap();
        if found.status.is_terminal() && facts.mailbox.is_empty() && facts.lease_until.is_none() {
            if let Some(foresight) = &venue.foresight {
                foresight.check(&venue.venue).await;
            }
            return;
        }
        venue.venue.clock.advance(Duration::from_millis(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("job {job} did not end");
}

async fn ask(venue: &TestVenue, session: &str, id: &str, input: &str) {
    let job = accepted(venue, session, id, input).await;
    ended(venue, session, &job).await;
}

async fn run(venue: &TestVenue, operation: &str, input: Value) -> Value {
    let name = venue.owner.to_string();
    let caller = Caller { operator: true, ..Caller::new(venue.owner.clone(), name, Authority::without_limits()) };
    operate(&venue.venue, &caller, operation, input).await.unwrap()
}

/// How many turns the newest prompt of a session shows, and what it says.
async fn saw(venue: &TestVenue, session: &str) -> (usize, String) {
    let facts = sessions::find(&venue.venue, &venue.owner, &key(session)).await.unwrap().unwrap();
    let past = ledger::load(&*venue.venue.store, &venue.owner, &key(session), facts.version).await.unwrap().unwrap();
    let inputs = past.seen.unwrap().inputs.unwrap();
    (inputs.transcript.len(), json!(assemble(&inputs).unwrap().request.messages).to_string())
}

async fn listed(venue: &TestVenue, session: &str) -> Value {
    let list = run(venue, "agent/sessions", json!({"agentId": "a"})).await;
    let found = list["sessions"].as_array().unwrap().iter().find(|found| found["sessionId"] == session);
    found.cloned().unwrap_or_else(|| panic!("no `{session}` in {list}"))
}

/// The contents of a session's conversation.
async fn said(venue: &TestVenue, session: &str, depth: u64) -> Vec<String> {
    let asked = json!({"agentId": "a", "sessionId": session, "archiveDepth": depth});
    let read = run(venue, "agent/session-read", asked).await;
    let messages = read["messages"].as_array().unwrap_or_else(|| panic!("{read}")).iter();
    messages.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

async fn an_event_after_expiry_finds_an_empty_session(mut venue: TestVenue) {
    agent(&mut venue).await;
    let clock = venue.venue.clock.clone();
    ask(&venue, "s", "1", "keep this").await;
    clock.advance(59 * MINUTE);
    ask(&venue, "s", "2", "in time").await;
    let (turns, prompt) = saw(&venue, "s").await;
    assert!(turns == 2 && prompt.contains("kept in c"), "{turns} {prompt}");
    assert_eq!((&listed(&venue, "s").await["turnCount"], said(&venue, "s", 0).await.len()), (&json!(3), 6));

    clock.advance(61 * MINUTE);
    let over = listed(&venue, "s").await;
    assert_eq!((&over["expired"], &over["turnCount"], &over["turns"]), (&json!(true), &json!(0), &json!(3)));
    assert_eq!(said(&venue, "s", 0).await, [""; 0]);
    let turn_by_turn = json!({"agentId": "a", "sessionId": "s", "limit": 50});
    assert_eq!(run(&venue, "agent/session-read", turn_by_turn.clone()).await["turns"], json!([]));
    let asked = json!({"agentId": "a", "sessionId": "s", "task": "look"});
    let preview = run(&venue, "agent/context", asked).await.to_string();
    assert!(!preview.contains("kept in c") && !preview.contains("in time"), "{preview}");

    ask(&venue, "s", "3", "too late").await;
    let (turns, prompt) = saw(&venue, "s").await;
    assert!(turns == 0 && !prompt.contains("kept in c") && !prompt.contains("in time"), "{turns} {prompt}");
    let begun = listed(&venue, "s").await;
    assert_eq!((&begun["expired"], &begun["turnCount"], &begun["turns"]), (&json!(false), &json!(1), &json!(4)));
    assert_eq!(said(&venue, "s", 0).await.len(), 2);
    assert_eq!(run(&venue, "agent/session-read", turn_by_turn).await["turns"].as_array().unwrap().len(), 1);
    assert_eq!(said(&venue, "s", 1).await.len(), 8, "the turns stay");
    let turns = venue.venue.store.scan(&venue.owner, &keys::turns(&key("s")), None, false, 100).await.unwrap();
    assert_eq!(turns.len(), 4);
    ask(&venue, "s", "4", "and on").await;
    assert_eq!(saw(&venue, "s").await.0, 1, "it goes on from there");
}

/// What is used of the session's cap, and how its task ended.
async fn spent(venue: &TestVenue) -> u64 {
    let caps = spending::caps(&venue.venue, &venue.owner, "local/me", Some(&key("s")), false).await.unwrap();
    assert_eq!((caps[0].of.as_str(), caps[0].tokens.unwrap().limit), ("session", 9_000));
    caps[0].tokens.unwrap().used
}

/// Asks until the cap is reached; how many tasks have ended before.
async fn until_capped(venue: &TestVenue, id: &str) -> usize {
    for n in 0..50 {
        let job = accepted(venue, "s", &format!("{id}{n}"), "go").await;
        ended(venue, "s", &job).await;
        let job = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
        let Some(error) = job.result.unwrap().error else { continue };
        assert!(error.contains("the cap of this session is reached"), "{error}");
        return n;
    }
    panic!("the cap is never reached");
}

async fn a_session_that_begins_anew_has_a_cap_of_its_own(mut venue: TestVenue) {
    agent(&mut venue).await;
    let model = json!({"provider": "scripted", "name": "rules", "maxTokens": 100});
    let limits = json!({"session": {"tokens": 9_000}});
    venue.agent("a", json!({"model": model, "session": {"ttl": "1h"}, "limits": limits})).await;
    let first = until_capped(&venue, "one").await;
    let before = spent(&venue).await;
    assert!(first > 0 && before > 0, "{first} {before}");
    venue.venue.clock.advance(59 * MINUTE);
    assert_eq!(until_capped(&venue, "two").await, 0, "in time it is the same session, and the same cap");
    venue.venue.clock.advance(61 * MINUTE);
    assert_eq!(spent(&venue).await, 0, "expired is new");
    ask(&venue, "s", "three", "go").await;
    let begun = spent(&venue).await;
    assert!(begun > 0 && begun < before, "{begun} of {before}");
    // It counts on from there, to the same end.
    assert!(until_capped(&venue, "four").await >= first - 1, "as many as before");
    venue.venue.clock.advance(59 * MINUTE);
    assert_eq!(until_capped(&venue, "five").await, 0);
}

#[tokio::test]
async fn a_session_that_begins_anew_has_a_cap_of_its_own_embedded() {
    let (venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    a_session_that_begins_anew_has_a_cap_of_its_own(venue).await;
}

#[tokio::test]
async fn a_session_that_begins_anew_has_a_cap_of_its_own_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _prefix) = TestVenue::redis_at(server, RULES, Clock::manual(START)).await;
    a_session_that_begins_anew_has_a_cap_of_its_own(venue).await;
}

#[tokio::test]
async fn an_event_after_expiry_finds_an_empty_session_embedded() {
    let (venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    an_event_after_expiry_finds_an_empty_session(venue.foreseen()).await;
}

#[tokio::test]
async fn an_event_after_expiry_finds_an_empty_session_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let (venue, _dir, _prefix) = TestVenue::redis_at(server, RULES, Clock::manual(START)).await;
    an_event_after_expiry_finds_an_empty_session(venue.foreseen()).await;
}

#[tokio::test]
async fn a_session_expires_even_if_its_model_was_away() {
    let away =
        "[[rule]]\nwhen = { text = \"too late\" }\nthen = { text = \"done\", fault = \"overloaded\", times = 1 }\n";
    let (mut venue, _dir) = TestVenue::embedded_at(&format!("{away}{RULES}"), Clock::manual(START)).await;
    agent(&mut venue).await;
    ask(&venue, "s", "1", "keep this").await;
    venue.venue.clock.advance(61 * MINUTE);
    ask(&venue, "s", "2", "too late").await;
    assert_eq!(venue.model_calls().iter().filter(|call| call["event"] == "failed").count(), 1);
    let (turns, prompt) = saw(&venue, "s").await;
    assert!(turns == 0 && !prompt.contains("kept in c"), "{turns} {prompt}");
    ask(&venue, "s", "3", "and on").await;
    assert_eq!(saw(&venue, "s").await.0, 1, "it goes on from there");
}

#[tokio::test]
async fn a_message_in_time_keeps_the_session_however_late_its_turn() {
    let (mut venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    agent(&mut venue).await;
    ask(&venue, "s", "1", "first").await;
    venue.venue.clock.advance(59 * MINUTE);
    let id: AgentId = "a".parse().unwrap();
    lifecycle::suspend(&venue.venue, &venue.owner, &id, "for the test").await.unwrap();
    let job = accepted(&venue, "s", "2", "second").await;
    venue.venue.clock.advance(120 * MINUTE);
    run(&venue, "agent/resume", json!({"agentId": "a"})).await;
    ended(&venue, "s", &job).await;
    assert_eq!(saw(&venue, "s").await.0, 1);
}

#[tokio::test]
async fn a_fork_ages_from_its_creation_and_other_agents_keep_all() {
    let (mut venue, _dir) = TestVenue::embedded_at(RULES, Clock::manual(START)).await;
    agent(&mut venue).await;
    ask(&venue, "s", "1", "first").await;
    venue.venue.clock.advance(61 * MINUTE);
    let copy = sessions::fork(&venue.venue, &venue.owner, &key("s"), 1, None).await.unwrap();
    ask(&venue, copy.session.as_str(), "2", "second").await;
    assert_eq!(saw(&venue, copy.session.as_str()).await.0, 1);
    venue.agent("a", json!({})).await;
    ask(&venue, "s", "3", "third").await;
    assert_eq!(saw(&venue, "s").await.0, 1, "no time to live, no end");
}
