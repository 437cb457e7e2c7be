//! Instants as plain data: the core never reads a clock.

pub mod cron;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Reads digits as milliseconds since the epoch, or a time of RFC 3339, e.g. `2026-11-21T22:00:00Z`; a date alone
    /// is its beginning in UTC.
    pub fn parse(text: &str) -> Option<Self> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(Self);
        }
        // A time zone in brackets (RFC 9557) would be ignored, even where it contradicts the offset.
        if text.contains('[') {
            return None;
        }
        let text = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
        let time: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(time.as_millisecond()).ok().map(Self)
    }

    /// Moves this instant forward; saturates at the end of time.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Moves this instant back; saturates at the epoch.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    pub fn elapsed_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time as RFC 3339 in UTC with milliseconds.
    pub fn rfc3339(self) -> String {
        i64::try_from(self.0)
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
            .map_or_else(|| format!("{}ms", self.0), |t| format!("{t:.3}"))
    }

    /// Returns the date as `YYYY-MM-DD` in UTC.
    pub fn date(self) -> String {
        self.rfc3339().chars().take(10).collect()
    }
}

/// Returns the pause after this many failures in a row: `first` after one, then twice the one before, at most `longest`.
pub fn doubled_pause(first: Duration, longest: Duration, failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(doubled).min(longest)
}

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
