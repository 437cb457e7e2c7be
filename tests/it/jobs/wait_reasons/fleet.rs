//! A fleet: whether a worker lives, and since when the queue is away.

use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::http::Server;
use crate::support::nats::NatsServer;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use trellis::domain::worker_registry::WorkerRecord;
use trellis::http::HttpOptions;
use trellis::venue::registry;

#[tokio::test]
async fn an_api_that_runs_no_turns_is_ready_while_a_worker_lives() {
    let server = Server::limited(|options| HttpOptions { needs_worker: true, ..options }).await;
    server.get("/readyz").await.is_problem(503, "not ready: no worker runs; what is submitted waits for a worker");
    let now = server.venue.now();
    let me = json!({
        "name": "w-1", "host": "h", "version": "1", "format": 1, "slots": 16, "busy": 0, "since": now, "seen": now,
    });
    let me: WorkerRecord = serde_json::from_value(me).unwrap();
    registry::register(&server.venue, &me).await.unwrap();
    assert_eq!(server.get("/readyz").await.body(200), json!({"status": "ready"}));
    registry::unregister(&server.venue, &me).await.unwrap();
    server.get("/readyz").await.is_problem(503, "no worker runs");
}

#[test]
fn work_waits_for_a_queue_that_is_away_and_says_so() {
    let Some(mut nats) = NatsServer::start() else { return };
    let Some(fleet) = Fleet::on_shared_redis(nats.url()) else { return };
    let (_worker, _serve, url) = fleet.start_all();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &url]].concat());
    http(&["agent", "apply", "echo.toml"]).ok();
    http(&["submit", "echo", "x", "--wait=60s"]).ok();
    nats.kill();
    let job = http(&["submit", "echo", "later"]).ok();
    let reason = || -> Value {
        let record = http(&["job", "get", &job, "--output", "json"]).ok();
        serde_json::from_str::<Value>(&record).unwrap()["waiting"].clone()
    };
    let began = Instant::now();
    while reason()["kind"] != "queue-away" {
        assert!(began.elapsed() < Duration::from_mins(1), "{}", reason());
        std::thread::sleep(Duration::from_millis(100));
    }
    let (first, again) = (reason(), reason());
    assert_eq!(first, again, "since the same time");
    assert!(first["reason"].as_str().is_some_and(|text| text.contains("the queue has been away since 20")), "{first}");
    assert!(first["since"].is_u64() && first["advice"].is_string(), "{first}");
    let ready = run(fleet.path(), &["ready", "--url", &url]).expect(0, "the queue has been away since 20");
    assert_eq!(ready.out, "ready\n", "what is submitted is accepted");
    assert!(fleet.run(&["worker", "list"]).ok().contains("works"), "workers are in the store");
    nats.restart();
    assert_eq!(http(&["job", "wait", &job]).ok(), "later");
    assert_eq!(run(fleet.path(), &["ready", "--url", &url]).expect(0, "").err, "");
}
