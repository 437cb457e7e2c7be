//! Rows of `agents.md`, A run and Harness tools, in real turns: what the model is told, and what becomes of it.

use crate::support::venue::TestVenue;
use futures::StreamExt;
use serde_json::{Value, json};
use trellis::domain::authority::Authority;
use trellis::domain::chat::ChatMessage;
use trellis::domain::event::Submission;
use trellis::domain::ids::{JobId, SessionKey};
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::venue::agents;
use trellis::venue::jobs;
use trellis::venue::ledger;
use trellis::view::ledger::TurnRecordView;

const RULES: &str = r#"
[[rule]]
when = { agent = "explicit", prompt = "text alone does not complete it" }
then = { text = "I was told" }

[[rule]]
when = { agent = "explicit" }
then = { text = "done, I think" }

[[rule]]
when = { agent = "looper" }
then = { text = "still looking", calls = [{ tool = "lattice_read", arguments = { path = "w/x" } }] }

[[rule]]
when = { agent = "finder", text = "again", turn = 1 }
then = { calls = [{ tool = "test_echo", arguments = { said = "again" } }] }

[[rule]]
when = { agent = "finder", turn = 1 }
then = { calls = [{ tool = "more_tools", arguments = { query = "test echo" } }] }

[[rule]]
when = { agent = "finder", tool = "more_tools" }
then = { calls = [{ tool = "test_echo", arguments = { said = "found" } }] }

[[rule]]
when = { agent = "finder" }
then = { text = "{{tool_result.said}}" }

[[rule]]
when = { agent = "packer", text = "pack", turn = 1 }
then = { calls = [{ tool = "compact", arguments = { summary = "seven crates were counted" } }] }

[[rule]]
when = { agent = "packer", prompt = "crate by crate" }
then = { text = "it is all there" }

[[rule]]
when = { agent = "packer", prompt = "seven crates were counted" }
then = { text = "there is a summary" }

[[rule]]
when = { agent = "packer" }
then = { text = "I counted crate by crate" }

[[rule]]
when = { agent = "waiter", text = "next" }
then = { text = "on it" }

[[rule]]
when = { agent = "waiter" }
then = { calls = [{ tool = "test_never", arguments = {} }, { tool = "test_echo", arguments = {} }] }
"#;

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    (venue, dir)
}

/// Gives a task to the agent's session `main`.
async fn submit(venue: &TestVenue, agent: &str, input: &str) -> JobId {
    let session_id = Some("main".parse().unwrap());
    let submission = Submission { input: json!(input), session_id, ..Submission::default() };
    venue.arrive(agent, input, true, submission).await.job.unwrap()
}

async fn done(venue: &TestVenue, agent: &str, input: &str) -> Job {
    let job = submit(venue, agent, input).await;
    venue.ended(&job).await
}

async fn output(venue: &TestVenue, agent: &str, input: &str) -> Value {
    done(venue, agent, input).await.result.unwrap().output.unwrap_or_default()
}

async fn said(venue: &TestVenue, agent: &str) -> Vec<String> {
    let turns = venue.turns(agent, "main").await;
    let texts = turns.into_iter().flat_map(|turn| turn.said).map(|message| match message {
        ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. } => text,
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn explicit_mode_warns_once_and_then_fails_the_task() {
    let (venue, _dir) = venue().await;
    venue.agent("explicit", json!({"completion": "explicit"})).await;
    let job = done(&venue, "explicit", "go").await;
    assert_eq!(job.result.unwrap().error_code, Some(ErrorCode::NoCompletion));
    assert_eq!(said(&venue, "explicit").await, ["done, I think", "I was told"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_its_limit_a_task_ends_with_the_last_text() {
    let (venue, _dir) = venue().await;
    venue.agent("looper", json!({"limits": {"turns": 3}})).await;
    let result = done(&venue, "looper", "go").await.result.unwrap();
    assert_eq!(result.error_code, Some(ErrorCode::LimitReached));
    assert_eq!(result.error.unwrap(), "the limit of 3 turns was reached; the last text was: still looking");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_found_tool_can_be_called_until_the_session_ends() {
    let (venue, _dir) = venue().await;
    venue.agent("finder", json!({"tools": ["more_tools"], "defaultTools": false})).await;
    assert_eq!(output(&venue, "finder", "first").await, "found");
    assert_eq!(output(&venue, "finder", "again").await, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_puts_a_summary_in_the_prompt_and_deletes_nothing() {
    let (venue, _dir) = venue().await;
    venue.agent("packer", json!({"loop": "goalTree", "tools": ["compact"]})).await;
    assert_eq!(output(&venue, "packer", "count").await, "I counted crate by crate");
    assert_eq!(output(&venue, "packer", "look").await, "it is all there");
    done(&venue, "packer", "pack").await;
    assert_eq!(output(&venue, "packer", "look-again").await, "there is a summary");
    let kept = said(&venue, "packer").await;
    assert!(kept.contains(&"I counted crate by crate".to_owned()), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_a_running_tool_and_the_transcript_says_so() {
    let (venue, _dir) = venue().await;
    venue.agent("waiter", json!({"tools": ["v/ops/test/never", "v/ops/test/echo"]})).await;
    let job = submit(&venue, "waiter", "go").await;
    let mut pieces = venue.venue.bus.live_feed().follow(&job, Some(0)).await.unwrap();
    while !String::from_utf8_lossy(&pieces.next().await.unwrap().body).contains("test_never") {}
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    assert_eq!(venue.ended(&job).await.status, JobStatus::Cancelled);
    // The session goes on: every call has a result, else a provider would refuse its transcript.
    assert_eq!(output(&venue, "waiter", "next").await, "on it");
    let turns = venue.turns("waiter", "main").await;
    let calls: Vec<_> = turns[0].said.iter().filter(|m| matches!(m, ChatMessage::Tool { .. })).collect();
    assert_eq!((turns.len(), calls.len()), (2, 2), "{turns:#?}");
    let texts = said(&venue, "waiter").await;
    assert!(texts.iter().any(|text| text.contains("cancelled")), "{texts:?}");
}

#[tokio::test]
async fn the_transcript_shows_arguments_as_the_model_wrote_them() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    venue.agent("looper", json!({"limits": {"turns": 1}})).await;
    let job = venue.run("looper", "t1", json!("go")).await;
    let key = SessionKey { agent: "looper".parse().unwrap(), session: job.head.session.clone() };
    let (store, owner, reader) = (&*venue.venue.store, &venue.owner, Authority::without_limits());
    let past = ledger::load(store, owner, &key, 1).await.unwrap().unwrap();
    let list = agents::timeline(&venue.venue, owner, &reader, &key.agent, 0, 10).await.unwrap();
    let turn = ledger::show::turn_view(&key, &past, None);
    let listed = TurnRecordView::for_transcript(past.record.as_ref().unwrap());
    for record in [&listed, turn.record.as_ref().unwrap(), &list[0].record] {
        assert_eq!(record.reply().unwrap().1[0].arguments, json!({"path": "w/x"}), "{record:?}");
    }
}

const SEARCHES: &str = r#"
[[rule]]
when = { agent = "namer", turn = 1 }
then = { calls = [{ tool = "more_tools", arguments = { operations = "{{input}}" } }] }

[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "more_tools", arguments = { query = "{{input}}" } }] }

[[rule]]
then = { text = "{{tool_result}}" }
"#;

/// What `more_tools` answers to this input.
async fn search_answer(venue: &TestVenue, agent: &str, id: &str, input: Value) -> Value {
    let answer = venue.run(agent, id, input).await.result.unwrap().output.unwrap();
    answer.as_str().map_or(answer.clone(), |text| serde_json::from_str(text).unwrap())
}

fn paths(answer: &Value) -> Vec<&str> {
    answer["found"].as_array().unwrap().iter().map(|tool| tool["path"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn more_tools_finds_only_what_the_agent_may_call() {
    let (venue, _dir) = TestVenue::embedded(SEARCHES).await;
    venue.worker();
    let agent = |caps: Value| json!({"tools": ["more_tools"], "defaultTools": false, "caps": caps});
    let reads = json!([{"with": "w/", "can": "crud/read"}]);
    for (id, caps) in [("free", Value::Null), ("closed", json!([])), ("reader", reads.clone()), ("namer", reads)] {
        let mut config = agent(caps);
        config.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        venue.agent(id, config).await;
    }
    for (agent, query, there, absent) in [
        ("free", "secret", vec!["v/ops/secret/list"], vec!["v/ops/secret/set", "v/ops/secret/extract"]),
        ("free", "policy", vec![], vec!["v/ops/policy/show", "v/ops/policy/revoke"]),
        ("free", "json merge", vec!["v/ops/json/merge"], vec![]),
        ("closed", "secret", vec![], vec!["v/ops/secret/set", "v/ops/secret/list", "v/ops/secret/delete"]),
        ("closed", "agent create", vec![], vec!["v/ops/agent/create"]),
        ("closed", "http", vec![], vec!["v/ops/http/get", "v/ops/http/post"]),
        // Its own `c/` and `t/` it may always write.
        ("closed", "lattice write", vec!["v/ops/lattice/write"], vec![]),
        ("reader", "write", vec!["v/ops/lattice/write"], vec!["v/ops/secret/set", "v/ops/agent/create"]),
    ] {
        let answer = search_answer(&venue, agent, &format!("{agent}-{}", query.replace(' ', "-")), json!(query)).await;
        let shown = paths(&answer);
        assert!(there.iter().all(|path| shown.contains(path)), "{agent} {query}: {answer}");
        assert!(!absent.iter().any(|path| shown.contains(path)), "{agent} {query}: {answer}");
    }
    let asked = json!(["v/ops/secret/set", "agent:create", "v/ops/json/merge", "v/ops/policy/show"]);
    let answer = search_answer(&venue, "namer", "named", asked).await;
    assert_eq!(answer["added"][0]["path"], "v/ops/json/merge", "{answer}");
    for (path, part) in [
        ("v/ops/secret/set", "`tools`"),
        ("agent:create", "`agent/create`"),
        ("v/ops/policy/show", "no agent may call it"),
    ] {
        assert!(answer["notAdded"][path].as_str().is_some_and(|why| why.contains(part)), "{path}: {answer}");
    }
    let none = search_answer(&venue, "free", "nothing", json!("fetch a web page")).await;
    assert!(none["found"] == json!([]) && none["hint"].as_str().unwrap().contains("fewer"), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_tools_shows_no_bound_argument() {
    let (venue, _dir) = TestVenue::embedded(SEARCHES).await;
    venue.worker();
    for (agent, tool) in [("namer", "lattice_write"), ("finder", "v/ops/lattice/write")] {
        let bound = json!({tool: {"path": "target"}});
        venue.agent(agent, json!({"tools": ["more_tools"], "defaultTools": false, "toolArgInjection": bound})).await;
    }
    for (agent, input) in [("namer", json!(["v/ops/covia/write"])), ("finder", json!("lattice write"))] {
        let answer = search_answer(&venue, agent, agent, input).await;
        let takes = [&answer["added"][0]["takes"], &answer["found"][0]["takes"]].into_iter().find(|t| t.is_object());
        let takes = takes.unwrap().as_object().unwrap();
        assert!(takes.contains_key("value") && !takes.contains_key("path"), "{agent}: {answer}");
    }
}
