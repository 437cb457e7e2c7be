//! A real NATS cluster: three servers with `config/nats-cluster.conf`, each with a directory of its own.

use super::nats::{NatsServer, options};
use super::port;
use async_nats::jetstream;
use async_nats::jetstream::stream::ClusterInfo;
use futures::TryStreamExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use trellis::bus::credentials::NatsFiles;
use trellis::bus::nats::NatsOptions;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/nats-cluster.conf");

/// Elections of a cluster on a machine that does other things, too.
const LIMIT: Duration = Duration::from_mins(2);

/// Servers `n0`, `n1` and `n2`; killed with SIGKILL when dropped.
pub struct NatsCluster {
    pub nodes: Vec<NatsServer>,
    /// Of the account that has the streams: `user:password@`, if there are users.
    login: String,
}

impl NatsCluster {
    /// One for this test alone; `None` when there is no `nats-server`.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more arguments for each server.
    pub fn start_with(arguments: &[&str]) -> Option<Self> {
        Self::start_as(CONFIG, "", arguments)
    }

    /// The same with another configuration file, and who has the streams there.
    pub fn start_as(config: &str, login: &str, arguments: &[&str]) -> Option<Self> {
        let mut cluster = Self::stopped_as(config, login, arguments)?;
        cluster.nodes.iter_mut().for_each(NatsServer::restart);
        Some(cluster)
    }

    /// One whose servers don't run yet.
    pub fn stopped(arguments: &[&str]) -> Option<Self> {
        Self::stopped_as(CONFIG, "", arguments)
    }

    fn stopped_as(config: &str, login: &str, arguments: &[&str]) -> Option<Self> {
        let inner: Vec<String> = (0..3).map(|_| format!("nats://127.0.0.1:{}", port::lasting())).collect();
        let routes = inner.join(",");
        let node = |(n, address): (usize, &String)| {
            let name = format!("n{n}");
            let own = ["-n", &name, "--cluster", address, "--routes", &routes];
            NatsServer::stopped(config, &[&own, arguments].concat())
        };
        let nodes: Option<Vec<_>> = inner.iter().enumerate().map(node).collect();
        Some(Self { nodes: nodes?, login: login.to_owned() })
    }

    /// The one of this test process.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<NatsCluster>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Of all servers.
    pub fn url(&self) -> String {
        self.url_as(&self.login)
    }

    /// The same with another login, `user:password@`.
    pub fn url_as(&self, login: &str) -> String {
        let node = |node: &NatsServer| node.url().replace("nats://", &format!("nats://{login}"));
        self.nodes.iter().map(node).collect::<Vec<_>>().join(",")
    }

    /// For a bus of its own on all servers, with three copies of everything.
    pub fn options(&self) -> NatsOptions {
        NatsOptions {
            replicas: 3,
            connect: trellis::process::retry::RetryPolicy {
                total: Some(LIMIT),
                ..trellis::process::retry::RetryPolicy::CONNECT
            },
            ..options(&self.url())
        }
    }

    /// What the cluster says of a stream and of its consumers; asked of any server that answers.
    async fn placement(&self, stream: &str) -> Option<Vec<ClusterInfo>> {
        let servers: Vec<async_nats::ServerAddr> = self.url().split(',').map(|url| url.parse().unwrap()).collect();
        let settings = NatsFiles::default().settings(&servers).connection_timeout(Duration::from_secs(2));
        let mut context = jetstream::new(settings.connect(servers).await.ok()?);
        context.set_timeout(Duration::from_secs(2));
        let stream = context.get_stream(stream).await.ok()?;
        let consumers: Vec<_> = stream.consumers().try_collect().await.ok()?;
        let consumers = consumers.into_iter().map(|consumer| consumer.cluster);
        std::iter::once(stream.cached_info().cluster.clone()).chain(consumers).collect()
    }

    /// The server that leads a stream, once there is one.
    pub async fn leader(&self, stream: &str) -> usize {
        let end = Instant::now() + LIMIT;
        loop {
            let leader = self.placement(stream).await.and_then(|found| found[0].leader.clone());
            if let Some(n) = leader.and_then(|name| name.strip_prefix('n')?.parse().ok()) {
                return n;
            }
            assert!(Instant::now() < end, "nobody leads `{stream}`");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A server that doesn't lead a stream.
    pub async fn follower(&self, stream: &str) -> usize {
        (self.leader(stream).await + 1) % self.nodes.len()
    }

    /// Waits until all copies of a stream and of its consumers are the same.
    pub async fn in_step(&self, stream: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let found = self.placement(stream).await;
            let others = self.nodes.len() - 1;
            let whole = |found: &ClusterInfo| {
                found.leader.is_some()
                    && found.replicas.len() == others
                    && found
                        .replicas
                        .iter()
                        .all(|peer| peer.current && !peer.offline && peer.lag.is_none_or(|lag| lag == 0))
            };
            if found.as_ref().is_some_and(|found| found.iter().all(whole)) {
                return;
            }
            assert!(Instant::now() < end, "`{stream}` isn't in step: {found:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
