//! A worker that reads too slowly for its NATS server, which cuts it off: it comes back by itself, and nothing is lost.

use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::nats::NatsServer;
use crate::support::port;
use crate::support::redis_cluster::until;
use serde_json::Value;
use std::time::{Duration, Instant};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats.conf");

/// A lease is renewed three times.
const RENEWAL: Duration = Duration::from_secs(30);

/// More than the buffers of a connection hold.
const SIGNALS: usize = 60;
const SIGNAL_BYTES: usize = 900_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_consumer_reconnects_and_continues_its_tasks() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(CONFIG, dir.path().join("nats.conf")).unwrap();
    let config = dir.path().join("impatient.conf");
    std::fs::write(&config, "include \"nats.conf\"\nwrite_deadline: \"300ms\"\n").unwrap();
    let monitor = port::lasting();
    let arguments = ["-m", &monitor.to_string()];
    let Some(server) = NatsServer::start_as(&config.display().to_string(), &arguments) else { return };
    let Some(fleet) = Fleet::on_shared_redis(server.url()) else { return };
    let file = fleet.path().join("fleet.toml");
    let text = std::fs::read_to_string(&file).unwrap() + "[worker]\nslots = 1\nlease = \"90s\"\n";
    std::fs::write(&file, text).unwrap();
    fleet.slow_agent("slow", 1000);
    fleet.slow_agent("slower", 60_000);
    let (worker, serve, url) = fleet.start_all();
    for agent in ["echo.toml", "slow.toml", "slower.toml"] {
        run(fleet.path(), &["agent", "apply", agent, "--url", &url]).ok();
    }
    // One that runs while the worker stands still, and one that comes meanwhile.
    fleet.publish(&["submit", "slow", "x", "--id", "running"]).ok();
    let list =
        |more: &[&str]| run(fleet.path(), &[&["job", "list", "--url", &url, "--output", "json"], more].concat()).ok();
    let running = || list(&[]).contains("STARTED");
    until("a task runs", async || running()).await;
    worker.signal("STOP");
    fleet.publish(&["submit", "echo", "came", "--id", "came"]).ok();

    // Anybody who may publish there: what nobody reads is the server's to keep, for a while.
    let client = async_nats::connect(server.url()).await.unwrap();
    for _ in 0..SIGNALS {
        let subject = format!("{}.ctl.local.me", fleet.prefix);
        client.publish(subject, vec![b'x'; SIGNAL_BYTES].into()).await.unwrap();
    }
    client.flush().await.unwrap();
    until("the server has cut it off", async || {
        let told: Value = reqwest::get(format!("http://127.0.0.1:{monitor}/varz")).await.unwrap().json().await.unwrap();
        told["slow_consumers"].as_u64() > Some(0)
    })
    .await;
    worker.signal("CONT");

    let wait = |agent: &str, input: &str, id: &str| fleet.publish(&["submit", agent, input, "--id", id, "--wait=60s"]);
    assert_eq!(wait("slow", "x", "running").ok(), "done");
    assert_eq!(wait("echo", "came", "came").ok(), "came");
    assert!(worker.log().contains("disconnected, reconnecting"), "{}", worker.log());
    // Signals reach it again: a task that is cancelled gives its only slot back long before its lease is renewed.
    fleet.publish(&["submit", "slower", "x", "--id", "long"]).ok();
    until("the next task runs", async || running()).await;
    let jobs: Value = serde_json::from_str(&list(&["--state", "STARTED"])).unwrap();
    let job = jobs["items"][0]["id"].as_str().unwrap();
    run(fleet.path(), &["job", "cancel", job, "--url", &url]).ok();
    let start = Instant::now();
    assert_eq!(wait("echo", "last", "last").ok(), "last");
    assert!(start.elapsed() < RENEWAL, "its slot was free after {:?}", start.elapsed());
    drop(serve);
}
