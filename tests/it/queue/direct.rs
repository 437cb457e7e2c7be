//! Submissions over `trellis.do`: a client of `JetStream` publishes as ever, and is answered by whoever admits.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context};
use async_nats::{HeaderMap, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_mins(1);

async fn context_of(fleet: &Fleet) -> (async_nats::Client, Context) {
    let client = async_nats::connect(&fleet.nats).await.unwrap();
    (client.clone(), jetstream::new(client))
}

async fn submit(context: &Context, subject: &str, id: &str, body: Value) -> Result<(String, bool), PublishError> {
    let mut headers = HeaderMap::new();
    headers.insert("Trellis-Id", id);
    let sent = context.publish_with_headers(subject.to_owned(), headers, Bytes::from(body.to_string())).await?;
    sent.await.map(|ack| (ack.stream, ack.duplicate))
}

/// The error of `JetStream` in a refused publish: its status, and what it says.
fn refusal(error: &PublishError) -> (usize, String) {
    let answer: &jetstream::Error = error.source().and_then(|source| source.downcast_ref()).expect("the venue's error");
    (answer.code(), answer.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_submission_is_acknowledged_as_a_publish() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (worker, serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    let (client, context) = context_of(&fleet).await;
    let mut done = client.subscribe(format!("{}.out.local.me.echo.*", fleet.prefix)).await.unwrap();
    client.flush().await.unwrap();
    let subject = format!("{}.do.local.me.echo.task", fleet.prefix);
    let logs = || format!("{} {}", worker.log(), serve.log());

    let ack = submit(&context, &subject, "one", json!({"input": "hi"})).await;
    assert_eq!(ack.unwrap_or_else(|error| panic!("{error} {}", logs())), ("TRELLIS_DO".to_owned(), false));
    let completion = timeout(LIMIT, done.next()).await.expect("a completion").unwrap();
    let completion: Value = serde_json::from_slice(&completion.payload).unwrap();
    assert_eq!((&completion["id"], &completion["status"]), (&json!("one"), &json!("COMPLETE")), "{completion}");

    let (_, duplicate) = submit(&context, &subject, "one", json!({"input": "hi"})).await.unwrap();
    assert!(duplicate, "the same id and body is the same task");
    // The stream knows it, too: both ways have the same ids.
    let stream = subject.replace(".do.", ".in.");
    submit(&context, &stream, "one", json!({"input": "hi"})).await.unwrap();

    let answer = client.request(subject, r#"{"input": "x"}"#.into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert!(answer["job"].is_string() && answer["id"].is_string() && answer["seq"].as_u64() > Some(0), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_has_ended_answers_a_repetition_too() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (_worker, _serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    let (client, context) = context_of(&fleet).await;
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.unwrap();
    client.flush().await.unwrap();
    let subject = format!("{}.do.local.me.echo.task", fleet.prefix);
    for is_known in [false, true] {
        let ack = submit(&context, &subject, "one", json!({"input": "hi", "replyTo": inbox})).await;
        assert_eq!(ack.unwrap().1, is_known);
        let completion = timeout(LIMIT, answers.next()).await.expect("an answer to each submission").unwrap();
        let completion: Value = serde_json::from_slice(&completion.payload).unwrap();
        assert_eq!((&completion["id"], &completion["status"]), (&json!("one"), &json!("COMPLETE")), "{completion}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_direct_submission_is_told_why_at_once() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (_worker, _serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    let (_client, context) = context_of(&fleet).await;
    let place = format!("{}.do.local.me", fleet.prefix);
    submit(&context, &format!("{place}.echo.task"), "known", json!({"input": 1})).await.unwrap();
    for (end, id, body, code, words) in [
        ("nobody.task", "a", json!({"input": 1}), 404, "no such agent"),
        ("echo.task", "known", json!({"input": 2}), 409, "with another body"),
        ("echo.task", "b", json!({"inptu": 1}), 400, "inptu"),
        ("echo.task", "b", json!({"input": 1, "caller": "x"}), 400, "`caller` is set by the venue"),
        ("echo.task", "venue:1", json!({"input": 1}), 400, "venue:"),
        ("echo.task", "b", json!({"input": "x".repeat(950_000)}), 413, "expected at most"),
        ("echo.cancel", "b", json!({"job": "x"}), 400, "publish others to `trellis.in`"),
        ("echo.taks", "b", json!({"input": 1}), 400, "got the kind `taks`"),
        ("echo", "b", json!({"input": 1}), 400, "tokens after `do`"),
    ] {
        let refused = submit(&context, &format!("{place}.{end}"), id, body).await.expect_err(end);
        let (told, text) = refusal(&refused);
        assert!(told == code && text.contains(words), "{end} {id}: {told} {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_process_the_sender_is_told_so_and_the_stream_takes_it() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (mut worker, mut serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    for process in [&mut worker, &mut serve] {
        process.signal("TERM");
        process.ended();
    }
    let (_client, context) = context_of(&fleet).await;
    let subject = format!("{}.do.local.me.echo.task", fleet.prefix);
    let refused = submit(&context, &subject, "one", json!({"input": "hi"})).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), PublishErrorKind::StreamNotFound);
    fleet.publish(&["submit", "echo", "hi", "--id", "one"]).ok();
    let _worker = fleet.start("worker");
    let done = fleet.publish(&["submit", "echo", "hi", "--id", "one", "--wait=60s"]).ok();
    assert!(done.contains("hi"), "{done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stands_in_while_there_is_no_worker() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (mut worker, _serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    worker.signal("TERM");
    worker.ended();
    let (client, context) = context_of(&fleet).await;
    let mut done = client.subscribe(format!("{}.out.local.me.echo.*", fleet.prefix)).await.unwrap();
    client.flush().await.unwrap();
    let subject = format!("{}.do.local.me.echo.task", fleet.prefix);
    let begun = tokio::time::Instant::now();
    while let Err(error) = submit(&context, &subject, "one", json!({"input": "hi"})).await {
        assert!(error.kind() == PublishErrorKind::StreamNotFound && begun.elapsed() < LIMIT, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let _worker = fleet.start("worker");
    let completion = timeout(LIMIT, done.next()).await.expect("a completion").unwrap();
    let completion: Value = serde_json::from_slice(&completion.payload).unwrap();
    assert_eq!((&completion["id"], &completion["status"]), (&json!("one"), &json!("COMPLETE")), "{completion}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_the_death_of_who_took_it() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    fleet.slow_agent("slow", 300);
    let (mut first, mut serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "slow.toml", "--url", &url]).ok();
    serve.signal("TERM");
    serve.ended();
    let (client, context) = context_of(&fleet).await;
    let mut done = client.subscribe(format!("{}.out.local.me.slow.*", fleet.prefix)).await.unwrap();
    client.flush().await.unwrap();
    let subject = format!("{}.do.local.me.slow.task", fleet.prefix);
    let ids: Vec<_> = (0..40).map(|number| format!("s{number}")).collect();
    let acks = ids.iter().map(|id| submit(&context, &subject, id, json!({"input": id})));
    for ack in join_all(acks).await {
        ack.unwrap();
    }
    first.signal("KILL");
    first.ended();
    let _second: Process = fleet.start("worker");
    let mut missing: std::collections::BTreeSet<_> = ids.into_iter().collect();
    while !missing.is_empty() {
        let completion = timeout(LIMIT, done.next()).await.unwrap_or_else(|_| panic!("missing: {missing:?}")).unwrap();
        let completion: Value = serde_json::from_slice(&completion.payload).unwrap();
        assert_eq!(completion["status"], "COMPLETE", "{completion}");
        missing.remove(completion["id"].as_str().unwrap());
    }
}

/// The completion that comes to an inbox.
async fn completion_in(mut inbox: Subscriber) -> Value {
    let answer = timeout(LIMIT, inbox.next()).await.expect("a completion").unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

/// A producer that starts again has another inbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_comes_again_with_another_inbox_is_the_same_task() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (_worker, _serve, url) = fleet.start_all();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &url]].concat());
    http(&["agent", "apply", "echo.toml"]).ok();
    fleet.slow_agent("slow", 4_000);
    http(&["agent", "apply", "slow.toml"]).ok();
    let (client, context) = context_of(&fleet).await;
    let subject = |kind: &str, agent: &str| format!("{}.{kind}.local.me.{agent}.task", fleet.prefix);
    for (agent, first, again) in
        [("echo", "in", "do"), ("echo", "do", "in"), ("slow", "do", "do"), ("slow", "in", "in")]
    {
        let id = format!("{agent}-{first}-{again}");
        let send = async |kind: &str| {
            let inbox = client.new_inbox();
            let answers = client.subscribe(inbox.clone()).await.unwrap();
            client.flush().await.unwrap();
            submit(&context, &subject(kind, agent), &id, json!({"input": "hi", "replyTo": inbox})).await.unwrap();
            answers
        };
        let one = send(first).await;
        if agent == "echo" {
            assert_eq!(completion_in(one).await["status"], "COMPLETE", "{id}");
            assert_eq!(completion_in(send(again).await).await["status"], "COMPLETE", "{id}: it has ended");
        } else {
            let (one, two) = futures::join!(completion_in(one), completion_in(send(again).await));
            assert_eq!((&one["status"], &two["status"]), (&json!("COMPLETE"), &json!("COMPLETE")), "{id}: it ran");
            assert_eq!(one["job"], two["job"]);
        }
    }
    // Without a subject for the answer it is the same task, too; another input isn't.
    assert_eq!(http(&["submit", "echo", "hi", "--id", "echo-in-do", "--wait=60s"]).ok(), "hi");
    http(&["submit", "echo", "ho", "--id", "echo-in-do"]).expect(6, "accepted before with another body");
}

#[test]
fn a_submission_over_nats_prints_its_job() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (_worker, _serve, url) = fleet.start_all();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    let job = fleet.publish(&["submit", "echo", "hi"]).ok();
    assert_eq!(run(fleet.path(), &["job", "wait", &job, "--url", &url]).ok(), "hi");
}
