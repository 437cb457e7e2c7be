//! Periods: turns that start in the same week share their parts. A part is purged when no turn of its period names it
//! any more; turns of later periods never name it. A turn whose reply was recorded stays in its period, even if it
//! continues after the end of it.

use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Length of a period in milliseconds. A context that stays the same is stored once per period.
const WEEK: u64 = 7 * 24 * 3_600_000;

/// The number of a week: the week of 1970-01-01 is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Period(u64);

impl Period {
    /// Period of records by older versions, which have none.
    pub const NO_PERIOD: Self = Self(0);

    /// Returns the period of a turn that starts at this time.
    pub fn from_start(start: Millis) -> Self {
        Self(start.0 / WEEK + 1)
    }

    /// Parses the number of a period.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// Returns the number of the period.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns a lower bound for the start of its turns: older versions took the period in which the prompt was made.
    pub fn turns_begin(self) -> Millis {
        Millis(self.0.saturating_sub(2).saturating_mul(WEEK))
    }

    /// Returns an upper bound for the start of its turns: in older versions a turn whose worker died after the prompt
    /// could start again up to a period later.
    pub fn turns_end(self) -> Millis {
        Millis(self.0.saturating_add(1).saturating_mul(WEEK))
    }

    /// Whether no turn writes to it any more and the retention of its turns is over.
    pub fn is_over(self, turns_kept: Duration, now: Millis) -> bool {
        let end = Millis(self.0.saturating_mul(WEEK));
        end.plus(turns_kept.max(Duration::from_millis(WEEK))) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_week_and_over_when_its_turns_are_old_enough() {
        const DAY: u64 = 86_400_000;
        let day = |days: u64| Millis(days * DAY);
        assert_eq!(Period::from_start(Millis(0)), Period(1));
        assert_eq!(Period::from_start(Millis(7 * DAY - 1)), Period(1));
        let second = Period::from_start(day(7));
        assert_eq!((second, second.turns_begin(), second.turns_end()), (Period(2), day(0), day(21)));
        assert_eq!(Period(4).turns_begin(), day(14));
        let kept = |days: u64| Duration::from_millis(days * DAY);
        for (turns_kept, over_from) in [(kept(90), 14 + 90), (kept(7), 21), (Duration::ZERO, 21)] {
            assert!(!second.is_over(turns_kept, Millis(over_from * DAY - 1)), "{turns_kept:?}");
            assert!(second.is_over(turns_kept, day(over_from)), "{turns_kept:?}");
        }
        assert!(Period::from_start(Millis(u64::MAX)).turns_end() > day(7), "a clock that is off does no harm");
    }
}
