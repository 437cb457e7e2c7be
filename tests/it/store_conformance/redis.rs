//! The Redis store under the suite.

use super::{Fixture, conformance};
use crate::support::redis::store;
use std::sync::Arc;
use trellis::store::Store;
use trellis::store::redis::RedisStore;

/// A store under a prefix of its own, on the server that all cases share.
pub struct RedisFixture {
    store: Arc<RedisStore>,
}

impl Fixture for RedisFixture {
    async fn new() -> Option<Self> {
        Some(Self { store: store().await? })
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

conformance!(cases, super::RedisFixture);
