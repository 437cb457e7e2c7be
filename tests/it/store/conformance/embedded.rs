//! The embedded store under the suite.

use super::{Fixture, conformance};
use std::sync::Arc;
use tempfile::TempDir;
use trellis::store::Store;
use trellis::store::embedded::EmbeddedStore;

/// A store in a folder of its own.
pub struct EmbeddedFixture {
    store: Arc<EmbeddedStore>,
    // After the store: it writes into it until dropped.
    _dir: TempDir,
}

impl Fixture for EmbeddedFixture {
    async fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        Some(Self { store: EmbeddedStore::open(dir.path()).unwrap(), _dir: dir })
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

conformance!(cases, super::EmbeddedFixture);
