//! Cache of the registry of workers.

use crate::domain::worker_registry::FleetState;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Age at which the registry is read again.
const FLEET_AGE: Duration = Duration::from_secs(1);

/// Cached registry, with the time at which it was read.
#[derive(Default)]
pub struct FleetCache(Mutex<Option<(Duration, Arc<FleetState>)>>);

impl FleetCache {
    /// Removes the cached registry.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Returns the cached registry, if it is new enough at `now`, on the steady clock.
    pub(crate) fn get(&self, now: Duration) -> Option<Arc<FleetState>> {
        let (read, fleet) = self.0.lock().clone()?;
        now.checked_sub(read).is_some_and(|age| age < FLEET_AGE).then_some(fleet)
    }

    /// Caches the registry that was read at `now`.
    pub(crate) fn set(&self, now: Duration, fleet: Arc<FleetState>) {
        *self.0.lock() = Some((now, fleet));
    }
}
