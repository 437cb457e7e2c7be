//! What a release does to processes: they say that they leave, end their work or hand it over, and nobody waits for them.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::nats;
use crate::support::redis::RedisServer;
use reqwest::Client;
use serde_json::Value;
use std::time::{Duration, Instant};

/// What was begun when its worker left is over within so long, on a busy machine, too; a lease lapses later.
const PROMPT: Duration = Duration::from_secs(28);

/// A process of a fleet with more settings.
fn start(fleet: &Fleet, role: &str, settings: &[&str]) -> Process {
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    Process::start(fleet.path(), [role, "--config", "fleet.toml"].into_iter().chain(settings))
}

/// A worker with its address.
pub fn worker(fleet: &Fleet, settings: &[&str]) -> (Process, String) {
    let mut worker = start(fleet, "worker", &[&["worker.listen=127.0.0.1:0"], settings].concat());
    let url = worker.says("health on ").trim().to_owned();
    worker.says("worker `");
    (worker, url)
}

pub async fn get(url: &str, path: &str) -> (u16, String) {
    let answer = Client::new().get(format!("{url}{path}")).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn until_busy(url: &str, slots: usize) {
    let started = Instant::now();
    while !get(url, "/metrics").await.1.contains(&format!("\ntrellis_slots_busy {slots}\n")) {
        assert!(started.elapsed() < Duration::from_mins(1), "{slots} slots are not busy");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn leaves(process: &mut Process) {
    process.signal("TERM");
    process.says("SIGTERM: stopping");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_says_that_it_leaves_while_it_still_takes_requests() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (mut worker, _) = worker(&fleet, &[]);
    let mut serve = start(&fleet, "serve", &["http.linger=8s"]);
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    run(fleet.path(), &["agent", "apply", "echo.toml", "--url", &url]).ok();
    let ready = || run(fleet.path(), &["ready", "--url", &url]);
    assert_eq!(ready().ok(), "ready");
    let told = Instant::now();
    leaves(&mut serve);
    ready().expect(8, "not ready: the process shuts down");
    let last = Client::new().get(format!("{url}/livez")).send().await.unwrap();
    assert_eq!((last.status().as_u16(), &last.headers()["connection"]), (200, &"close".parse().unwrap()));
    // The balancer has not heard of it yet.
    assert_eq!(run(fleet.path(), &["submit", "echo", "late", "--wait=30s", "--url", &url]).ok(), "late");
    assert_eq!(serve.ended().code(), Some(0), "{}", serve.log());
    assert!(told.elapsed() >= Duration::from_secs(8), "{:?}", told.elapsed());
    ready().expect(8, "no server at");
    worker.signal("TERM");
    assert_eq!(worker.ended().code(), Some(0), "{}", worker.log());
}

#[test]
fn the_time_to_linger_fits_into_that_of_the_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let check = |linger: &str| run(dir.path(), &["config", "check", "--set", &format!("http.linger={linger}")]);
    check("15s").ok();
    check("16s").expect(2, "expected `worker.grace` at least 5s longer than `http.linger`, got `20s` and `16s`");
    run(dir.path(), &["config", "check", "--set", "worker.listen=8420"]).expect(2, "expected `` or an address such as");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_answers_only_health_requests() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    // With tokens, too: whoever probes has none.
    let jwt = ["auth.mode=jwt", "auth.did_keys=*"];
    let (mut worker, url) = worker(&fleet, &jwt);
    assert_eq!(get(&url, "/livez").await, (200, "{\"status\":\"live\"}".to_owned()));
    assert_eq!(get(&url, "/readyz").await, (200, "{\"status\":\"ready\"}".to_owned()));
    assert!(get(&url, "/metrics").await.1.contains("\ntrellis_slots_busy 0\n"));
    // A probe comes under the address of the pod, which is no loopback name.
    let probe = Client::new().get(format!("{url}/readyz")).header("host", "10.1.2.3:8420").send().await.unwrap();
    assert_eq!(probe.status().as_u16(), 200);
    for path in ["/api/v1/status", "/api/v1/agents", "/"] {
        let (status, text) = get(&url, path).await;
        assert!(
            status == 404 && text.contains("a worker has `/livez`, `/readyz`, `/metrics` and `/work`"),
            "{path}: {text}"
        );
    }
    let taken = format!("worker.listen={}", url.trim_start_matches("http://"));
    let other = run(fleet.path(), &["worker", "--config", "fleet.toml", "--set", &taken]);
    other.expect(6, "choose another address with `worker.listen`");
    worker.signal("TERM");
    assert_eq!(worker.ended().code(), Some(0), "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaving_worker_takes_no_new_work_and_ends_its_turns() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let never = "model = { provider = \"scripted\", name = \"never\" }";
    std::fs::write(fleet.path().join("never.toml"), never).unwrap();
    // It has asked the queue for more, and the queue holds the request for a while.
    let (mut leaving, at) = worker(&fleet, &["worker.grace=2m", "worker.poll=30s"]);
    let mut serve = start(&fleet, "serve", &[]);
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    run(fleet.path(), &["agent", "apply", "echo.toml", "never.toml", "--url", &url]).ok();
    fleet.publish(&["submit", "never", "x"]).ok();
    until_busy(&at, 1).await;
    let (mut staying, _) = worker(&fleet, &[]);
    leaves(&mut leaving);
    let (status, text) = get(&at, "/readyz").await;
    assert!(status == 503 && text.contains("not ready: the process shuts down"), "{status} {text}");
    for n in 0..6 {
        // Less than the 30 s after which the queue delivers again by itself.
        let text = format!("after {n}");
        assert_eq!(fleet.publish(&["submit", "echo", &text, "--wait=20s"]).ok(), text);
    }
    assert_eq!(get(&at, "/livez").await.0, 200, "its turn goes on");
    leaving.signal("TERM");
    assert_eq!(leaving.ended().code(), Some(130), "{}", leaving.log());
    for process in [&mut staying, &mut serve] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}

/// Model calls that were begun for an agent, of all workers.
fn calls(fleet: &Fleet, agent: &str) -> usize {
    let log = std::fs::read_to_string(fleet.path().join("calls.jsonl")).unwrap();
    let calls = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of = format!("/{agent}/");
    calls.filter(|call| call["event"] == "started" && call["turn"].as_str().unwrap().contains(&of)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_ends_or_hands_over_work_without_a_crash() {
    let (Some(server), Some(nats)) = (RedisServer::start(), nats::shared()) else { return };
    let fleet = Fleet::new(nats, &server);
    fleet.slow_agent("short", 2_000);
    fleet.slow_agent("long", 9_000);
    // After one crash a task is given up. The sweep is too rare to be of help.
    let all = ["worker.crash_limit=1", "worker.grace=8s", "worker.sweep=1m", "models.calls_log=calls.jsonl"];
    let (mut old, at) = worker(&fleet, &[&all[..], &["worker.name=old"]].concat());
    let mut serve = start(&fleet, "serve", &[]);
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    run(fleet.path(), &["agent", "apply", "short.toml", "long.toml", "--url", &url]).ok();
    for (agent, id) in [("short", "a"), ("short", "b"), ("long", "c"), ("long", "d")] {
        fleet.publish(&["submit", agent, "x", "--id", id]).ok();
    }
    until_busy(&at, 4).await;
    let (mut new, _) = worker(&fleet, &[&all[..], &["worker.name=new"]].concat());
    let told = Instant::now();
    leaves(&mut old);
    assert_eq!(old.ended().code(), Some(0), "{}", old.log());
    assert!(old.log().contains("cancelling 2 turns and giving their leases back"), "{}", old.log());
    let list = async |words: &[&str]| -> Vec<String> {
        redis::from_redis_value(server.command(words).await.unwrap()).unwrap()
    };
    let workers = list(&["KEYS", "*:workers"]).await;
    assert_eq!(list(&["ZRANGE", &workers[0], "0", "-1"]).await, ["new"], "the old one has signed off");
    let complete = async || {
        let list: Value = serde_json::from_str(&get(&url, "/api/v1/jobs?details=true&limit=100").await.1).unwrap();
        let states: Vec<_> = list["items"].as_array().unwrap().iter().map(|job| job["status"].clone()).collect();
        assert!(states.len() == 4 && !states.iter().any(|state| state == "FAILED"), "{states:?}");
        states.iter().all(|state| state == "COMPLETE")
    };
    while !complete().await {
        assert!(told.elapsed() < PROMPT, "not over after {:?}: {}", told.elapsed(), new.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((calls(&fleet, "short"), calls(&fleet, "long")), (2, 4), "only what was cut off is asked for again");
    for process in [&mut new, &mut serve] {
        process.signal("TERM");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}
