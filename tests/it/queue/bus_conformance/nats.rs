//! The NATS bus under the suite: on one server, on a cluster with three copies of everything, and spread over partitions.

use super::{Fixture, conformance};
use crate::support::nats::{options, shared};
use crate::support::nats_cluster::NatsCluster;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::nats::{NatsBus, NatsOptions};

/// Where the streams are, and how many.
pub trait Place: 'static {
    /// `None` when no server is installed.
    fn options() -> Option<NatsOptions>;
}

pub struct OneServer;
pub struct Cluster;
pub struct Partitions;

impl Place for OneServer {
    fn options() -> Option<NatsOptions> {
        Some(options(&shared()?))
    }
}

impl Place for Cluster {
    fn options() -> Option<NatsOptions> {
        Some(NatsCluster::shared()?.options())
    }
}

impl Place for Partitions {
    fn options() -> Option<NatsOptions> {
        Some(NatsOptions { partitions: 3, ..OneServer::options()? })
    }
}

/// Streams of its own.
pub struct NatsFixture<P> {
    bus: Arc<NatsBus>,
    options: NatsOptions,
    place: PhantomData<P>,
}

impl<P> NatsFixture<P> {
    async fn open(options: NatsOptions) -> Self {
        Self { bus: Arc::new(NatsBus::open(&options).await.unwrap()), options, place: PhantomData }
    }
}

impl<P: Place> Fixture for NatsFixture<P> {
    async fn new(ack_wait: Duration) -> Option<Self> {
        Some(Self::open(NatsOptions { ack_wait, ..P::options()? }).await)
    }

    fn bus(&self) -> Arc<dyn Bus> {
        Arc::clone(&self.bus) as Arc<dyn Bus>
    }

    async fn reopen(self) -> Self {
        self.bus.close().await;
        Self::open(self.options).await
    }
}

conformance!(one_server, super::NatsFixture<super::OneServer>);
conformance!(cluster, super::NatsFixture<super::Cluster>);
conformance!(partitions, super::NatsFixture<super::Partitions>);
