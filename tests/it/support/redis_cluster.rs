//! A real Redis Cluster: primaries with a replica each, with `config/redis.conf` and `config/redis-cluster.conf`.

use super::port;
use super::redis::{RedisServer, is_installed};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use trellis::store::redis::{RedisOptions, RedisStore, ServerOrInjected};

const SLOTS: usize = 16_384;
/// Nodes that have slots at the beginning.
pub const PRIMARIES: usize = 3;

/// Three primaries and after them a replica of each; killed with SIGKILL when dropped.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// One for this test alone; `None` when there is no `redis-server`.
    pub async fn start() -> Option<Self> {
        if !is_installed() {
            return None;
        }
        Some(Self::made(false).await)
    }

    /// The one of this test process.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<RedisCluster>> = OnceLock::new();
        // Made by a runtime of its own: the one of the test that comes first ends with it.
        let made = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            is_installed().then(|| runtime.block_on(Self::made(true)))
        };
        SHARED.get_or_init(|| std::thread::spawn(made).join().unwrap()).as_ref()
    }

    async fn made(shared: bool) -> Self {
        let cluster = Self { nodes: (0..2 * PRIMARIES).map(|_| node(shared)).collect() };
        cluster.join().await;
        cluster
    }

    async fn join(&self) {
        let first = &self.nodes[0];
        let mut from = 0;
        for (n, node) in self.nodes.iter().enumerate() {
            if n > 0 {
                let (port, bus) = (first.port().to_string(), bus_port(first));
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await.unwrap();
            }
            if n < PRIMARIES {
                let to = SLOTS * (n + 1) / PRIMARIES;
                let range = ["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &(to - 1).to_string()];
                node.command(&range).await.unwrap();
                from = to;
            }
        }
        for n in 0..PRIMARIES {
            let primary = self.id(n).await;
            let replica = &self.nodes[PRIMARIES + n];
            until("it knows its primary", async || replica.text(&["CLUSTER", "NODES"]).await.contains(&primary)).await;
            replica.command(&["CLUSTER", "REPLICATE", &primary]).await.unwrap();
        }
        for node in &self.nodes {
            until("the cluster is up", async || {
                node.text(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")
                    && node.text(&["CLUSTER", "NODES"]).await.matches("slave").count() == PRIMARIES
            })
            .await;
        }
        for primary in &self.nodes[..PRIMARIES] {
            until("its replica is in step", async || {
                primary.text(&["INFO", "replication"]).await.contains("state=online")
            })
            .await;
        }
    }

    /// Adds a primary without slots.
    pub async fn grow(&mut self) {
        let new = node(false);
        let (port, bus) = (self.nodes[0].port().to_string(), bus_port(&self.nodes[0]));
        new.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await.unwrap();
        self.nodes.push(new);
        let count = self.nodes.len();
        for node in &self.nodes {
            until("all know the new one", async || {
                let known = node.text(&["CLUSTER", "NODES"]).await;
                known.lines().filter(|line| line.contains("connected")).count() == count
                    && node.text(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")
            })
            .await;
        }
    }

    /// Moves a slot with its keys, as `redis-cli --cluster reshard` does, but not faster than a key in this time.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize, each: Duration) {
        let slot = slot.to_string();
        let (source, target) = (self.id(from).await, self.id(to).await);
        self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).await.unwrap();
        self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).await.unwrap();
        let port = self.nodes[to].port().to_string();
        loop {
            let keys = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).await.unwrap();
            let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
            let Some(key) = keys.first() else { break };
            self.nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await.unwrap();
            tokio::time::sleep(each).await;
        }
        for node in [to, from] {
            self.nodes[node].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]).await.unwrap();
        }
    }

    /// The slot of a key.
    pub async fn slot(&self, key: &str) -> u16 {
        redis::from_redis_value(self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).await.unwrap()).unwrap()
    }

    /// The primary that has a slot at the beginning; its replica is [`PRIMARIES`] further.
    pub fn primary_of(slot: u16) -> usize {
        (0..PRIMARIES).find(|n| usize::from(slot) < SLOTS * (n + 1) / PRIMARIES).unwrap()
    }

    /// Waits until a node is a primary.
    pub async fn promoted(&self, node: usize) {
        until("the replica is the primary", async || self.nodes[node].is_primary().await).await;
    }

    /// Lets a replica hear nothing more of its primary, which goes on without it.
    pub async fn cut_off(&self, replica: usize) {
        let node = &self.nodes[replica];
        // It has to log in where nobody knows a password.
        node.command(&["CONFIG", "SET", "masterauth", "unknown"]).await.unwrap();
        node.command(&["CLIENT", "KILL", "TYPE", "master"]).await.unwrap();
        until("its primary is alone", async || {
            self.nodes[replica - PRIMARIES].text(&["INFO", "replication"]).await.contains("connected_slaves:0")
        })
        .await;
    }

    /// Makes a replica the primary with what it has, whatever the others say.
    pub async fn take_over(&self, replica: usize) {
        self.nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await.unwrap();
        self.promoted(replica).await;
    }

    async fn id(&self, node: usize) -> String {
        self.nodes[node].text(&["CLUSTER", "MYID"]).await
    }

    /// `redis+cluster://` with the first two nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.nodes[0].port(), self.nodes[1].port())
    }

    /// Options for a store of its own on this cluster.
    pub fn options(&self, clock: ServerOrInjected) -> RedisOptions {
        RedisOptions { url: self.url(), ..self.nodes[0].options(clock) }
    }
}

/// A store of its own on the shared cluster, with injected time; `None` when there is no server.
pub async fn store() -> Option<Arc<RedisStore>> {
    let cluster = tokio::task::spawn_blocking(RedisCluster::shared).await.unwrap()?;
    Some(RedisStore::open(cluster.options(ServerOrInjected::Injected)).await.unwrap())
}

fn node(shared: bool) -> RedisServer {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/redis-cluster.conf");
    let (conf, bus) = (conf.to_str().unwrap().to_owned(), port::lasting().to_string());
    let options = ["--include", &conf, "--cluster-port", &bus, "--cluster-node-timeout", "1500"];
    RedisServer::start_on_free_port(shared, &options)
}

/// As it was given to the node.
fn bus_port(node: &RedisServer) -> String {
    node.option("--cluster-port").expect("a node of a cluster").to_owned()
}

/// Waits for it.
pub async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !is().await {
        assert!(Instant::now() < end, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
