//! The time of a job as a strip: its wait in the queue, its turns, and the pauses between them.

use super::figures::{count_text, duration_text};
use crate::domain::time::Millis;
use std::time::Duration;

/// Width of the strip in its own units.
const STRIP_UNITS: u64 = 1_000;

/// Narrowest stretch, so that a short turn is seen.
const NARROWEST: u64 = 4;

/// A turn on the strip.
#[derive(Debug, Clone)]
pub(super) struct StripTurn {
    pub(super) number: u64,
    pub(super) address: String,
    pub(super) start: Millis,
    pub(super) end: Millis,
}

/// The time of a job, from its acceptance to its end or the present.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobTimes {
    pub(super) created: Millis,
    /// End of the job, or the present.
    pub(super) end: Millis,
    pub(super) is_open: bool,
}

/// A stretch of the strip, in units of its whole width.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StripStretch {
    /// Class of its colour: a turn, a wait, or a wait that is drawn shorter than it was.
    pub(super) class: &'static str,
    pub(super) start: u64,
    pub(super) width: u64,
    pub(super) label: String,
    /// Address of the turn; empty of waits.
    pub(super) address: String,
}

/// The strip with its sums in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimeStrip {
    pub(super) stretches: Vec<StripStretch>,
    pub(super) sums: String,
}

/// A part of the job's time before it is drawn.
struct Part<'a> {
    time: Duration,
    /// Time that it is drawn with.
    drawn: Duration,
    turn: Option<&'a StripTurn>,
    label: String,
}

impl TimeStrip {
    /// Draws the turns, oldest first. A wait is drawn no longer than all turns together, so that they are still seen.
    pub(super) fn new(times: JobTimes, turns: &[StripTurn]) -> Option<Self> {
        let first = turns.first()?;
        let active: Duration = turns.iter().map(|turn| turn.end.elapsed_since(turn.start)).sum();
        let longest = active.max(Duration::from_millis(1));
        let mut parts = vec![wait(first.start.elapsed_since(times.created), longest, "waited for its first turn")];
        for (at, turn) in turns.iter().enumerate() {
            let time = turn.end.elapsed_since(turn.start);
            let label = format!("turn {}, {}", turn.number, duration_text(time));
            parts.push(Part { time, drawn: time, turn: Some(turn), label });
            let next = turns.get(at + 1);
            let until = next.map_or(times.end, |next| next.start);
            let what = match next {
                Some(_) => "waited between turns",
                None if times.is_open => "no turn has ended since",
                None => "waited for its end",
            };
            parts.push(wait(until.elapsed_since(turn.end), longest, what));
        }
        let waits = |part: &&Part<'_>| part.turn.is_none();
        let queued = parts.first().map(|part| part.time).unwrap_or_default();
        let between: Duration = parts.iter().skip(1).filter(waits).map(|part| part.time).sum();
        let sums = format!(
            "{} in {}; {} before the first, {} after or between them",
            count_text(turns.len() as u64, "turn"),
            duration_text(active),
            duration_text(queued),
            duration_text(between)
        );
        Some(Self { stretches: draw(&parts), sums })
    }
}

fn wait<'a>(time: Duration, longest: Duration, what: &str) -> Part<'a> {
    Part { time, drawn: time.min(longest), turn: None, label: format!("{what}, {}", duration_text(time)) }
}

fn draw(parts: &[Part<'_>]) -> Vec<StripStretch> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let total = parts.iter().map(|part| millis(part.drawn)).sum::<u64>().max(1);
    let (mut stretches, mut before) = (Vec::new(), 0_u64);
    for part in parts {
        let start = before.saturating_mul(STRIP_UNITS) / total;
        before = before.saturating_add(millis(part.drawn));
        let width = before.saturating_mul(STRIP_UNITS) / total - start;
        if part.turn.is_none() && width == 0 {
            continue;
        }
        let class = match part.turn {
            Some(_) => "strip-turn",
            None if part.drawn < part.time => "strip-cut",
            None => "strip-wait",
        };
        let address = part.turn.map(|turn| turn.address.clone()).unwrap_or_default();
        let start = start.min(STRIP_UNITS - NARROWEST);
        stretches.push(StripStretch { class, start, width: width.max(NARROWEST), label: part.label.clone(), address });
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: u64, start: u64, end: u64) -> StripTurn {
        StripTurn { number, address: format!("/t/{number}"), start: Millis(start), end: Millis(end) }
    }

    fn strip(created: u64, end: u64, turns: &[StripTurn]) -> TimeStrip {
        TimeStrip::new(JobTimes { created: Millis(created), end: Millis(end), is_open: false }, turns).unwrap()
    }

    #[test]
    fn waits_and_turns_share_the_width() {
        let drawn = strip(0, 4_000, &[turn(1, 1_000, 2_000), turn(2, 3_000, 4_000)]);
        let places: Vec<_> = drawn.stretches.iter().map(|of| (of.class, of.start, of.width)).collect();
        let expected =
            [("strip-wait", 0, 250), ("strip-turn", 250, 250), ("strip-wait", 500, 250), ("strip-turn", 750, 250)];
        assert_eq!(places, expected);
        assert_eq!(drawn.sums, "2 turns in 2 s; 1 s before the first, 1 s after or between them");
        assert_eq!(drawn.stretches[1].address, "/t/1");
    }

    #[test]
    fn a_long_wait_is_drawn_as_long_as_all_turns() {
        let drawn = strip(0, 3_600_000, &[turn(1, 0, 1_000), turn(2, 3_599_000, 3_600_000)]);
        let cut = drawn.stretches.iter().find(|of| of.class == "strip-cut").unwrap();
        assert_eq!((cut.width, cut.label.as_str()), (500, "waited between turns, 59 min"));
    }

    #[test]
    fn a_turn_that_took_no_time_is_seen() {
        let drawn = strip(0, 1_000, &[turn(1, 1_000, 1_000)]);
        let seen = drawn.stretches.last().unwrap();
        assert_eq!((seen.class, seen.width), ("strip-turn", NARROWEST));
        assert!(seen.start + seen.width <= STRIP_UNITS);
        assert_eq!(TimeStrip::new(JobTimes { created: Millis(0), end: Millis(1), is_open: true }, &[]), None);
    }
}
