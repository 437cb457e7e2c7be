//! A real Redis that three Sentinels watch: a primary with two replicas, with `config/redis.conf`.

use super::port;
use super::redis::{RedisServer, is_installed};
use super::redis_cluster::until;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use trellis::store::redis::{RedisOptions, ServerOrInjected};

/// What they call the primary.
const NAME: &str = "main";

/// Milliseconds. With less they may choose the replica that has less: what they know of replicas may be 5 s old.
const DOWN_AFTER: u32 = 6_000;

/// Runs a Sentinel and kills it as soon as its own input closes. `$1` its file, which it writes to.
const SUPERVISOR: &str = r#"
redis-server "$1" --sentinel >/dev/null 2>&1 &
pid=$!
cat >/dev/null
kill -9 $pid
wait $pid
"#;

/// Killed with SIGKILL when dropped.
pub struct RedisSentinel {
    password: String,
    /// The Sentinels' own.
    sentinel_password: Option<String>,
    /// The first is the primary at the beginning.
    pub servers: Vec<RedisServer>,
    ports: Vec<u16>,
    sentinels: Vec<Child>,
    _dir: TempDir,
}

impl RedisSentinel {
    /// `None` when there is no `redis-server`. All servers have this password, and the Sentinels this one.
    pub async fn start(password: &str, sentinel_password: Option<&str>) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let login = ["--requirepass", password, "--masterauth", password];
        let primary = RedisServer::start_on_free_port(false, &login);
        let of = ["--replicaof", "127.0.0.1", &primary.port().to_string()].map(str::to_owned);
        let replica = || {
            let options: Vec<&str> = login.into_iter().chain(of.iter().map(String::as_str)).collect();
            RedisServer::start_on_free_port(false, &options)
        };
        let replicas = [replica(), replica()];
        let servers: Vec<_> = std::iter::once(primary).chain(replicas).collect();
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<u16> = (0..3).map(|_| port::lasting()).collect();
        let sentinels = ports.iter().map(|port| {
            let file = dir.path().join(format!("{port}.conf"));
            let watched = servers[0].port();
            let own = sentinel_password.map(|own| format!("requirepass {own}\n")).unwrap_or_default();
            let text = format!(
                "{own}port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {watched} 2\n\
                 sentinel auth-pass {NAME} {password}\nsentinel down-after-milliseconds {NAME} {DOWN_AFTER}\n\
                 sentinel failover-timeout {NAME} 20000\n",
                dir.path().display()
            );
            std::fs::write(&file, text).unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", SUPERVISOR, "sentinel-supervisor"]).arg(&file);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        });
        let sentinels = sentinels.collect();
        let (password, sentinel_password) = (password.to_owned(), sentinel_password.map(str::to_owned));
        let all = Self { password, sentinel_password, servers, ports, sentinels, _dir: dir };
        all.until_whole().await;
        Some(all)
    }

    /// Until both replicas are in step, and each Sentinel knows the two others and both replicas.
    async fn until_whole(&self) {
        until("both replicas are in step", async || {
            self.servers[0].text(&["INFO", "replication"]).await.matches("state=online").count() == 2
        })
        .await;
        for port in &self.ports {
            until("a Sentinel knows all", async || self.knows_all(*port).await).await;
        }
    }

    async fn knows_all(&self, port: u16) -> bool {
        let login = self.sentinel_password.as_ref().map(|own| format!(":{own}@")).unwrap_or_default();
        let Ok(client) = redis::Client::open(format!("redis://{login}127.0.0.1:{port}")) else { return false };
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return false };
        let found: redis::RedisResult<std::collections::HashMap<String, String>> =
            redis::cmd("SENTINEL").arg("MASTER").arg(NAME).query_async(&mut connection).await;
        let is = |key: &str, expected: &str| {
            found.as_ref().is_ok_and(|found| found.get(key).is_some_and(|is| is == expected))
        };
        is("num-other-sentinels", "2") && is("num-slaves", "2") && is("flags", "master")
    }

    /// Waits until the primary is another than the first.
    pub async fn failed_over(&self) {
        until("a replica is the primary", async || {
            self.servers[1].is_primary().await || self.servers[2].is_primary().await
        })
        .await;
    }

    /// `redis+sentinel://` with all Sentinels and all passwords.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let own = self.sentinel_password.as_ref().map(|own| format!("?sentinel_password={own}")).unwrap_or_default();
        format!("redis+sentinel://:{}@{}/{NAME}{own}", self.password, places.join(","))
    }

    /// Options for a store of its own.
    pub fn options(&self) -> RedisOptions {
        RedisOptions { url: self.url(), ..self.servers[0].options(ServerOrInjected::Server) }
    }
}

impl Drop for RedisSentinel {
    fn drop(&mut self) {
        for sentinel in &mut self.sentinels {
            drop(sentinel.stdin.take());
            let _ = sentinel.wait();
        }
    }
}
