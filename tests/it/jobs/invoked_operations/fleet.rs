//! Processes over NATS and Redis, killed in the middle; and `trellis up`, restarted.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn post(url: &str, operation: &str, input: Value) -> Value {
    let body = json!({"operation": operation, "input": input, "wait": 0});
    let sent = reqwest::Client::new().post(format!("{url}/api/v1/invoke")).body(body.to_string()).send().await.unwrap();
    assert_eq!(sent.status(), 201);
    sent.json().await.unwrap()
}

async fn becomes(url: &str, job: &Value, status: &str) -> Value {
    let start = Instant::now();
    loop {
        let job = format!("{url}/api/v1/jobs/{}", job["id"].as_str().unwrap());
        let now: Value = reqwest::get(job).await.unwrap().json().await.unwrap();
        if now["status"] == status {
            return now;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "it never is {status}: {now}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_ends_once_when_worker_and_server_die() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let config = fleet.path().join("fleet.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[worker]\nlease = \"3s\"\n[catalog]\ntest = true\n")).unwrap();
    let (mut worker, mut serve, url) = fleet.start_all();
    let written = post(&url, "lattice/append", json!({"path": "w/log", "value": 1})).await;
    becomes(&url, &written, "COMPLETE").await;
    let once = post(&url, "test/once", json!({"delay": 60_000})).await;
    let read = post(&url, "test/delay", json!({"delay": 3_000})).await;
    for job in [&once, &read] {
        becomes(&url, job, "STARTED").await;
    }
    worker.signal("KILL");
    worker.ended();
    let waits = post(&url, "lattice/append", json!({"path": "w/log", "value": 2})).await;
    serve.signal("KILL");
    serve.ended();
    let (_worker, _serve, url) = fleet.start_all();
    let unknown = becomes(&url, &once, "FAILED").await;
    assert_eq!(unknown["errorCode"], "OUTCOME_UNKNOWN", "{unknown}");
    becomes(&url, &read, "COMPLETE").await;
    assert_eq!(becomes(&url, &waits, "COMPLETE").await["output"]["newSize"], 2);
    let books = run(fleet.path(), &["audit", "--config", "fleet.toml"]).ok();
    assert!(books.contains("unaccounted") && books.contains('0'), "{books}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_process_resumes_accepted_operations() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let args = [
            "up",
            "--data",
            "data",
            "--listen",
            "127.0.0.1:0",
            "--set",
            "catalog.test=true",
            "--set",
            "worker.lease=3s",
            "--set",
            "worker.grace=3s",
        ];
        let mut up = Process::start(dir.path(), args);
        let url = up.says("HTTP API on ").split(' ').next().unwrap().to_owned();
        (up, url)
    };
    let (mut up, url) = start();
    let (once, read) = (
        post(&url, "test/once", json!({"delay": 60_000})).await,
        post(&url, "test/delay", json!({"delay": 2_000})).await,
    );
    for job in [&once, &read] {
        becomes(&url, job, "STARTED").await;
    }
    up.signal("KILL");
    up.ended();
    let (mut up, url) = start();
    assert_eq!(becomes(&url, &once, "FAILED").await["errorCode"], "OUTCOME_UNKNOWN");
    becomes(&url, &read, "COMPLETE").await;
    // A shutdown that can't wait says at once that it doesn't know.
    let once = post(&url, "test/once", json!({"delay": 600_000})).await;
    becomes(&url, &once, "STARTED").await;
    up.signal("TERM");
    assert_eq!(up.ended().code(), Some(0), "{}", up.log());
    let (_up, url) = start();
    let began = Instant::now();
    assert_eq!(becomes(&url, &once, "FAILED").await["errorCode"], "OUTCOME_UNKNOWN");
    assert!(began.elapsed() < Duration::from_secs(3), "it had ended before");
}
