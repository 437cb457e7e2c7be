//! Comparison of this process's clock with those of the store and the queue. The store's clock decides what is due.
//!
//! Each comparison sets [`Clock::now`] by the store's clock, so that deadlines, timers and retention mean the same in
//! every process. A machine whose own clock is far off isn't trusted: its worker begins nothing until the clock is
//! right.

use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::store::StoreError;
use crate::venue::Venue;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Difference above which a warning is logged.
const WARN_ABOVE: Duration = Duration::from_secs(1);

/// Longest round trip whose answer is used; a longer one says too little of the time.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);

/// Longest wait for the first comparison of a process.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// Slack of rounding to milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// How far the clock of this machine is from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockGap {
    /// Smallest possible distance.
    pub apart: Duration,
    /// Whether this machine's clock is ahead.
    pub is_ahead: bool,
}

impl ClockGap {
    /// Returns the gap between two readings that were taken within `exact_to` of each other.
    fn from_readings(machine: Millis, other: Millis, exact_to: Duration) -> Self {
        let (is_ahead, apart) = (machine > other, machine.elapsed_since(other).max(other.elapsed_since(machine)));
        Self { apart: apart.saturating_sub(exact_to), is_ahead }
    }

    /// Returns the seconds that this machine's clock is ahead; negative if it is behind.
    pub fn seconds(self) -> f64 {
        if self.is_ahead { self.apart.as_secs_f64() } else { -self.apart.as_secs_f64() }
    }
}

impl std::fmt::Display for ClockGap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.apart.as_secs();
        let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
        match units.into_iter().find(|(unit, _)| seconds >= *unit) {
            Some((unit, name)) => write!(f, "{}{name}", seconds / unit)?,
            None => write!(f, "{:.1}s", self.apart.as_secs_f64())?,
        }
        f.write_str(if self.is_ahead { " ahead of" } else { " behind" })
    }
}

/// Gaps to the clocks of the store and the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockReport {
    /// Gap to the store's clock; `None` if the store uses the clock of this process, or its answer took too long.
    pub store: Option<ClockGap>,
    /// Gap to the queue's clock; `None` if the queue has no clock of its own, or its answer took too long.
    pub bus: Option<ClockGap>,
}

impl ClockReport {
    /// Whether a gap is large enough for a warning.
    pub fn is_far(&self) -> bool {
        self.store.iter().chain(&self.bus).any(|gap| gap.apart > WARN_ABOVE)
    }
}

impl std::fmt::Display for ClockReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gaps = [("store", self.store), ("queue", self.bus)];
        let told: Vec<_> =
            gaps.iter().filter_map(|(peer, gap)| Some(format!("{} that of the {peer}", (*gap)?))).collect();
        if told.is_empty() { f.write_str("the one that counts") } else { f.write_str(&told.join(", ")) }
    }
}

/// Reads the store's clock and sets ours by it; `None` if the store has no clock, or its answer took too long.
pub async fn follow_store(venue: &Venue) -> Result<Option<ClockGap>, StoreError> {
    let clock = &venue.clock;
    let asked = clock.steady();
    let reading = venue.store.time().await?.and_then(|time| Reading::new(clock, asked, time));
    if let Some(reading) = &reading {
        let expected = clock.now();
        let apart = expected.elapsed_since(reading.other).max(reading.other.elapsed_since(expected));
        if apart > reading.exact_to {
            clock.set_reference(reading.at, reading.other);
        }
    }
    Ok(reading.map(Reading::gap))
}

/// Follows the store's clock, and compares this machine's with the queue's, too.
pub async fn compare(venue: &Venue) -> Result<ClockReport, StoreError> {
    let store = follow_store(venue).await?;
    let clock = &venue.clock;
    let asked = clock.steady();
    let bus = match venue.bus.witness() {
        Some(witness) if venue.bus.outage().is_none() => match witness.time().await {
            Ok(time) => time.and_then(|time| Reading::new(clock, asked, time)),
            Err(error) => {
                tracing::debug!(%error, "the time of the queue isn't known");
                None
            }
        },
        Some(_) | None => None,
    };
    Ok(ClockReport { store, bus: bus.map(Reading::gap) })
}

/// Readings of two clocks at one moment.
struct Reading {
    /// The moment, by the steady clock.
    at: Duration,
    machine: Millis,
    other: Millis,
    exact_to: Duration,
}

impl Reading {
    /// Makes a reading of a time that another clock gave between `asked` and now; `None` if that took too long.
    fn new(clock: &Clock, asked: Duration, other: Millis) -> Option<Self> {
        let at = clock.steady();
        let took = at.saturating_sub(asked);
        let half = took / 2;
        (took <= ROUND_TRIP_MAX).then(|| Self {
            at,
            machine: clock.machine_now(),
            other: other.plus(half),
            exact_to: half + ROUNDING,
        })
    }

    fn gap(self) -> ClockGap {
        ClockGap::from_readings(self.machine, self.other, self.exact_to)
    }
}

/// Compares the clocks from time to time, and logs what has changed.
#[derive(Debug)]
pub struct ClockWatch {
    /// Distance to the store's clock above which a worker begins nothing.
    limit: Duration,
    told: [bool; 2],
}

impl ClockWatch {
    /// Makes a watch with this limit for the distance to the store's clock.
    pub const fn new(limit: Duration) -> Self {
        Self { limit, told: [false; 2] }
    }

    /// Makes the first comparison of a process, before it begins anything; gives up after five seconds.
    pub async fn start(&mut self, venue: &Venue) {
        if tokio::time::timeout(FIRST_WAIT, self.check(venue)).await.is_err() {
            tracing::debug!("clocks not compared yet; the servers take too long");
        }
    }

    /// Compares the clocks every `every` until `end` is cancelled.
    pub async fn run(mut self, venue: &Venue, every: Duration, end: &CancellationToken) {
        let next = || venue.clock.wait_until(venue.clock.steady() + every);
        while end.run_until_cancelled(next()).await.is_some()
            && end.run_until_cancelled(self.check(venue)).await.is_some()
        {}
    }

    /// Compares the clocks, warns of what is new, and sets or clears [`Clock::is_wrong`].
    pub async fn check(&mut self, venue: &Venue) {
        let report = match compare(venue).await {
            Ok(report) => report,
            Err(error) => return tracing::debug!(%error, "clocks not compared; it comes again"),
        };
        let peers = [("store", report.store), ("queue", report.bus)];
        for ((peer, gap), told) in peers.into_iter().zip(&mut self.told) {
            let Some(gap) = gap else { continue };
            venue.metrics.set_clock_ahead(peer, gap.seconds());
            let is_far = gap.apart > WARN_ABOVE;
            if is_far && !*told {
                tracing::warn!(
                    "the clock of this machine is {gap} that of the {peer}; times are the store's; set the clocks by NTP"
                );
            }
            if !is_far && *told {
                tracing::info!("the clock of this machine and that of the {peer} agree again");
            }
            *told = is_far;
        }
        let Some(gap) = report.store else { return };
        let is_wrong = gap.apart > self.limit;
        if !venue.clock.set_wrong(is_wrong) {
            return;
        }
        venue.metrics.clock_wrong.set(i64::from(is_wrong));
        let limit = humantime::format_duration(self.limit);
        if is_wrong {
            tracing::error!(
                "the clock of this machine is {gap} that of the store, more than `worker.clock_limit` = {limit}: a worker here takes no lease, fires no timer and deletes nothing old until it is right; set it by NTP"
            );
        } else {
            tracing::info!("the clock of this machine is right again: its worker goes on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_gap_is_reported_with_its_side_and_precision() {
        let gap = |machine, other| ClockGap::from_readings(Millis(machine), Millis(other), Duration::from_millis(10));
        for (machine, other, seconds, text) in [
            (1_000, 1_005, 0.0, "0.0s behind"),
            (2_010, 1_000, 1.0, "1.0s ahead of"),
            (1_000, 2_510, -1.5, "1.5s behind"),
            (3_456_000_510, 500, 3_456_000.0, "40d ahead of"),
        ] {
            let gap = gap(machine, other);
            assert!((gap.seconds() - seconds).abs() < 1e-9, "{gap:?}");
            assert_eq!(gap.to_string(), text);
        }
    }

    #[test]
    fn a_report_tells_of_both_servers() {
        let gap = |seconds| ClockGap { apart: Duration::from_secs(seconds), is_ahead: true };
        let report = ClockReport { store: Some(gap(0)), bus: Some(gap(3)) };
        assert_eq!(report.to_string(), "0.0s ahead of that of the store, 3.0s ahead of that of the queue");
        assert!(report.is_far() && !ClockReport { bus: None, ..report }.is_far());
        assert_eq!(ClockReport::default().to_string(), "the one that counts");
    }
}
