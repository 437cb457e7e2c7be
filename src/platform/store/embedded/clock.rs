//! The machine's clock as the store sees it.

use crate::domain::time::Millis;
use crate::process::clock::Clock;
use std::time::{Duration, Instant};

/// A clock that is ahead of the elapsed time by this much was set.
const SET_CLOCK: Duration = Duration::from_secs(5);

/// A wall time and the steady time at which it was read.
pub(super) struct SeenClock {
    wall: Millis,
    at: Instant,
}

impl SeenClock {
    /// Reads the machine's clock.
    pub(super) fn read() -> Self {
        Self { wall: machine_time(), at: Instant::now() }
    }

    /// Takes over the machine's time. Returns the expected time and the difference if the clock was set forward.
    pub(crate) fn follow(&mut self, now: Millis) -> Option<(Millis, Duration)> {
        let expected = self.wall.plus(self.at.elapsed());
        *self = Self { wall: now, at: Instant::now() };
        let ahead = now.elapsed_since(expected);
        (ahead >= SET_CLOCK).then_some((expected, ahead))
    }
}

/// Returns the machine's time, for the opening of a store without an injected clock.
pub(super) fn machine_time() -> Millis {
    Clock::system().now()
}
