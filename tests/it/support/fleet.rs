//! A fleet as operators run it: processes with one configuration file over NATS and Redis.

use crate::support::cli::{Done, Process, run};
use crate::support::nats;
use crate::support::redis::RedisServer;
use std::path::Path;
use tempfile::TempDir;
use trellis::store::redis::ServerOrInjected;

/// A configuration file of a fleet with keys, subjects and streams of its own, and the definition
/// of an agent `echo`.
pub struct Fleet {
    dir: TempDir,
    /// Where its NATS is.
    pub nats: String,
    /// First token of its subjects.
    pub prefix: String,
}

impl Fleet {
    /// Over this NATS and the Redis of this test process; `None` when there is no `redis-server`.
    pub fn on_shared_redis(nats: String) -> Option<Self> {
        Some(Self::new(nats, RedisServer::shared()?))
    }

    /// Over these servers.
    pub fn new(nats: String, redis: &RedisServer) -> Self {
        let redis = redis.options(ServerOrInjected::Server);
        let dir = tempfile::tempdir().unwrap();
        let prefix = nats::fresh_prefix();
        let text = format!(
            "[store]\nurl = \"{}\"\nprefix = \"{}\"\nconnections = 2\n[bus]\nurl = \"{nats}\"\nprefix = \"{prefix}\"\nmax_bytes = 16777216\n[http]\nlisten = \"127.0.0.1:0\"\n[models]\nscripted = \".\"\n",
            redis.url,
            &redis.prefix[..30],
        );
        std::fs::write(dir.path().join("fleet.toml"), text).unwrap();
        let agent = "model = { provider = \"scripted\", name = \"echo\" }";
        std::fs::write(dir.path().join("echo.toml"), agent).unwrap();
        Self { dir, nats, prefix }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes the definition `name.toml` of an agent that answers after `delay_ms`.
    pub fn slow_agent(&self, name: &str, delay_ms: u32) {
        let rule =
            format!("[[rule]]\nwhen = {{ agent = \"{name}\" }}\nthen = {{ text = \"done\", delay_ms = {delay_ms} }}\n");
        std::fs::write(self.path().join(format!("{name}.rules")), rule).unwrap();
        let agent = format!("model = {{ provider = \"scripted\", name = \"{name}.rules\" }}");
        std::fs::write(self.path().join(format!("{name}.toml")), agent).unwrap();
    }

    /// Starts `worker` or `serve`.
    pub fn start(&self, role: &str) -> Process {
        Process::start(self.path(), [role, "--config", "fleet.toml"])
    }

    /// Starts both; the last is the URL of the HTTP API.
    pub fn start_all(&self) -> (Process, Process, String) {
        let (mut worker, mut serve) = (self.start("worker"), self.start("serve"));
        worker.says("worker `");
        let url = serve.says("HTTP API on ").split(' ').next().unwrap().to_owned();
        (worker, serve, url)
    }

    /// A command with the fleet's configuration.
    pub fn run(&self, args: &[&str]) -> Done {
        run(self.path(), &[args, &["--config", "fleet.toml"]].concat())
    }

    /// A submission straight into the queue.
    pub fn publish(&self, args: &[&str]) -> Done {
        self.run(&[args, &["--nats", &self.nats]].concat())
    }
}
