//! Durations as the functions take them.

use std::time::Duration;

/// Returns a duration in milliseconds; one that is too long is the longest.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
