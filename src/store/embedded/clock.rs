//! The machine's clock as the store sees it: when that is set, leases stay what they are.

use super::{EmbeddedStore, lease};
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::store::StoreError;
use std::time::{Duration, Instant};

/// A time on the wall, and when it was seen.
pub(super) struct SeenClock {
    pub(super) wall: Millis,
    pub(super) at: Instant,
}

impl SeenClock {
    /// The machine's clock as it is now.
    pub(super) fn read() -> Self {
        Self { wall: machine_time(), at: Instant::now() }
    }
}

/// The time of the machine, for who opens a store and was given no clock.
pub(super) fn machine_time() -> Millis {
    Clock::system().now()
}

/// A clock that is so much further than the time that has passed was set.
const SET_CLOCK: Duration = Duration::from_secs(5);

impl EmbeddedStore {
    /// Leases that a clock which was set forward would end are held as long as they were.
    pub(super) async fn follow_clock(&self, now: Millis) -> Result<(), StoreError> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let (before, ahead) = {
            let mut seen = seen.lock();
            let before = seen.wall.plus(seen.at.elapsed());
            *seen = SeenClock { wall: now, at: Instant::now() };
            (before, now.since(before))
        };
        if ahead < SET_CLOCK {
            return Ok(());
        }
        tracing::warn!("the machine's clock was set forward by {} s; leases that are held stay so", ahead.as_secs());
        self.call(move |tx| lease::postpone(tx, before, ahead)).await
    }
}
