//! Background work that takes at most a share of a worker's time.

use super::clock::Clock;
use std::time::Duration;

/// The share of its time that a scan may work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    percent: u32,
}

impl Default for Pace {
    /// Returns a pace without pauses.
    fn default() -> Self {
        Self::percent(100)
    }
}

impl Pace {
    /// Returns a pace of `percent`, 1 to 100.
    pub fn percent(percent: u32) -> Self {
        Self { percent: percent.clamp(1, 100) }
    }

    /// Pauses after a piece of work that began at the steady time `began`.
    pub async fn rest(self, clock: &Clock, began: Duration) {
        let now = clock.steady();
        let pause = self.pause(now.saturating_sub(began));
        if !pause.is_zero() {
            clock.wait_until(now + pause).await;
        }
    }

    /// Returns the pause after so much work.
    fn pause(self, spent: Duration) -> Duration {
        spent * (100 - self.percent) / self.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_what_the_share_leaves() {
        for (percent, pause) in [(100, 0), (50, 20), (5, 380), (1, 1980), (0, 1980)] {
            let rest = Pace::percent(percent).pause(Duration::from_millis(20));
            assert_eq!(rest, Duration::from_millis(pause), "{percent}");
        }
    }
}
