//! Leases keep their length when the machine's clock is set.

use super::{EmbeddedStore, lease};
use crate::domain::time::Millis;
use crate::store::StoreError;

impl EmbeddedStore {
    /// Extends leases when the clock was set forward, which would end them too early.
    pub(crate) async fn follow_clock(&self, now: Millis) -> Result<(), StoreError> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let set = seen.lock().follow(now);
        let Some((before, ahead)) = set else { return Ok(()) };
        tracing::warn!("the machine's clock was set forward by {} s; leases that are held stay so", ahead.as_secs());
        self.call(move |tx| lease::extend_held(tx, before, ahead)).await
    }
}
