//! `trellis worker` and `trellis serve` on NATS and Redis, and submissions straight into the queue.

use crate::support::cli::{Process, run};
use crate::support::fleet::Fleet;
use crate::support::nats::{self, NatsServer};
use crate::support::redis::RedisServer;

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
fn a_queue_that_nobody_has_made() {
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    fleet.publish(&["submit", "echo", "x"]).expect(8, "has a `trellis worker` been started on it");
}

#[test]
fn a_process_starts_with_a_warning_or_not_at_all_when_a_guarantee_does_not_hold() {
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
