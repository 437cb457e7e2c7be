//! The machine's clock as the store sees it: leases keep their length when the clock is set.

use super::{EmbeddedStore, lease};
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::store::StoreError;
use std::time::{Duration, Instant};

/// A wall time and the steady time at which it was read.
pub(super) struct SeenClock {
    pub(super) wall: Millis,
    pub(super) at: Instant,
}

impl SeenClock {
    /// Reads the machine's clock.
    pub(super) fn read() -> Self {
        Self { wall: machine_time(), at: Instant::now() }
    }
}

/// Returns the machine's time, for the opening of a store without an injected clock.
pub(super) fn machine_time() -> Millis {
    Clock::system().now()
}

/// A clock that is ahead of the elapsed time by this much was set.
const SET_CLOCK: Duration = Duration::from_secs(5);

impl EmbeddedStore {
    /// Extends leases when the clock was set forward, which would end them too early.
    pub(super) async fn follow_clock(&self, now: Millis) -> Result<(), StoreError> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let (before, ahead) = {
            let mut seen = seen.lock();
            let before = seen.wall.plus(seen.at.elapsed());
            *seen = SeenClock { wall: now, at: Instant::now() };
            (before, now.elapsed_since(before))
        };
        if ahead < SET_CLOCK {
            return Ok(());
        }
        tracing::warn!("the machine's clock was set forward by {} s; leases that are held stay so", ahead.as_secs());
        self.call(move |tx| lease::extend_held(tx, before, ahead)).await
    }
}
