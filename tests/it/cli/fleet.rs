//! `trellis worker` and `trellis serve` on NATS and Redis, and submissions straight into the queue.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::nats::{self, NatsServer};
use crate::support::port;
use crate::support::redis::RedisServer;
use async_nats::{Client, Message, Subscriber};
use futures::StreamExt;
use std::time::Duration;

#[test]
fn a_fleet_serves_http_and_the_queue() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (mut worker, mut serve, url) = fleet.start_all();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &url]].concat());
    http(&["agent", "apply", "echo.toml"]).ok();
    assert_eq!(http(&["submit", "echo", "over http", "--wait=60s"]).ok(), "over http");
    assert_eq!(fleet.publish(&["submit", "echo", "over nats", "--id", "k", "--wait=60s"]).ok(), "over nats");
    assert_eq!(fleet.publish(&["submit", "echo", "over nats", "--id", "k", "--wait=60s"]).ok(), "over nats", "again");
    fleet.publish(&["submit", "echo", "other", "--id", "k", "--wait=60s"]).expect(6, "(CONFLICT)");
    fleet.publish(&["submit", "nobody", "x", "--wait=60s"]).expect(3, "no such agent");
    assert_eq!(fleet.publish(&["message", "echo", "note this", "--id", "m"]).ok(), "m");
    let jobs = http(&["job", "list"]).ok();
    assert!(jobs.contains("over http") && jobs.contains("over nats"), "{jobs}");
    let report = fleet.run(&["doctor"]).expect(0, "").out;
    assert!(report.contains("redis appendfsync") && report.contains("nats replicas"), "{report}");
    for process in [&mut worker, &mut serve] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}

#[test]
fn serve_warns_once_of_rules_that_only_workers_can_have() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (_worker, _serve, url) = fleet.start_all();
    let file = |name: &str, text: &str| std::fs::write(fleet.path().join(name), text).unwrap();
    let gone = r#"model = { provider = "scripted", name = "gone.rules", fallback = ["scripted/gone.rules"] }"#;
    file("gone.toml", gone);
    fleet.slow_agent("here", 1);
    let warning = "this process has no worker and sees no rules for `gone.rules`: every worker must have them";
    for (agent, times) in [("gone.toml", 1), ("here.toml", 0), ("echo.toml", 0)] {
        let done = run(fleet.path(), &["agent", "apply", agent, "--url", &url]).expect(0, "");
        assert_eq!(done.err.matches(warning).count(), times, "{agent}: {done:?}");
    }
}

#[test]
fn a_worker_waits_for_nats_with_a_message_and_goes_on() {
    let Some(mut server) = NatsServer::start() else { return };
    let Some(fleet) = Fleet::on_shared_redis(server.url()) else { return };
    server.kill();
    let mut impatient = fleet.start("worker");
    let mut worker = fleet.start("worker");
    impatient.says("waiting for NATS at ");
    impatient.signal("TERM");
    assert_eq!(impatient.ended().code(), Some(0), "{}", impatient.log());
    worker.says("waiting for NATS at ");
    server.restart();
    worker.says("worker `");
    assert_eq!(worker.log().matches("waiting for NATS").count(), 1);
}

#[test]
fn a_worker_that_waits_for_one_server_tells_how_the_other_is() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let [redis, nats] = ["redis", "nats"].map(|kind| format!("{kind}://127.0.0.1:{}", port::lasting()));
    let (redis_setting, nats_setting) = (format!("store.url={redis}"), format!("bus.url={nats}"));
    let start = |settings: &[&str]| {
        let settings = settings.iter().flat_map(|setting| ["--set", *setting]);
        Process::start(fleet.path(), ["worker", "--config", "fleet.toml"].into_iter().chain(settings))
    };
    let advice = |setting: &str| format!("nothing listens there: start the server, or set `{setting}`");
    let mut both = start(&[&redis_setting, &nats_setting]);
    for (waits, setting) in
        [(format!("waiting for Redis at `{redis}`"), "store.url"), (format!("waiting for NATS at `{nats}`"), "bus.url")]
    {
        let rest = both.says(&waits);
        assert!(rest.contains("refused") && rest.contains(&advice(setting)), "{rest}");
    }
    let mut no_redis = start(&[&redis_setting]);
    no_redis.says(&format!("waiting for Redis at `{redis}`"));
    no_redis.says(&format!("NATS at `{}` answers", fleet.nats));
    let mut no_nats = start(&[&nats_setting]);
    no_nats.says(&format!("waiting for NATS at `{nats}`"));
    no_nats.says("Redis at `redis://");
    assert!(no_nats.log().contains("` answers"), "{}", no_nats.log());
    for mut process in [both, no_redis, no_nats] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}

#[test]
fn a_client_waiting_over_nats_is_told_the_reason_once() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (mut worker, _serve, url) = fleet.start_all();
    let model = "model = { provider = \"mistral\", name = \"m\" }\n";
    std::fs::write(fleet.path().join("helper.toml"), model).unwrap();
    run(fleet.path(), &["agent", "apply", "helper.toml", "--url", &url]).ok();
    let said = fleet.publish(&["submit", "helper", "Say hello", "--wait=12s"]).expect(4, "no completion of submission");
    let reason = "waits: agent `helper` is suspended";
    assert_eq!(said.err.matches(reason).count(), 1, "{said:?}");
    assert!(said.err.contains("`MISTRAL_API_KEY` is not set"), "{said:?}");
    worker.signal("TERM");
    worker.ended();
    let said = fleet.publish(&["submit", "helper", "again", "--wait=8s"]).expect(4, "no completion of submission");
    let reason = format!("waits: no worker answers at NATS `{}`; start one with `trellis worker`", fleet.nats);
    assert_eq!(said.err.matches(&reason).count(), 1, "{said:?}");
}

/// Asks for the reply subjects in turn until a worker answers at the last, whose messages `answers` has: the worker may
/// still be about to listen.
async fn ask_workers(client: &Client, subject: &str, replies: &[&String], answers: &mut Subscriber) -> Message {
    let answered = async {
        loop {
            for reply in replies {
                let (subject, reply) = (subject.to_owned(), (*reply).clone());
                client.publish_with_reply(subject, reply, "some-id".into()).await.unwrap();
            }
            let answer = tokio::time::timeout(Duration::from_secs(1), answers.next()).await;
            // Without a payload the server says that nobody listens.
            if let Ok(Some(answer)) = answer
                && !answer.payload.is_empty()
            {
                return answer;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), answered).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_over_nats_learns_that_no_worker_answers() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let mut worker = fleet.start("worker");
    worker.says("worker `");
    let client = async_nats::connect(&fleet.nats).await.unwrap();
    let reply = format!("trellis.reply.local.me.{}", fleet.prefix);
    let mut answers = client.subscribe(reply.clone()).await.unwrap();
    ask_workers(&client, &format!("{}.ask.local.me", fleet.prefix), &[&reply], &mut answers).await;
    worker.signal("STOP");
    let said = fleet.publish(&["submit", "helper", "hi", "--wait=8s"]).expect(4, "no completion of submission");
    let reason = format!("waits: no worker has answered within 2 s at NATS `{}`; ", fleet.nats);
    assert_eq!(said.err.matches(&reason).count(), 1, "{said:?}");
    worker.signal("CONT");
}

/// The venue publishes with rights of its own, so that only inboxes of the owner who asks get an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_to_an_inbox_of_its_owner_alone() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let mut worker = fleet.start("worker");
    worker.says("worker `");
    let client = async_nats::connect(&fleet.nats).await.unwrap();
    let ask = format!("{}.ask.local.me", fleet.prefix);
    let elsewhere = format!("{}.elsewhere", fleet.prefix);
    let others = format!("trellis.reply.local.you.{}", fleet.prefix);
    let own = format!("trellis.reply.local.me.{}", fleet.prefix);
    let mut heard = Vec::new();
    for inbox in [&elsewhere, &others, &own] {
        heard.push(client.subscribe(inbox.clone()).await.unwrap());
    }
    // One worker answers in the order of the questions.
    let answer = ask_workers(&client, &ask, &[&elsewhere, &others, &own], &mut heard[2]).await;
    let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(answer["waiting"]["kind"], "not-admitted");
    for (body, expected) in [("a b", "id of a submission"), ("venue:1", "made by the venue alone")] {
        client.publish_with_reply(ask.clone(), own.clone(), body.into()).await.unwrap();
        let refused = loop {
            let message = tokio::time::timeout(Duration::from_mins(1), heard[2].next()).await.unwrap().unwrap();
            let answer: serde_json::Value = serde_json::from_slice(&message.payload).unwrap_or_default();
            // The earlier question may have been asked more than once.
            if answer["status"] == "REJECTED" {
                break answer;
            }
        };
        assert!(refused["error"].as_str().unwrap().contains(expected), "{refused}");
    }
    for inbox in &mut heard[..2] {
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(300), inbox.next()).await {
            assert!(message.payload.is_empty(), "{message:?}");
        }
    }
}

#[test]
fn a_missing_queue_is_an_error() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    fleet.publish(&["submit", "echo", "x"]).expect(8, "has a `trellis worker` been started on it");
}

#[test]
fn a_missing_guarantee_is_a_warning_or_stops_the_start() {
    let Some(server) = RedisServer::start() else { return };
    let Some(fleet) = nats::shared().map(|url| Fleet::new(url, &server)) else { return };
    let set = |value: &str| {
        let set = async { server.command(&["CONFIG", "SET", "appendfsync", value]).await.unwrap() };
        tokio::runtime::Runtime::new().unwrap().block_on(set);
    };
    set("everysec");
    let mut worker = fleet.start("worker");
    worker.says("guarantees do not hold with these servers");
    worker.says("redis appendfsync is `everysec`");
    worker.signal("TERM");
    worker.ended();
    for role in ["worker", "serve"] {
        let done = fleet.run(&[role, "--set", "store.require_durable=true"]);
        done.expect(2, "`store.require_durable` is set: redis appendfsync is `everysec`");
    }
    set("always");
    let mut durable =
        Process::start(fleet.path(), ["worker", "--config", "fleet.toml", "--set", "store.require_durable=true"]);
    durable.says("worker `");
    durable.signal("TERM");
    assert_eq!(durable.ended().code(), Some(0), "{}", durable.log());
}
