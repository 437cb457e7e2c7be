//! How full a store is. From 80 % on no new work is admitted, so that accepted work can end.

use super::StoreError;
use crate::domain::limits::{STORE_LOOK, STORE_TIGHT_PERCENT};
use parking_lot::Mutex;
use std::future::Future;
use std::time::Duration;

/// Used and allowed bytes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    /// Bytes of memory; for an embedded store, bytes on disk.
    pub used: u64,
    /// Limit in bytes; `None` without one, or where the server doesn't report it.
    pub limit: Option<u64>,
}

impl Fill {
    /// Used percentage of the limit; `None` without a limit.
    pub fn percent(self) -> Option<u64> {
        let limit = self.limit.filter(|limit| *limit > 0)?;
        u64::try_from(u128::from(self.used) * 100 / u128::from(limit)).ok()
    }

    /// Whether no new work is admitted.
    pub fn is_tight(self) -> bool {
        self.percent().is_some_and(|percent| percent >= STORE_TIGHT_PERCENT)
    }

    /// Whether the store is at its limit, so that it refuses writes.
    pub fn is_full(self) -> bool {
        self.percent().is_some_and(|percent| percent >= 100)
    }

    /// Refuses new work with [`StoreError::Full`] if the store is tight.
    pub fn check_room(self, store: &str) -> Result<(), StoreError> {
        if !self.is_tight() {
            return Ok(());
        }
        let reason = format!(
            "it uses {self}, and from {STORE_TIGHT_PERCENT} % on no new work is taken; what was accepted goes on; \
             delete what isn't needed any more, which is always possible, or raise its limit"
        );
        Err(StoreError::Full { store: store.to_owned(), reason })
    }
}

impl std::fmt::Display for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.percent(), self.limit) {
            (Some(percent), Some(limit)) => write!(f, "{percent} % of {limit} bytes"),
            _ => write!(f, "{} bytes, without a limit", self.used),
        }
    }
}

/// The last measured level of a store, and whether a warning for it was logged.
#[derive(Debug, Default)]
pub struct FillLevel {
    last: Mutex<Option<(Duration, Fill)>>,
}

impl FillLevel {
    /// Returns the level measured less than `STORE_LOOK` ago, or measures it by `look`. Callers don't wait for each
    /// other: the first that finds the level too old measures, and the others get the old one meanwhile.
    pub async fn measure(&self, now: Duration, store: &str, look: impl Future<Output = Fill>) -> Fill {
        let before = {
            let mut last = self.last.lock();
            match *last {
                Some((at, fill)) if now.saturating_sub(at) < STORE_LOOK => return fill,
                Some((_, fill)) => {
                    *last = Some((now, fill));
                    Some(fill)
                }
                None => None,
            }
        };
        let fill = look.await;
        *self.last.lock() = Some((now, fill));
        let was_tight = before.is_some_and(Fill::is_tight);
        if fill.is_tight() && !was_tight {
            tracing::warn!("store `{store}` uses {fill}: from {STORE_TIGHT_PERCENT} % on no new work is taken");
        } else if was_tight && !fill.is_tight() {
            tracing::info!("store `{store}` uses {fill}: new work is taken again");
        }
        fill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_work_is_refused_from_four_fifths_of_the_limit() {
        for (used, limit, percent, tight) in [
            (0, Some(100), Some(0), false),
            (79, Some(100), Some(79), false),
            (80, Some(100), Some(80), true),
            (799, Some(1_000), Some(79), false),
            (150, Some(100), Some(150), true),
            (u64::MAX, Some(u64::MAX), Some(100), true),
            (5, Some(0), None, false),
            (5, None, None, false),
        ] {
            let fill = Fill { used, limit };
            assert_eq!((fill.percent(), fill.is_tight()), (percent, tight), "{fill:?}");
            assert_eq!(fill.check_room("s").is_err(), tight);
        }
        let error = Fill { used: 85, limit: Some(100) }.check_room("redis://h").unwrap_err().to_string();
        assert!(error.contains("85 % of 100 bytes") && error.contains("from 80 %"), "{error}");
    }

    #[tokio::test]
    async fn a_store_is_looked_at_once_in_a_while() {
        let level = FillLevel::default();
        let fill = |used| Fill { used, limit: Some(100) };
        for (looks, said, expected) in [(0, 1, 1), (0, 2, 1), (1, 90, 90), (1, 4, 90), (2, 3, 3)] {
            assert_eq!(level.measure(STORE_LOOK * looks, "s", async { fill(said) }).await, fill(expected));
        }
    }
}
