//! Number of times that a server has said that its tools have changed. It is kept in this process alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of `notifications/tools/list_changed` of a server; copies count together.
#[derive(Debug, Clone, Default)]
pub(super) struct ListChangeCounter(Arc<AtomicU64>);

impl ListChangeCounter {
    /// Counts one notification more.
    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of notifications so far.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
