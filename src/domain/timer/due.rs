//! The planned times of a timer that are due, and those that were missed.

use super::{CatchUpPolicy, Timer, TimerPhase};
use crate::limits::{TIMER_CATCH_UP, TIMER_GRACE, TIMER_LATE, TIMER_PROMPT};
use crate::time::Millis;

/// Planned times of a timer up to now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueTimes {
    /// Planned times that are fired, the oldest first.
    pub fire: Vec<Millis>,
    /// Number of planned times that passed and are left out; a lower bound if there are very many.
    pub skipped: u64,
    /// First planned time in the future.
    pub next: Option<Millis>,
}

impl Timer {
    /// Returns the planned times that are due; the same for every process until the timer is written.
    pub fn due(&self, now: Millis) -> DueTimes {
        let (TimerPhase::Active, Some(first)) = (&self.phase, self.next) else { return DueTimes::default() };
        let Ok(times) = self.schedule.parse() else { return DueTimes::default() };
        let ends = self.end_of_authority().map(|(at, _)| at);
        let is_in_time = |time: &Millis| ends.is_none_or(|ends| *time < ends);
        let mut due = DueTimes::default();
        let (mut at, mut newest) = (Some(first), None);
        while let Some(time) = at.filter(|time| *time <= now && is_in_time(time)) {
            newest = Some(time);
            let full = due.fire.len() >= TIMER_CATCH_UP;
            let wanted = match self.catch_up {
                CatchUpPolicy::One => due.fire.is_empty(),
                CatchUpPolicy::All => !full,
                CatchUpPolicy::Skip => false,
            };
            if wanted {
                due.fire.push(time);
            } else {
                due.skipped += 1;
            }
            at = times.next_after(time);
            // After a long time they aren't counted one by one.
            if due.skipped >= TIMER_CATCH_UP as u64 {
                (at, newest) = (times.next_after(now), None);
            }
        }
        // A time that a later one has overtaken was missed.
        let grace = match (self.tries, due.skipped) {
            (1.., _) => TIMER_GRACE,
            (0, ..=1) => TIMER_LATE,
            (0, 2..) => TIMER_PROMPT,
        };
        if self.catch_up == CatchUpPolicy::Skip
            && let Some(time) = newest.filter(|time| now.elapsed_since(*time) <= grace)
        {
            due.fire.push(time);
            due.skipped -= 1;
        }
        due.next = at.filter(is_in_time);
        due
    }
}
