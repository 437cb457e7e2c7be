//! The clock: the only place that reads the system's time.

use crate::domain::time::Millis;
use parking_lot::RwLock;
use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::watch;

/// Start of [`Clock::steady`] on the system's clock.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A clock. Clones share the time and the reference that it is set by.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    hands: ClockSource,
    reference: Arc<ClockReference>,
}

/// What moves a clock.
#[derive(Debug, Clone, Default)]
enum ClockSource {
    #[default]
    System,
    /// Only [`Clock::advance`] moves it.
    Manual(Arc<watch::Sender<u64>>),
    /// The time of the runtime's timers; it was `start` at `since`.
    Timers { since: tokio::time::Instant, start: Millis },
}

/// Another clock that is used as reference, and whether this machine's is usable.
#[derive(Debug, Default)]
struct ClockReference {
    /// The reference time at a moment of [`Clock::steady`]. `None`: this machine's clock is used.
    set: RwLock<Option<(Duration, Millis)>>,
    is_wrong: AtomicBool,
}

impl Clock {
    /// Returns the machine's clock.
    pub fn system() -> Self {
        Self::with_source(ClockSource::System)
    }

    /// Returns a clock that stands at `start` until it is advanced.
    pub fn manual(start: Millis) -> Self {
        Self::with_source(ClockSource::Manual(Arc::new(watch::Sender::new(start.0))))
    }

    /// Returns a clock that is at `start` now and moves with the runtime's timers, whose time may be simulated.
    pub fn from_timers(start: Millis) -> Self {
        Self::with_source(ClockSource::Timers { since: tokio::time::Instant::now(), start })
    }

    fn with_source(hands: ClockSource) -> Self {
        Self { hands, reference: Arc::default() }
    }

    /// Returns the current time by the reference, else by the machine's clock.
    pub fn now(&self) -> Millis {
        let set = *self.reference.set.read();
        set.map_or_else(|| self.machine_now(), |(at, time)| time.plus(self.steady().saturating_sub(at)))
    }

    /// Returns the current time by this machine's clock, without a reference.
    pub fn machine_now(&self) -> Millis {
        match &self.hands {
            ClockSource::Manual(hands) => Millis(*hands.borrow()),
            ClockSource::Timers { since, start } => start.plus(since.elapsed()),
            ClockSource::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
        }
    }

    /// Makes another clock the reference of [`Clock::now`], which was at `time` when [`Clock::steady`] was at `at`.
    pub fn set_reference(&self, at: Duration, time: Millis) {
        *self.reference.set.write() = Some((at, time));
    }

    /// Sets whether this machine's clock is too far from the reference; returns whether that changed.
    pub fn set_wrong(&self, is_wrong: bool) -> bool {
        self.reference.is_wrong.swap(is_wrong, Ordering::Relaxed) != is_wrong
    }

    /// Whether this machine's clock is too far from the reference for this process to begin work.
    pub fn is_wrong(&self) -> bool {
        self.reference.is_wrong.load(Ordering::Relaxed)
    }

    /// Returns the time since a moment in the past. It never goes back, even if the machine's clock is set: for waits
    /// and ages inside one process.
    pub fn steady(&self) -> Duration {
        match &self.hands {
            ClockSource::Manual(hands) => Duration::from_millis(*hands.borrow()),
            ClockSource::Timers { since, .. } => since.elapsed(),
            ClockSource::System => BEGIN.elapsed(),
        }
    }

    /// Waits until [`Clock::steady`] is at `at`; a manual clock must be advanced to it.
    pub async fn wait_until(&self, at: Duration) {
        match &self.hands {
            ClockSource::Manual(hands) => {
                let mut hands = hands.subscribe();
                // An error would mean that the sender is gone; `self` holds it.
                let _ = hands.wait_for(|now| Duration::from_millis(*now) >= at).await;
            }
            ClockSource::Timers { .. } | ClockSource::System => {
                tokio::time::sleep(at.saturating_sub(self.steady())).await;
            }
        }
    }

    /// Advances a manual clock and returns its new time; other clocks don't change.
    pub fn advance(&self, by: Duration) -> Millis {
        if let ClockSource::Manual(hands) = &self.hands {
            let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
            hands.send_modify(|now| *now += by);
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

    #[tokio::test]
    async fn waiting_on_a_manual_clock_ends_when_it_is_moved() {
        let clock = Clock::manual(Millis(1_000));
        let (waiting, at) = (clock.clone(), clock.steady() + Duration::from_hours(1));
        let waiter = tokio::spawn(async move { waiting.wait_until(at).await });
        clock.advance(Duration::from_mins(59));
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        clock.advance(Duration::from_mins(1));
        waiter.await.unwrap();
        clock.wait_until(at).await;
    }

    #[tokio::test]
    async fn the_monotonic_time_of_the_system_clock_advances() {
        let clock = Clock::system();
        let begin = clock.steady();
        clock.wait_until(begin + Duration::from_millis(5)).await;
        assert!(clock.steady() >= begin + Duration::from_millis(5));
    }

    #[test]
    fn the_system_clock_is_in_this_century_and_ignores_advance() {
        let now = Clock::system().now();
        assert!(now > Millis(1_700_000_000_000) && now < Millis(4_100_000_000_000), "{now}");
        assert!(Clock::system().advance(Duration::from_hours(24)).elapsed_since(now) < Duration::from_mins(1));
    }

    #[test]
    fn a_clock_goes_by_the_one_it_is_set_by() {
        let clock = Clock::manual(Millis(1_000));
        let other = clock.clone();
        clock.set_reference(Duration::from_millis(900), Millis(50_000));
        assert_eq!((other.now(), other.machine_now()), (Millis(50_100), Millis(1_000)));
        clock.advance(Duration::from_secs(1));
        assert_eq!((other.now(), other.machine_now()), (Millis(51_100), Millis(2_000)));
        assert!(clock.set_wrong(true) && !clock.set_wrong(true) && other.is_wrong());
        assert!(clock.set_wrong(false) && !other.is_wrong());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_of_timers_goes_on_with_them() {
        let (clock, ahead) = (Clock::from_timers(Millis(1_000)), Clock::from_timers(Millis(4_000)));
        clock.wait_until(clock.steady() + Duration::from_hours(1)).await;
        assert_eq!((clock.now(), ahead.now()), (Millis(3_601_000), Millis(3_604_000)));
        assert_eq!(clock.advance(Duration::from_secs(9)), Millis(3_601_000));
    }
}
