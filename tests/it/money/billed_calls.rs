//! What a provider bills counts, however its call ends: as a refusal, by its filter, cut off, without an end, in silence
//! or by a cancellation. What it refuses to answer costs nothing.

use crate::support::both_stores::{On, on_both};
use crate::support::model_server::ModelServer;
use crate::support::raw_reply::{Framing, Piece, RawReply};
use crate::support::venue::{TestVenue, job_record};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use trellis::domain::cap::{CapUse, Ceiling, SpendSettings};
use trellis::domain::event::Submission;
use trellis::domain::ids::Owner;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::spend::ModelUse;
use trellis::model::endpoint::{Keys, ModelEndpoint, ProviderOptions};
use trellis::process::clock::Clock;
use trellis::store::keys;
use trellis::venue::{jobs, venue_owner};

/// Tokens that the provider says it has counted.
const BILLED: u64 = 1_050;

/// A venue whose providers are one server, with a worker and this cap of whatever can have one.
async fn venue(on: On, server: &ModelServer, cap: &str) -> Option<(TestVenue, tempfile::TempDir)> {
    let (mut venue, dir) = on.venue("", Clock::system()).await?;
    let cap = Ceiling::parse(cap).unwrap();
    let models = ["openai", "anthropic"].map(|provider| (provider.to_owned(), cap)).to_vec();
    let spend = SpendSettings { owner: cap, session: cap, user: cap, models, ..SpendSettings::default() };
    Arc::get_mut(&mut venue.venue).unwrap().spend = spend;
    let endpoint = || ModelEndpoint { base_url: server.url("/v1/"), api_key_env: None };
    let endpoints = ["openai", "anthropic"].map(|name| (name.to_owned(), endpoint()));
    venue.providers =
        ProviderOptions { endpoints: BTreeMap::from(endpoints), keys: Keys::new([]), ..ProviderOptions::default() };
    venue.model_timeout = Duration::from_secs(2);
    venue.worker();
    Some((venue, dir))
}

fn agent(provider: &str, attempts: u32) -> Value {
    let model = json!({"provider": provider, "name": "m", "maxTokens": 200});
    json!({"model": model, "defaultTools": false, "prompt": "full", "retry": {"attempts": attempts}})
}

/// The books whose keys begin and go on so, as one.
async fn books(venue: &TestVenue, owner: &Owner, prefix: &str, part: &str) -> (u64, usize) {
    let found = venue.venue.store.scan(owner, prefix, None, false, 1_000).await.unwrap();
    let books = found.into_iter().filter(|(key, _)| key.contains(part));
    let books = books.map(|(_, doc)| serde_json::from_slice::<CapUse>(&doc.value.unwrap()).unwrap());
    books.fold((0, 0), |(tokens, held), book| (tokens + book.spent.tokens, held + book.held.len()))
}

/// Tokens that count under the cap of the owner's day, and so of its user's, of its sessions and of its models.
async fn counted(venue: &TestVenue) -> u64 {
    let (owner, day) = (&venue.owner, venue.venue.day().1);
    for _ in 0..600 {
        let of_owner: Option<CapUse> = venue.venue.store.get(owner, &keys::owner_cap(&day)).await.unwrap();
        let all = [
            of_owner.map_or((0, 0), |book| (book.spent.tokens, book.held.len())),
            books(venue, owner, &keys::user_cap(&day, ""), "").await,
            books(venue, owner, "g/", "/spend/").await,
            books(venue, &venue_owner(), &keys::model_cap(&day, ""), "").await,
        ];
        if all == [(all[0].0, 0); 4] {
            return all[0].0;
        }
        // They are settled in two places, one beside the other.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the books differ, or something is held for ever");
}

async fn own(venue: &TestVenue, job: &Job) -> Value {
    let job = jobs::read_for_people(&venue.venue, &venue.owner, &job.head.id).await.unwrap().unwrap();
    job_record(&job)["spend"]["own"].clone()
}

fn event(delta: &Value, finish: Option<&str>) -> String {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string()
}

/// Behind the end of a reply, as most servers send it.
fn usage() -> String {
    json!({"choices": [], "usage": {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": BILLED}})
        .to_string()
}

fn refusal() -> RawReply {
    let said = event(&json!({"refusal": "I can't help with that."}), Some("stop"));
    RawReply::events(&[said, usage(), "[DONE]".into()])
}

/// A text of so many bytes, and no end of it.
fn half(bytes: usize) -> RawReply {
    RawReply::events(&[event(&json!({"content": "x".repeat(bytes)}), None)])
}

async fn every_end_of_a_call_that_began_is_charged(on: On) {
    let filtered = [event(&json!({"content": "half"}), Some("content_filter")), usage(), "[DONE]".into()];
    let begun = json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
        "content": [], "model": "x", "stop_reason": null, "usage": {"input_tokens": 5_000, "output_tokens": 1}}});
    let word = format!("data: {}\n\n", event(&json!({"content": "x".repeat(1_000)}), None));
    let endless = RawReply::new("text/event-stream", "").framing(Framing::Close);
    let error = json!({"error": {"message": "no", "type": "server_error"}});
    // At least so many tokens, and how many of the calls are estimates; exactly, where none is.
    for (name, provider, reply, least, estimated) in [
        ("refusal", "openai", refusal(), BILLED, 0),
        ("filter", "openai", RawReply::events(&filtered), BILLED, 0),
        ("cut", "openai", half(4_000).then(Piece::Cut), 1_000, 1),
        ("cut-after-usage", "anthropic", RawReply::events(&[begun.to_string()]).then(Piece::Cut), 5_001, 1),
        ("endless", "openai", endless.then(Piece::Repeat(word.into_bytes(), Duration::ZERO)), 1_000, 1),
        ("timeout", "openai", half(4_000).then(Piece::Hold), 1_000, 1),
        ("silence", "openai", RawReply::silence(), 10, 1),
        ("gateway", "openai", RawReply::json(&error).status(504), 10, 1),
        ("overloaded", "openai", RawReply::json(&error).status(503), 0, 0),
        ("refused", "openai", RawReply::json(&error).status(400), 0, 0),
    ] {
        let server = ModelServer::start(move |_| reply.clone());
        let Some((venue, _dir)) = venue(on, &server, "tokens=1000000").await else { return };
        venue.agent("a", agent(provider, 1)).await;
        let job = venue.run("a", "t", json!("go")).await;
        assert_eq!(job.status, JobStatus::Failed, "{name}");
        let (counted, own) = (counted(&venue).await, own(&venue, &job).await);
        if estimated == 0 {
            assert_eq!(counted, least, "{name}: {own}");
        } else {
            assert!(counted >= least, "{name}: {counted} {own}");
        }
        let shown = own["input"].as_u64().unwrap() + own["output"].as_u64().unwrap();
        assert_eq!((shown, own["estimated"].as_u64().unwrap_or_default()), (counted, estimated), "{name}: {own}");
        assert_eq!(server.calls().len(), 1, "{name}");
    }
}

async fn a_cancelled_call_is_charged_what_has_come_of_it(on: On) {
    let server = ModelServer::start(|_| half(4_000).then(Piece::Hold));
    let Some((mut venue, _dir)) = venue(on, &server, "tokens=1000000").await else { return };
    venue.model_timeout = Duration::from_mins(10);
    venue.agent("a", agent("openai", 1)).await;
    let job = venue.submit("a", "t", json!("go")).await.job.unwrap();
    server.wait_until("it has sent its text", |server| server.body_bytes_sent() > 4_000).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
    let job = venue.ended(&job).await;
    assert_eq!(job.status, JobStatus::Cancelled);
    for _ in 0..1_200 {
        if counted_or_held(&venue).await >= 1_000 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the call is not charged");
}

/// The same as [`counted`] of a call that may not be settled yet.
async fn counted_or_held(venue: &TestVenue) -> u64 {
    let key = keys::owner_cap(&venue.venue.day().1);
    let doc = venue.venue.store.read(&venue.owner, &[key]).await.unwrap().remove(0);
    let book = doc.value.map(|bytes| serde_json::from_slice::<CapUse>(&bytes).unwrap()).unwrap_or_default();
    if book.held.is_empty() { book.spent.tokens } else { 0 }
}

async fn a_turn_that_waits_keeps_what_its_calls_have_used(on: On) {
    let server = ModelServer::start(|_| half(4_000).then(Piece::Cut));
    let Some((venue, _dir)) = venue(on, &server, "tokens=1000000").await else { return };
    venue.agent("a", agent("openai", 3)).await;
    let job = venue.run("a", "t", json!("go")).await;
    let (counted, own) = (counted(&venue).await, own(&venue, &job).await);
    assert_eq!((&own["calls"], &own["estimated"]), (&json!(3), &json!(3)), "{own}");
    assert_eq!(own["input"].as_u64().unwrap() + own["output"].as_u64().unwrap(), counted, "{own}");
    assert!(counted >= 3_000, "{counted}");
}

/// Tokens that sessions of the day have used.
async fn of_the_day(venue: &TestVenue) -> u64 {
    let found = venue.venue.store.scan(&venue.owner, keys::SESSION_DAYS, None, false, 100).await.unwrap();
    let days =
        found.into_iter().map(|(_, doc)| serde_json::from_slice::<BTreeMap<String, ModelUse>>(&doc.value.unwrap()));
    days.flat_map(|day| day.unwrap().into_values()).map(|spent| spent.input + spent.output).sum()
}

async fn the_use_of_a_task_cancelled_in_backoff_is_shown(on: On) {
    let calls = Arc::new(AtomicUsize::new(0));
    let whole = RawReply::events(&[event(&json!({"content": "done"}), Some("stop")), usage(), "[DONE]".into()]);
    let (nth, cut) = (Arc::clone(&calls), half(4_000).then(Piece::Cut));
    let server =
        ModelServer::start(move |_| if nth.fetch_add(1, Ordering::SeqCst) < 2 { cut.clone() } else { whole.clone() });
    let Some((venue, _dir)) = venue(on, &server, "tokens=1000000").await else { return };
    let mut config = agent("openai", 10);
    config["retry"] = json!({"attempts": 10, "first": 600, "max": 600, "total": 36_000});
    venue.agent("a", config).await;
    let session = || Submission { input: json!("go"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    let mut used = Vec::new();
    for id in ["t1", "t2"] {
        let job = venue.arrive("a", id, true, session()).await.job.unwrap();
        loop {
            let job = jobs::get(&venue.venue, &venue.owner, &job).await.unwrap().unwrap();
            assert!(!job.status.is_terminal(), "{job:?}");
            if job.waiting.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        jobs::cancel(&venue.venue, &venue.owner, &job, None).await.unwrap();
        let job = venue.ended(&job).await;
        assert_eq!(job.status, JobStatus::Cancelled);
        let own = own(&venue, &job).await;
        used.push(own["input"].as_u64().unwrap() + own["output"].as_u64().unwrap());
        assert_eq!((&own["calls"], &own["estimated"]), (&json!(1), &json!(1)), "{id}: {own}");
        assert_eq!((counted(&venue).await, of_the_day(&venue).await), (used.iter().sum(), used.iter().sum()), "{id}");
    }
    // What the session does next counts beside it.
    let job = venue.arrive("a", "t3", true, session()).await.job.unwrap();
    let job = venue.ended(&job).await;
    assert_eq!(job.status, JobStatus::Complete);
    let own = own(&venue, &job).await;
    assert_eq!((&own["calls"], own["input"].as_u64().unwrap() + own["output"].as_u64().unwrap()), (&json!(1), BILLED));
    let all = used.iter().sum::<u64>() + BILLED;
    assert_eq!((counted(&venue).await, of_the_day(&venue).await), (all, all));
}

async fn a_whole_reply_that_nobody_counts_is_charged_all_that_it_says(on: On) {
    let long = "x".repeat(60_000);
    let call = json!({"tool_calls": [{"index": 0, "id": "c", "type": "function",
        "function": {"name": "no_such_tool", "arguments": json!({"a": long}).to_string()}}]});
    for (name, said) in
        [("text", json!({"content": long})), ("call", call), ("reasoning", json!({"reasoning_content": long}))]
    {
        let finish = if name == "call" { "tool_calls" } else { "stop" };
        let replies = [
            [event(&said, None), event(&json!({}), Some(finish)), "[DONE]".into()],
            [event(&json!({"content": "ok"}), None), event(&json!({}), Some("stop")), "[DONE]".into()],
        ];
        let server = ModelServer::scripted(replies.iter().map(|events| RawReply::events(events)).collect());
        let Some((venue, _dir)) = venue(on, &server, "tokens=1000000").await else { return };
        venue.agent("a", json!({"model": {"provider": "openai", "name": "m"}, "retry": {"attempts": 1}})).await;
        let job = venue.run("a", "t", json!("go")).await;
        let counted = counted(&venue).await;
        assert!(counted > 10_000, "{name}: {counted} {}", own(&venue, &job).await);
    }
}

async fn calls_that_end_in_a_refusal_stop_at_the_cap(on: On) {
    let server = ModelServer::start(|_| refusal());
    let Some((venue, _dir)) = venue(on, &server, "tokens=10000").await else { return };
    venue.agent("a", agent("openai", 1)).await;
    for n in 0..30 {
        let result = venue.run("a", &format!("t{n}"), json!("go")).await.result.unwrap();
        if result.error_code == Some(ErrorCode::LimitReached) {
            let calls = server.calls().len() as u64;
            assert_eq!((calls, counted(&venue).await), (n, n * BILLED));
            assert!((5..=10).contains(&n), "{n} calls of {BILLED} under a cap of 10000");
            return;
        }
    }
    panic!("no cap is reached");
}

on_both! {
    every_end_of_a_call_that_began_is_charged
    a_cancelled_call_is_charged_what_has_come_of_it
    a_turn_that_waits_keeps_what_its_calls_have_used
    the_use_of_a_task_cancelled_in_backoff_is_shown
    a_whole_reply_that_nobody_counts_is_charged_all_that_it_says
    calls_that_end_in_a_refusal_stop_at_the_cap
}
