//! The clock: a struct with a function, the only place that asks the system for the time.

use crate::domain::time::Millis;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Tells the time. Clones of a manual clock share its hands.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The machine's.
    pub const fn system() -> Self {
        Self(None)
    }

    /// One that stands at `start` until it is moved.
    pub fn manual(start: Millis) -> Self {
        Self(Some(Arc::new(AtomicU64::new(start.0))))
    }

    /// Now.
    pub fn now(&self) -> Millis {
        if let Some(hands) = &self.0 {
            return Millis(hands.load(Ordering::SeqCst));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Moves a manual clock forward and returns its new time; the system's stays as it is.
    pub fn advance(&self, by: Duration) -> Millis {
        if let Some(hands) = &self.0 {
            let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
            hands.fetch_add(by, Ordering::SeqCst);
        }
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_move_together() {
        let clock = Clock::manual(Millis(1_000));
        let other = clock.clone();
        assert_eq!(other.now(), Millis(1_000));
        assert_eq!(clock.advance(Duration::from_secs(2)), Millis(3_000));
        assert_eq!(other.now(), Millis(3_000));
    }

    #[test]
    fn the_system_clock_is_in_this_century_and_ignores_advance() {
        let now = Clock::system().now();
        assert!(now > Millis(1_700_000_000_000) && now < Millis(4_100_000_000_000), "{now}");
        assert!(Clock::system().advance(Duration::from_hours(24)).since(now) < Duration::from_mins(1));
    }
}
