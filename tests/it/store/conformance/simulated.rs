//! The store of the simulation under the suite: the embedded one in memory, with its watch.

use super::{Fixture, conformance};
use crate::recovery::simulate::store::ServerStore;
use crate::recovery::simulate::world::World;
use std::sync::Arc;
use trellis::store::Store;

/// A store in memory.
pub struct SimulatedFixture(Arc<ServerStore>);

impl Fixture for SimulatedFixture {
    async fn new() -> Option<Self> {
        Some(Self(ServerStore::new(&World::instant())))
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

conformance!(cases, super::SimulatedFixture);
