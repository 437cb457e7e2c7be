//! `model.fallback`: which failure of a model leads to the next one, what the record says of it, and what becomes of a
//! turn whose models all fail.

use crate::support::both_stores::{On, on_both};
use crate::support::model_server::ModelServer;
use crate::support::raw_reply::RawReply;
use crate::support::venue::{TestVenue, job_record};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use trellis::domain::agent::AgentStatus;
use trellis::domain::cap::{Ceiling, SpendSettings};
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::rate::RateLimit;
use trellis::domain::session::TurnRecord;
use trellis::model::endpoint::{Keys, ModelEndpoint, ProviderOptions};
use trellis::process::clock::Clock;
use trellis::venue::jobs;
use trellis::venue::rates::RateSettings;

const RULES: &str = r#"
[[rule]]
when = { model = "down" }
then = { fault = "overloaded", text = "never" }

[[rule]]
when = { model = "locked" }
then = { fault = "unauthorized", text = "never" }

[[rule]]
when = { model = "picky" }
then = { fault = "bad_request", text = "never" }

[[rule]]
when = { model = "spare" }
then = { text = "from the spare", usage = { input = 7, output = 3 } }

[[rule]]
then = { text = "from the first", usage = { input = 5, output = 2 } }
"#;

fn models(first: &str, fallback: &[&str]) -> Value {
    let model = |name: &str| json!({"provider": "scripted", "name": name, "maxTokens": 50});
    let fallback: Vec<_> = fallback.iter().map(|name| model(name)).collect();
    let mut first = model(first);
    first["fallback"] = fallback.into();
    json!({"model": first})
}

/// A venue with a worker; `dear` may have one token a day, and `crowded` 60 a minute.
async fn venue(on: On) -> Option<(TestVenue, tempfile::TempDir)> {
    let (mut venue, dir) = on.venue(RULES, Clock::system()).await?;
    let cap = ("scripted/dear".to_owned(), Ceiling::parse("tokens=1").unwrap());
    Arc::get_mut(&mut venue.venue).unwrap().spend = SpendSettings { models: vec![cap], ..SpendSettings::default() };
    let limits = vec![RateLimit { of: "scripted/crowded".into(), concurrency: None, requests: None, tokens: Some(60) }];
    venue.rates = RateSettings { limits, hold: venue.lease };
    venue.worker();
    Some((venue, dir))
}

async fn only_turn(venue: &TestVenue, agent: &str, job: &Job) -> TurnRecord {
    let turns = venue.turns(agent, &job.head.session.to_string()).await;
    assert_eq!(turns.len(), 1, "{turns:?}");
    turns.into_iter().next().unwrap()
}

fn error_of(job: &Job) -> (Option<ErrorCode>, String) {
    let result = job.result.clone().unwrap();
    (result.error_code, result.error.unwrap_or_default())
}

async fn the_next_model_answers_where_one_can_not(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    for (name, first, fallback, answers, failed) in [
        ("plain", "m", &["spare"][..], "m", &[][..]),
        ("outage", "down", &["spare"], "spare", &[("down", "503: overloaded")]),
        ("no-key", "locked", &["spare"], "spare", &[("locked", "401: no such key")]),
        ("refusal", "picky", &["spare"], "spare", &[("picky", "400: bad request")]),
        ("cap", "dear", &["spare"], "spare", &[("dear", "the venue's cap of `scripted/dear` for a day")]),
        ("rate", "crowded", &["spare"], "spare", &[("crowded", "the rate limit of `scripted/crowded` is 60 tokens")]),
        (
            "third",
            "down",
            &["locked", "spare", "m"],
            "spare",
            &[("down", "503: overloaded"), ("locked", "401: no such key")],
        ),
    ] {
        venue.agent(name, models(first, fallback)).await;
        let job = venue.run(name, name, json!("go")).await;
        let text = if answers == "spare" { "from the spare" } else { "from the first" };
        assert_eq!(job.result.clone().unwrap().output, Some(json!(text)), "{name}: {job:?}");
        let turn = only_turn(&venue, name, &job).await;
        assert_eq!(turn.model, format!("scripted/{answers}"), "{name}");
        assert_eq!(turn.failed_models.len(), failed.len(), "{name}: {:?}", turn.failed_models);
        for (found, (model, reason)) in turn.failed_models.iter().zip(failed) {
            assert_eq!(found.model, format!("scripted/{model}"), "{name}");
            assert!(found.reason.contains(reason), "{name}: {}", found.reason);
        }
        assert_eq!(venue.record(name).await.status, AgentStatus::Active, "{name}");
        let shown = jobs::read_for_people(&venue.venue, &venue.owner, &job.head.id).await.unwrap().unwrap();
        let shown = job_record(&shown);
        let used = if answers == "spare" { (json!(7), json!(1)) } else { (json!(5), Value::Null) };
        let own = &shown["spend"]["own"];
        assert_eq!((own["input"].clone(), own["fallbacks"].clone()), used, "{name}: {shown}");
    }
    let spent = trellis::venue::spending::today(&venue.venue, &venue.owner, 10).await.unwrap();
    let text = trellis::view::to_json(&spent).to_string();
    assert!(text.contains("scripted/spare") && !text.contains("scripted/down"), "{text}");
}

async fn when_all_fail_the_error_names_each_model(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    for (name, first, fallback, code, parts) in [
        ("refused", "picky", &["locked"][..], ErrorCode::ModelError, &["picky", "400", "locked", "401"][..]),
        ("retried", "locked", &["down"], ErrorCode::ModelError, &["locked", "401", "down", "503"]),
        ("capped", "dear", &["locked"], ErrorCode::LimitReached, &["dear", "cap", "locked", "401"]),
    ] {
        let mut config = models(first, fallback);
        config["retry"] = json!({"attempts": 2});
        venue.agent(name, config).await;
        let job = venue.run(name, name, json!("go")).await;
        let (found, text) = error_of(&job);
        assert_eq!((job.status, found), (JobStatus::Failed, Some(code)), "{name}: {text}");
        for part in parts {
            assert!(text.contains(part), "{name}: expected `{part}` in {text}");
        }
        assert_eq!(venue.record(name).await.status, AgentStatus::Active, "{name}");
        let turn = only_turn(&venue, name, &job).await;
        let models: Vec<_> = turn.failed_models.iter().map(|failed| failed.model.clone()).collect();
        assert_eq!(models, [first, fallback[0]].map(|model| format!("scripted/{model}")), "{name}");
    }
    // Both models are tried in each try, the first one first.
    let asked: Vec<_> = venue.model_calls().iter().filter(|call| call["event"] == "started").cloned().collect();
    let of_retried: Vec<_> = asked
        .iter()
        .filter(|call| call["turn"].as_str().unwrap().contains("/retried/"))
        .map(|call| call["model"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(of_retried, ["locked", "down", "locked", "down"].map(|model| format!("scripted/{model}")));
}

async fn an_agent_of_which_no_model_can_be_used_is_suspended(on: On) {
    let Some((venue, _dir)) = venue(on).await else { return };
    venue.agent("a", models("locked", &["locked"])).await;
    let job = venue.submit("a", "t", json!("go")).await.job.unwrap();
    for _ in 0..1_200 {
        if venue.record("a").await.status == AgentStatus::Suspended {
            let now = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
            assert!(!now.status.is_terminal(), "{now:?}");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the agent goes on");
}

/// A stream of Chat Completions: a call, or a text for its result.
fn chat(is_result: bool) -> RawReply {
    let call = json!({"index": 0, "id": "c1", "type": "function",
        "function": {"name": "lattice_read", "arguments": "{\"path\":\"w/x\"}"}});
    let (delta, end) = if is_result {
        (json!({"content": "by chat", "reasoning_content": "hm"}), "stop")
    } else {
        (json!({"tool_calls": [call]}), "tool_calls")
    };
    let event = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}});
    RawReply::events(&[event.to_string(), "[DONE]".into()])
}

fn messages() -> RawReply {
    let events = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
            "model": "x", "stop_reason": null, "usage": {"input_tokens": 200, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "by messages"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ];
    RawReply::events(&events.map(|event| event.to_string()))
}

/// The servers judge every request: a conversation that one model has begun is legal for the other.
async fn a_conversation_goes_on_with_a_model_of_another_format(on: On) {
    let Some((mut venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    let is_down = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_down);
    let answered = AtomicUsize::new(0);
    let first = ModelServer::start(move |_| {
        let error = json!({"error": {"message": "overloaded", "type": "server_error"}});
        if seen.load(Ordering::Relaxed) {
            return RawReply::json(&error).status(503);
        }
        chat(answered.fetch_add(1, Ordering::Relaxed) % 2 == 1)
    });
    let second = ModelServer::start(|_| messages());
    let endpoint = |base_url: String, key: &str| ModelEndpoint { base_url, api_key_env: Some(key.to_owned()) };
    venue.providers = ProviderOptions {
        endpoints: BTreeMap::from([
            ("deepseek".to_owned(), endpoint(first.url("/v1"), "FIRST")),
            ("anthropic".to_owned(), endpoint(second.url("/v1"), "SECOND")),
        ]),
        keys: Keys::new([("FIRST", "key-of-first"), ("SECOND", "key-of-second")].map(|(n, k)| (n.into(), k.into()))),
        ..ProviderOptions::default()
    };
    venue.worker();
    let fallback = json!({"provider": "anthropic", "name": "claude-x", "maxTokens": 100});
    let model = json!({"provider": "deepseek", "name": "deepseek-x", "fallback": [fallback]});
    venue.agent("a", json!({"model": model})).await;
    let session = Some("s".parse().unwrap());
    let run = async |id: &str| {
        let submission = trellis::domain::event::Submission {
            input: json!("go"),
            session_id: session.clone(),
            ..trellis::domain::event::Submission::default()
        };
        let job = venue.arrive("a", id, true, submission).await.job.unwrap();
        venue.ended(&job).await
    };
    assert_eq!(run("one").await.result.unwrap().output, Some(json!("by chat")));
    is_down.store(true, Ordering::Relaxed);
    assert_eq!(run("two").await.result.unwrap().output, Some(json!("by messages")));
    is_down.store(false, Ordering::Relaxed);
    assert_eq!(run("three").await.result.unwrap().output, Some(json!("by chat")));
    let answered: Vec<_> = venue.turns("a", "s").await.into_iter().map(|turn| (turn.model, turn.usage.input)).collect();
    let (chat, messages) = (("deepseek/deepseek-x".to_owned(), 100), ("anthropic/claude-x".to_owned(), 200));
    assert_eq!(answered, [chat.clone(), chat.clone(), messages, chat.clone(), chat]);
    // Each has its own key, and what the first has reasoned stays with it.
    assert_eq!(second.calls().len(), 1);
    let call = &second.calls()[0];
    assert_eq!(call.headers["x-api-key"], "key-of-second");
    assert!(!call.body.to_string().contains("\"hm\"") && !call.body.to_string().contains("key-of-first"));
    assert!(first.calls().iter().all(|call| call.headers["authorization"] == "Bearer key-of-first"));
}

on_both! {
    the_next_model_answers_where_one_can_not
    when_all_fail_the_error_names_each_model
    an_agent_of_which_no_model_can_be_used_is_suspended
    a_conversation_goes_on_with_a_model_of_another_format
}
