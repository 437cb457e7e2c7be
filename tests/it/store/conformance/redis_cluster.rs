//! The Redis store on a cluster under the suite.

use super::{Fixture, conformance};
use crate::support::redis_cluster::store;
use std::sync::Arc;
use trellis::store::Store;
use trellis::store::redis::RedisStore;

/// A store under a prefix of its own, on the cluster that all cases share.
pub struct ClusterFixture {
    store: Arc<RedisStore>,
}

impl Fixture for ClusterFixture {
    async fn new() -> Option<Self> {
        Some(Self { store: store().await? })
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

conformance!(cases, super::ClusterFixture);
