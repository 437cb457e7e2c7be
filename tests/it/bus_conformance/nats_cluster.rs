//! The NATS bus with three copies of everything, on a cluster, under the suite.

use super::{Fixture, conformance};
use crate::support::nats_cluster::NatsCluster;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::nats::{NatsBus, NatsOptions};

/// Streams of its own on the shared cluster.
pub struct ClusterFixture {
    bus: Arc<NatsBus>,
    options: NatsOptions,
}

impl ClusterFixture {
    async fn open(options: NatsOptions) -> Self {
        Self { bus: Arc::new(NatsBus::open(&options).await.unwrap()), options }
    }
}

impl Fixture for ClusterFixture {
    async fn new(ack_wait: Duration) -> Option<Self> {
        Some(Self::open(NatsOptions { ack_wait, ..NatsCluster::shared()?.options() }).await)
    }

    fn bus(&self) -> Arc<dyn Bus> {
        Arc::clone(&self.bus) as Arc<dyn Bus>
    }

    async fn reopen(self) -> Self {
        self.bus.close().await;
        Self::open(self.options).await
    }
}

conformance!(cases, super::ClusterFixture);
