//! How often each timer must have fired, computed from its schedule without the code that fires it.
//!
//! While a process runs, the clock never passes two times of a timer in one step, so that each of
//! them counts alone. What passed while nothing ran falls to the timer's catch-up rule.

use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use trellis::domain::time::Millis;
use trellis::domain::timer::{Timer, TimerId};

const MINUTE: u64 = 60_000;
/// Farther ahead no next time is looked for.
const AHEAD: u64 = 8 * 24 * 60 * MINUTE;

/// A schedule as people would say it.
pub enum Plan {
    At(Millis),
    Every {
        start: Millis,
        minutes: u64,
    },
    /// Minutes of the wall clock there. `instead` is when a time fires that the clock leaves out.
    Wall {
        zone: TimeZone,
        fits: fn(DateTime) -> bool,
        instead: Option<Millis>,
    },
}

impl Plan {
    /// Its times after `after`, up to `until`.
    fn times(&self, after: Millis, until: Millis) -> Vec<Millis> {
        match self {
            Self::At(at) => Some(*at).filter(|at| after < *at && *at <= until).into_iter().collect(),
            Self::Every { start, minutes } => {
                let nth = |n: u64| Millis(start.0 + n * minutes * MINUTE);
                let first = (after.0 - start.0) / (minutes * MINUTE) + 1;
                (first..).map_while(|n| Some(nth(n)).filter(|at| *at <= until)).collect()
            }
            Self::Wall { zone, fits, instead } => {
                let first = after.0 / MINUTE + 1;
                let minutes = (first..).map(|minute| Millis(minute * MINUTE)).take_while(|at| *at <= until);
                let fits = |at: &Millis| *instead == Some(*at) || fits(wall(*at, zone));
                minutes.filter(fits).collect()
            }
        }
    }

    fn next(&self, after: Millis) -> Option<Millis> {
        let mut from = after;
        while from.0 < after.0 + AHEAD {
            // By the hour: most schedules have a time soon.
            let to = Millis(from.0 + 60 * MINUTE);
            if let Some(found) = self.times(from, to).first() {
                return Some(*found);
            }
            from = to;
        }
        None
    }
}

fn wall(at: Millis, zone: &TimeZone) -> DateTime {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at.0).unwrap()).unwrap();
    zone.to_datetime(at)
}

/// Every half hour in the office, `*/30 8-17 * * MON-SAT`.
pub fn office(at: DateTime) -> bool {
    at.weekday() != Weekday::Sunday && (8..=17).contains(&at.hour()) && at.minute() % 30 == 0
}

/// `30 2 * * *`.
pub fn at_night(at: DateTime) -> bool {
    (at.hour(), at.minute()) == (2, 30)
}

/// `20 * * * *`.
pub fn hourly(at: DateTime) -> bool {
    at.minute() == 20
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CatchUp {
    One,
    All,
    Skip,
}

impl CatchUp {
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::All => "all",
            Self::Skip => "skip",
        }
    }
}

/// A timer, and what must have come of it.
pub struct Entry {
    pub id: TimerId,
    plan: Plan,
    catch_up: CatchUp,
    /// Left out while the last one isn't finished: how often, only the fires can tell.
    pub overlap_skip: bool,
    pub is_task: bool,
    /// Times up to here are counted.
    seen: Millis,
    next: Option<Millis>,
    fired: u64,
    skipped: u64,
    /// It fires no more.
    over: bool,
    /// And was found so: how often it fired, and how often it was left out.
    pub found: Option<(u64, u64)>,
}

impl Entry {
    pub fn new(id: TimerId, plan: Plan, catch_up: CatchUp, overlap_skip: bool, is_task: bool, now: Millis) -> Self {
        let next = plan.next(now);
        Self {
            id,
            plan,
            catch_up,
            overlap_skip,
            is_task,
            seen: now,
            next,
            fired: 0,
            skipped: 0,
            over: false,
            found: None,
        }
    }

    pub fn next(&self) -> Option<Millis> {
        self.next.filter(|_| !self.over)
    }

    /// Everything up to `now` is counted.
    fn seen(&mut self, now: Millis) {
        self.seen = now;
        if self.next.is_some_and(|next| next <= now) {
            self.next = self.plan.next(now);
        }
        self.over |= self.next.is_none();
    }

    /// The timer is as it must be.
    fn check(&self, stored: &Timer) {
        let counts = (stored.fired, stored.skipped);
        let about = format!("timer {} of `{}` ({:?})", self.id, stored.agent, self.catch_up);
        if self.overlap_skip {
            assert_eq!(counts.0 + counts.1, self.fired + self.skipped, "{about}: {counts:?}");
        } else {
            assert_eq!(counts, (self.fired, self.skipped), "{about}: fired and left out");
        }
        assert_eq!(stored.next, self.next(), "{about}: its next time");
    }
}

/// All timers that callers have set.
#[derive(Default)]
pub struct Calendar {
    pub entries: Vec<Entry>,
}

impl Calendar {
    /// The next time of any.
    pub fn next(&self) -> Option<Millis> {
        self.entries.iter().filter_map(Entry::next).min()
    }

    /// All timers have fired what is due: each time since the last look was one of a running process.
    pub fn settled(&mut self, stored: &[Timer], now: Millis) {
        for entry in self.entries.iter_mut().filter(|entry| entry.found.is_none()) {
            if !entry.over {
                let times = entry.plan.times(entry.seen, now);
                assert!(times.len() <= 1, "the clock went too far for {}: {times:?}", entry.id);
                entry.fired += times.len() as u64;
                entry.seen(now);
            }
            let stored = find(stored, &entry.id);
            entry.check(stored);
            entry.found = entry.over.then_some((stored.fired, stored.skipped));
        }
    }

    /// A process begins, and nothing ran since the last look but one that is dead since `died`. There are
    /// jobs of these events.
    pub fn reopened(&mut self, stored: &[Timer], events: &BTreeSet<String>, died: Millis, now: Millis) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.over) {
            let mut missed = entry.plan.times(entry.seen, now);
            // Whether its last fire was written before it died, only the timer can tell.
            let timer = find(stored, &entry.id);
            let next = timer.next;
            let done = missed.iter().take_while(|at| next.is_none_or(|next| **at < next)).count();
            assert!(missed.iter().take(done).all(|at| *at <= died) && done <= 1, "{}: {missed:?} {next:?}", entry.id);
            missed.drain(..done);
            let passed = missed.len() as u64;
            let fires = match entry.catch_up {
                CatchUp::One => passed.min(1),
                CatchUp::All => passed,
                CatchUp::Skip => {
                    let name = |at: &Millis| format!("venue:timer-{}-{}-{at}-", timer.id, timer.generation);
                    let sent = |at: &&Millis| events.iter().any(|event| event.starts_with(&name(at)));
                    let grace = match (timer.tries, passed) {
                        (1.., _) => MINUTE,
                        (0, ..=1) => 10_000,
                        (0, 2..) => 2_000,
                    };
                    let ran = |at: &&Millis| Some(*at) == missed.last() && now.0 - at.0 <= grace;
                    missed.iter().filter(|at| ran(at) || sent(at)).count() as u64
                }
            };
            entry.fired += done as u64 + fires;
            entry.skipped += passed - fires;
            entry.seen(now);
        }
    }

    /// A caller has cancelled a timer.
    pub fn cancelled(&mut self, at: usize) {
        self.entries[at].over = true;
    }
}

fn find<'a>(stored: &'a [Timer], id: &TimerId) -> &'a Timer {
    stored.iter().find(|timer| timer.id == *id).unwrap_or_else(|| panic!("timer {id} is gone"))
}
