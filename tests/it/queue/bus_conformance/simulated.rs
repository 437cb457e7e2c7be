//! The queue of the simulation under the suite.

use super::{Fixture, conformance};
use crate::recovery::simulate::bus::FarQueue;
use crate::recovery::simulate::queue::Queue;
use crate::recovery::simulate::world::{Link, World};
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::Bus;
use trellis::process::clock::Clock;

/// A queue, as one process sees it.
pub struct SimulatedFixture(FarQueue);

impl Fixture for SimulatedFixture {
    async fn new(ack_wait: Duration) -> Option<Self> {
        let world = World::instant();
        let server = Queue::new(&world, Clock::from_timers(Clock::system().now()), ack_wait, 1);
        Some(Self(FarQueue { server, link: Link::new(&world, "a process".into(), None, 1) }))
    }

    fn bus(&self) -> Arc<dyn Bus> {
        Arc::new(self.0.clone())
    }

    async fn reopen(self) -> Self {
        let FarQueue { server, link } = self.0;
        link.kill();
        let link = Link::new(&link.world, "another".into(), None, 2);
        Self(FarQueue { server, link })
    }
}

conformance!(cases, super::SimulatedFixture);
