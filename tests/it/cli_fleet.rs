//! `trellis worker` and `trellis serve` on NATS and Redis, and submissions straight into the queue.

use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::nats::{self, NatsServer};

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
