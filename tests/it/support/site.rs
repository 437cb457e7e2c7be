//! The tree of one owner on an embedded store.

use serde_json::Value;
use std::sync::Arc;
use trellis::domain::ids::Owner;
use trellis::domain::lattice::Path;
use trellis::domain::lattice::layout::Scope;
use trellis::domain::time::Millis;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::workspace::{Workspace, WriteOp};

/// When all is written.
pub const NOW: Millis = Millis(1_700_000_000_000);

/// A store, and whose tree is in it.
pub struct Site {
    pub store: Arc<EmbeddedStore>,
    pub owner: Owner,
    _dir: tempfile::TempDir,
}

/// A legal path.
pub fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// An unconditional write.
pub fn write(at: &str, value: Value) -> WriteOp {
    WriteOp::Write { path: path(at), value, expect: None }
}

impl Site {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { store: EmbeddedStore::open(dir.path()).unwrap(), owner: "acme/ann".parse().unwrap(), _dir: dir }
    }

    /// The tree as it is, for one turn.
    pub fn tree(&self) -> Workspace {
        Workspace::new(self.store.clone(), self.owner.clone(), Scope::default())
    }
}
