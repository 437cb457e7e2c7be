//! Figures on pages: states with their signs, ages, tokens and money.

use crate::domain::digits::group_digits;
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::view::agent::AgentActivity;
use crate::view::spend::ModelUseView;
use std::time::Duration;

/// A state in its sign, its word and its colour: none of them stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StateSign {
    /// Class of the style.
    pub(super) class: &'static str,
    pub(super) glyph: &'static str,
    pub(super) word: &'static str,
}

impl From<JobStatus> for StateSign {
    fn from(status: JobStatus) -> Self {
        let [class, glyph, word] = match status {
            JobStatus::Pending => ["pending", "○", "pending"],
            JobStatus::Started => ["started", "▶", "started"],
            JobStatus::Paused => ["waiting", "‖", "paused"],
            JobStatus::InputRequired => ["waiting", "?", "needs input"],
            JobStatus::AuthRequired => ["waiting", "!", "needs sign-in"],
            JobStatus::Complete => ["complete", "✓", "complete"],
            JobStatus::Failed => ["failed", "✕", "failed"],
            JobStatus::Cancelled => ["cancelled", "⊘", "cancelled"],
            JobStatus::Rejected => ["cancelled", "⊘", "rejected"],
        };
        Self { class, glyph, word }
    }
}

impl From<AgentActivity> for StateSign {
    fn from(activity: AgentActivity) -> Self {
        let [class, glyph, word] = match activity {
            AgentActivity::Sleeping => ["pending", "○", "sleeping"],
            AgentActivity::Running => ["started", "▶", "running"],
            AgentActivity::Suspended => ["waiting", "‖", "suspended"],
            AgentActivity::Terminated => ["cancelled", "⊘", "terminated"],
        };
        Self { class, glyph, word }
    }
}

/// A time on a page: how long ago it was, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimeText {
    /// Age, as `4m`; a time to come as `in 4m`.
    pub(super) age: String,
    /// Time as RFC 3339.
    pub(super) time: String,
}

impl TimeText {
    /// Makes a moment as it is seen at `now`.
    pub(super) fn new(time: Millis, now: Millis) -> Self {
        let age = if time > now {
            format!("in {}", duration_text(time.elapsed_since(now)))
        } else {
            duration_text(now.elapsed_since(time))
        };
        Self { age, time: time.rfc3339() }
    }

    /// Returns the age of a time that is past, and the time.
    pub(super) fn ago(&self) -> String {
        format!("{} ago, {}", self.age, self.time)
    }
}

/// Returns a duration in its largest unit.
pub(super) fn duration_text(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Returns a number of things in words.
pub(super) fn count_text(count: u64, singular: &str) -> String {
    if count == 1 { format!("1 {singular}") } else { format!("{} {singular}s", group_digits(count)) }
}

/// Returns an amount of money.
pub(super) fn dollars_text(dollars: f64) -> String {
    if dollars > 0.0 && dollars < 0.01 { format!("${dollars:.5}") } else { format!("${dollars:.2}") }
}

/// Returns the tokens of some model calls; empty where there were none.
pub(super) fn tokens_text(used: &ModelUseView) -> String {
    if used.calls == 0 { String::new() } else { group_digits(used.input + used.output) }
}

/// Returns the cost of some model calls; empty where no price is known.
pub(super) fn cost_text(used: &ModelUseView) -> String {
    used.cost.map(dollars_text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_its_largest_unit() {
        for (seconds, expected) in
            [(0, "0 ms"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (86_400, "24 h"), (259_200, "3 d")]
        {
            assert_eq!(duration_text(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(TimeText::new(Millis(5_000), Millis(2_000)).age, "in 3 s");
    }

    #[test]
    fn numbers_and_money_are_readable() {
        assert_eq!([count_text(1, "call"), count_text(2_000, "call")], ["1 call", "2,000 calls"]);
        assert_eq!([dollars_text(0.0), dollars_text(0.004), dollars_text(1.5)], ["$0.00", "$0.00400", "$1.50"]);
    }

    #[test]
    fn every_state_has_its_own_word() {
        let mut words = JobStatus::ALL.map(|status| StateSign::from(status).word);
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{words:?}");
    }
}
