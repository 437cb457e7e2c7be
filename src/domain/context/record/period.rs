//! Periods: the turns that start in one share their parts, and its parts go when none of its turns names them any more.
//! No turn of a later one does. A turn whose reply was recorded, and that goes on when its period is long over, is of
//! that period still.

use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long one lasts, in milliseconds. A context that stays the same is stored once in it.
const WEEK: u64 = 7 * 24 * 3_600_000;

/// A week of turns, counted from that of 1970-01-01, which is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Period(u64);

impl Period {
    /// What builds wrote that knew no periods.
    pub const BEFORE: Self = Self(0);

    /// The one of a turn that starts then.
    pub fn at(start: Millis) -> Self {
        Self(start.0 / WEEK + 1)
    }

    /// Reads a number.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Its first turns have started no earlier: older builds took the period in which the prompt was made.
    pub fn turns_begin(self) -> Millis {
        Millis(self.0.saturating_sub(2).saturating_mul(WEEK))
    }

    /// Its last turns have started before. Of older builds one whose worker died after the prompt could start again up to
    /// a period later.
    pub fn turns_end(self) -> Millis {
        Millis(self.0.saturating_add(1).saturating_mul(WEEK))
    }

    /// Nothing is written to it any more, and its turns have come of the age at which turns go.
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
        assert_eq!(Period::at(Millis(0)), Period(1));
        assert_eq!(Period::at(Millis(7 * DAY - 1)), Period(1));
        let second = Period::at(day(7));
        assert_eq!((second, second.turns_begin(), second.turns_end()), (Period(2), day(0), day(21)));
        assert_eq!(Period(4).turns_begin(), day(14));
        let kept = |days: u64| Duration::from_millis(days * DAY);
        for (turns_kept, over_from) in [(kept(90), 14 + 90), (kept(7), 21), (Duration::ZERO, 21)] {
            assert!(!second.is_over(turns_kept, Millis(over_from * DAY - 1)), "{turns_kept:?}");
            assert!(second.is_over(turns_kept, day(over_from)), "{turns_kept:?}");
        }
        assert!(Period::at(Millis(u64::MAX)).turns_end() > day(7), "a clock that is off does no harm");
    }
}
