//! `trellis worker` and `trellis serve` on NATS and Redis, and submissions straight into the queue.

use crate::support::cli::{Process, run};
use crate::support::nats::{self, NatsServer};
use crate::support::redis::RedisServer;
use std::path::Path;
use tempfile::TempDir;
use trellis::store::redis::ServerOrInjected;

/// A configuration file of a fleet with keys, subjects and streams of its own.
struct Fleet {
    dir: TempDir,
    nats: String,
}

impl Fleet {
    fn new(nats: String) -> Option<Self> {
        let redis = RedisServer::shared()?.options(ServerOrInjected::Server);
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "[store]\nurl = \"{}\"\nprefix = \"{}\"\nconnections = 2\n[bus]\nurl = \"{nats}\"\nprefix = \"{}\"\nmax_bytes = 16777216\n[http]\nlisten = \"127.0.0.1:0\"\n",
            redis.url,
            &redis.prefix[..30],
            nats::fresh_prefix()
        );
        std::fs::write(dir.path().join("fleet.toml"), text).unwrap();
        let agent = "model = { provider = \"scripted\", name = \"echo\" }";
        std::fs::write(dir.path().join("echo.toml"), agent).unwrap();
        Some(Self { dir, nats })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn start(&self, role: &str) -> Process {
        Process::start(self.path(), [role, "--config", "fleet.toml"])
    }

    /// A command with the fleet's configuration.
    fn run(&self, args: &[&str]) -> crate::support::cli::Done {
        run(self.path(), &[args, &["--config", "fleet.toml"]].concat())
    }

    /// A submission straight into the queue.
    fn publish(&self, args: &[&str]) -> crate::support::cli::Done {
        self.run(&[args, &["--nats", &self.nats]].concat())
    }
}

#[test]
fn a_fleet_serves_http_and_the_queue() {
    let Some(fleet) = nats::shared().and_then(Fleet::new) else { return };
    let (mut worker, mut serve) = (fleet.start("worker"), fleet.start("serve"));
    worker.says("worker `");
    let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
    let http = |args: &[&str]| run(fleet.path(), &[args, &["--url", &url]].concat());
    http(&["agent", "apply", "echo.toml"]).ok();
    assert_eq!(http(&["submit", "echo", "over http", "--wait=20s"]).ok(), "over http");
    assert_eq!(fleet.publish(&["submit", "echo", "over nats", "--id", "k", "--wait=20s"]).ok(), "over nats");
    assert_eq!(fleet.publish(&["submit", "echo", "over nats", "--id", "k", "--wait=20s"]).ok(), "over nats", "again");
    fleet.publish(&["submit", "echo", "other", "--id", "k", "--wait=20s"]).expect(6, "(CONFLICT)");
    fleet.publish(&["submit", "nobody", "x", "--wait=20s"]).expect(3, "no such agent");
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
    let Some(fleet) = Fleet::new(server.url()) else { return };
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
    let Some(fleet) = nats::shared().and_then(Fleet::new) else { return };
    fleet.publish(&["submit", "echo", "x"]).expect(8, "has a `trellis worker` been started on it");
}
