//! The NATS bus under the suite.

use super::{Fixture, conformance};
use crate::support::nats::{options, shared};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::bus::nats::{NatsBus, NatsOptions};

/// Streams of its own on the shared server.
pub struct NatsFixture {
    bus: Arc<NatsBus>,
    options: NatsOptions,
}

impl NatsFixture {
    async fn open(options: NatsOptions) -> Self {
        Self { bus: Arc::new(NatsBus::open(&options).await.unwrap()), options }
    }
}

impl Fixture for NatsFixture {
    async fn new(ack_wait: Duration) -> Option<Self> {
        Some(Self::open(NatsOptions { ack_wait, ..options(&shared()?) }).await)
    }

    fn bus(&self) -> Arc<dyn Bus> {
        Arc::clone(&self.bus) as Arc<dyn Bus>
    }

    async fn reopen(self) -> Self {
        self.bus.close().await;
        Self::open(self.options).await
    }
}

conformance!(cases, super::NatsFixture);
