//! The embedded bus under the suite.

use super::{Fixture, conformance};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::bus::Bus;
use trellis::bus::embedded::EmbeddedBus;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;

/// A queue in a folder of its own.
pub struct EmbeddedFixture {
    bus: EmbeddedBus,
    ack_wait: Duration,
    dir: TempDir,
}

fn open(dir: &TempDir, ack_wait: Duration) -> EmbeddedBus {
    EmbeddedBus::new(EmbeddedStore::open(dir.path()).unwrap(), ack_wait, Clock::system()).unwrap()
}

impl Fixture for EmbeddedFixture {
    async fn new(ack_wait: Duration) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        Some(Self { bus: open(&dir, ack_wait), ack_wait, dir })
    }

    fn bus(&self) -> Arc<dyn Bus> {
        Arc::new(self.bus.clone())
    }

    async fn reopen(self) -> Self {
        let Self { bus, ack_wait, dir } = self;
        drop(bus);
        Self { bus: open(&dir, ack_wait), ack_wait, dir }
    }
}

conformance!(cases, super::EmbeddedFixture);
