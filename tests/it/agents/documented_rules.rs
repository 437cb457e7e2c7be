//! Rows of `agents.md` that no other test names: overwrite, versions of a configuration, fork, order of results, loads, sessions.

use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::time::Duration;
use trellis::domain::agent::AgentStatus;
use trellis::domain::authority::Authority;
use trellis::domain::chat::ChatMessage;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{Job, JobStatus};
use trellis::venue::agents;
use trellis::venue::jobs;
use trellis::venue::ledger;
use trellis::venue::policy;

const RULES: &str = r#"
[[rule]]
when = { agent = "kept", prompt = "You are the second." }
then = { text = "by the second" }

[[rule]]
when = { agent = "kept" }
then = { text = "by the first" }

[[rule]]
when = { agent = "held", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "holder", input = "go", wait = 50000 } }] }

[[rule]]
when = { agent = "held", prompt = "You are the second." }
then = { text = "by the second" }

[[rule]]
when = { agent = "held" }
then = { text = "by the first" }

[[rule]]
when = { agent = "many", turn = 1 }
then = { calls = [
    { tool = "test_delay", arguments = { delay = 500, name = "slowest" } },
    { tool = "test_echo", arguments = { name = "at once" } },
    { tool = "test_delay", arguments = { delay = 100, name = "slow" } },
] }

[[rule]]
when = { agent = "many" }
then = { text = "{{tool_result.name}}" }

[[rule]]
when = { agent = "reader", turn = 1, text = "load" }
then = { calls = [{ tool = "context_load", arguments = { path = "w/reports/Q1", level = "{{input.level}}" } }] }

[[rule]]
when = { agent = "reader", prompt = "forty-two" }
then = { text = "I see it" }

[[rule]]
when = { agent = "reader" }
then = { text = "I see nothing" }

[[rule]]
then = { text = "done" }
"#;

/// The venue with a worker.
async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    (venue, dir)
}

async fn call(venue: &TestVenue, operation: &str, input: Value) -> Value {
    operate(&venue.venue, &boss(&venue.owner), &format!("v/ops/agent/{operation}"), input).await.unwrap()
}

async fn job(venue: &TestVenue, id: &JobId) -> Job {
    jobs::get(&venue.venue, &venue.owner, id).await.unwrap().unwrap()
}

fn output(job: &Job) -> Value {
    job.result.clone().unwrap().output.unwrap_or_default()
}

fn config(prompt: &str) -> Value {
    json!({"model": {"provider": "scripted", "name": "rules"}, "systemPrompt": prompt})
}

#[tokio::test(flavor = "multi_thread")]
async fn overwrite_keeps_sessions_tasks_timeline_status_and_error() {
    let (venue, _dir) = venue().await;
    venue.agent("kept", config("You are the first.")).await;
    let first = venue.run("kept", "t1", json!("one")).await;
    assert_eq!(output(&first), json!("by the first"));
    venue.run("kept", "t2", json!("two")).await;
    call(&venue, "suspend", json!({"agentId": "kept", "reason": "repairs"})).await;
    let queued = venue.submit("kept", "t3", json!("three")).await.job.unwrap();
    let session = first.head.session.to_string();
    let id = "kept".parse().unwrap();
    let timeline =
        async || agents::timeline(&venue.venue, &venue.owner, &Authority::without_limits(), &id, 0, 100).await.unwrap();
    // Not when they are due, nor whether one is being looked at: a worker may be about it at any time.
    let sessions = async || {
        let listed = call(&venue, "sessions", json!({"agentId": "kept"})).await;
        let facts = |one: &Value| ["sessionId", "turns", "tasks"].map(|key| one[key].clone());
        listed["sessions"].as_array().unwrap().iter().map(facts).collect::<Vec<_>>()
    };
    let before = (sessions().await, timeline().await, venue.turns("kept", &session).await);
    assert_eq!((before.1.len(), before.2.len()), (2, 1));

    let input = json!({"agentId": "kept", "config": config("You are the second."), "overwrite": true});
    call(&venue, "create", input).await;
    let now = venue.record("kept").await;
    assert_eq!((now.status, now.error.as_deref()), (AgentStatus::Suspended, Some("repairs")));
    assert_eq!(now.config_version, 2);
    assert_eq!(before, (sessions().await, timeline().await, venue.turns("kept", &session).await));
    assert_eq!(call(&venue, "info", json!({"agentId": "kept"})).await["tasks"], 1);
    assert_eq!(job(&venue, &queued).await.status, JobStatus::Pending);

    call(&venue, "resume", json!({"agentId": "kept"})).await;
    let ended = venue.ended(&queued).await;
    assert_eq!((ended.status, output(&ended)), (JobStatus::Complete, json!("by the second")));
    assert_eq!(venue.turns("kept", ended.head.session.as_str()).await[0].config_version, 2);
}

/// The first turn waits within its call for a job that nobody ends but the test.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_config_applies_from_the_next_turn_by_its_version() {
    let (venue, _dir) = venue().await;
    venue.agent("holder", json!({"model": {"provider": "scripted", "name": "never"}})).await;
    venue.agent("held", config("You are the first.")).await;
    let task = venue.submit("held", "t1", json!("go")).await.job.unwrap();
    let mut child = None;
    for _ in 0..1_200 {
        let found = jobs::list(&venue.venue, &venue.owner, 0, 10).await.unwrap().items;
        child = found.into_iter().find(|job| job.head.agent.as_str() == "holder");
        if child.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let child = child.expect("the first turn asks `holder`").head.id;
    let input = json!({"agentId": "held", "config": {"systemPrompt": "You are the second."}});
    assert_eq!(call(&venue, "update", input).await["configVersion"], 2);
    jobs::cancel(&venue.venue, &venue.owner, &child, None).await.unwrap();
    let ended = venue.ended(&task).await;
    assert_eq!(output(&ended), json!("by the second"));
    let turns = venue.turns("held", ended.head.session.as_str()).await;
    let versions: Vec<_> = turns.iter().map(|turn| turn.config_version).collect();
    assert_eq!(versions, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_copies_config_and_state() {
    let (venue, _dir) = venue().await;
    venue.write("w/reports/Q1", json!("forty-two")).await;
    venue.agent("reader", config("You read.")).await;
    // A load at the level of the agent is its state.
    let seen = venue.run("reader", "t1", json!({"do": "load", "level": "agent"})).await;
    assert_eq!(output(&seen), json!("I see it"));
    call(&venue, "fork", json!({"agentId": "reader", "to": "copy"})).await;
    let (source, copy) = (venue.record("reader").await, venue.record("copy").await);
    assert_eq!(source.state.loads.len(), 1, "{:?}", source.state);
    assert_eq!((copy.config, copy.state), (source.config, source.state));
    assert!(venue.turns("copy", seen.head.session.as_str()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_have_their_results_in_call_order() {
    let (venue, _dir) = venue().await;
    venue.agent("many", json!({"tools": ["v/ops/test/delay", "v/ops/test/echo"]})).await;
    let ended = venue.run("many", "t1", json!("go")).await;
    let turns = venue.turns("many", ended.head.session.as_str()).await;
    let calls: Vec<_> = turns[0].calls.iter().map(|call| (call.tool.as_str(), call.outcome.as_str())).collect();
    assert_eq!(calls, [("test_delay", "ok"), ("test_echo", "ok"), ("test_delay", "ok")]);
    let results: Vec<&str> = turns[0]
        .said
        .iter()
        .filter_map(|said| match said {
            ChatMessage::Tool { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(results.len(), 3, "{results:?}");
    for (result, name) in results.iter().zip(["slowest", "at once", "slow"]) {
        assert!(result.contains(&format!("\"{name}\"")), "{results:?}");
    }
    // The next turn's prompt ends with the last call's, not with the last one that came.
    assert_eq!(output(&ended), json!("slow"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_is_checked_against_authority_at_every_render() {
    let (venue, _dir) = venue().await;
    venue.write("w/reports/Q1", json!("forty-two")).await;
    venue.agent("reader", json!({})).await;
    let ask = async |id: &str, input: Value| {
        let submission = Submission { input, session_id: Some("s".parse().unwrap()), ..Submission::default() };
        let job = venue.arrive("reader", id, true, submission).await.job.unwrap();
        output(&venue.ended(&job).await)
    };
    let key = SessionKey { agent: "reader".parse().unwrap(), session: "s".parse().unwrap() };
    let row = async |turn: u64| {
        let past = ledger::load(&*venue.venue.store, &venue.owner, &key, turn).await.unwrap().unwrap();
        let rows = past.seen.unwrap().ledger.rows;
        let row = rows.iter().find(|row| row.key == "loads/w/reports/Q1").unwrap();
        (row.status.as_str().to_owned(), row.reason.clone().unwrap_or_default())
    };
    assert_eq!(ask("t1", json!({"do": "load", "level": "session"})).await, json!("I see it"));
    assert_eq!(row(2).await.0, "full");
    venue.revoke("w/reports").await;
    assert_eq!(ask("t2", json!("look")).await, json!("I see nothing"));
    let (status, reason) = row(3).await;
    assert!(status == "denied" && reason.contains("w/reports/Q1"), "{status}: {reason}");
    // The load itself is still there.
    policy::restore(&venue.venue, &venue.owner, "r1", false).await.unwrap().unwrap();
    assert_eq!(ask("t3", json!("look")).await, json!("I see it"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_a_session_id_gets_a_fresh_session() {
    let (venue, _dir) = venue().await;
    venue.agent("plain", json!({})).await;
    let (one, two) = (venue.run("plain", "t1", json!(1)).await, venue.run("plain", "t2", json!(2)).await);
    assert_ne!(one.head.session, two.head.session);
    for job in [one, two] {
        let turns = venue.turns("plain", job.head.session.as_str()).await;
        assert_eq!((turns.len(), turns[0].turn, turns[0].heard.len()), (1, 1, 1));
    }
}
