//! What goes wrong in a simulation, and when: chosen by the seed, each fault a stretch of time, so that any of them can
//! be left out to see whether it matters.

use crate::support::dice::Dice;
use std::time::Duration;

/// Nothing new goes wrong from here on; what does is over soon after.
pub const TROUBLE: Duration = Duration::from_secs(40);

/// What processes talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Store,
    Queue,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The process of a worker is gone at once; another takes its place when the time is over.
    Kill(usize),
    /// A worker is asked to stop, and another takes its place when the time is over.
    Stop(usize),
    /// A worker stands still.
    Standstill(usize),
    /// One worker reaches one server no more.
    Cut(usize, Server),
    /// Nobody reaches a server.
    Away(Server),
    /// So many of a hundred calls are lost, on the way there or on the way back.
    Lossy(Server, u64),
    /// Every way takes up to so many milliseconds.
    Slow(u64),
    /// So many of a hundred messages are delivered again while the first delivery is served.
    Twice(u64),
    /// Messages come in any order.
    Shuffled,
    /// So many of a hundred model calls fail.
    Overloaded(u64),
    /// What is said live is lost.
    Mute,
    /// The clock of a worker that starts meanwhile is off by so many milliseconds.
    Skew(usize, i64),
    /// The store is set back to where it was at the beginning.
    LostTail,
}

/// One thing that goes wrong, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    pub at: Duration,
    pub lasts: Duration,
    pub what: What,
}

impl Trouble {
    pub fn until(&self) -> Duration {
        self.at + self.lasts
    }

    pub fn covers(&self, now: Duration) -> bool {
        self.at <= now && now < self.until()
    }
}

/// All that goes wrong.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub troubles: Vec<Trouble>,
}

impl Plan {
    /// By the seed, for so many workers.
    pub fn new(seed: u64, workers: usize) -> Self {
        let mut dice = Dice(seed ^ 0x7a0b_1e5d);
        let number = 1 + dice.below(8);
        let mut troubles: Vec<_> = (0..number).map(|_| Self::one(&mut dice, workers)).collect();
        troubles.sort_by_key(|trouble| trouble.at);
        // A store that is set back tells holders apart by the time: the clocks must agree then.
        if troubles.iter().any(|trouble| trouble.what == What::LostTail) {
            troubles.retain(|trouble| !matches!(trouble.what, What::Skew(..)));
        }
        Self { troubles }
    }

    fn one(dice: &mut Dice, workers: usize) -> Trouble {
        let trouble = TROUBLE.as_millis().try_into().unwrap_or(u64::MAX);
        let at = Duration::from_millis(dice.below(trouble));
        let lasts = Duration::from_millis(*dice.pick(&[300, 1_500, 4_000, 9_000, 20_000]));
        let worker = usize::try_from(dice.below(workers as u64)).unwrap();
        let server = *dice.pick(&[Server::Store, Server::Queue]);
        let percent = 1 + dice.below(40);
        let what = match dice.below(32) {
            0..6 => What::Kill(worker),
            6..8 => What::Stop(worker),
            8..12 => What::Standstill(worker),
            12..15 => What::Cut(worker, server),
            15..17 => What::Away(server),
            17..20 => What::Lossy(server, percent),
            20..22 => What::Slow(1 + dice.below(2_000)),
            22..24 => What::Twice(percent),
            24..26 => What::Shuffled,
            26..28 => What::Overloaded(percent),
            28 => What::Mute,
            29..31 => {
                let skew = i64::try_from(dice.below(16_000)).unwrap() - 8_000;
                return Trouble { at: Duration::ZERO, lasts: TROUBLE, what: What::Skew(worker, skew) };
            }
            // Not part of the usual run yet: see the module.
            _ if std::env::var_os("TRELLIS_SIMULATE_LOST_TAIL").is_some() => What::LostTail,
            _ => What::Mute,
        };
        // What was acknowledged longer ago than this is with every replica.
        let lasts = if what == What::LostTail { lasts.min(Duration::from_millis(1_500)) } else { lasts };
        Trouble { at, lasts, what }
    }

    /// Those at work now.
    pub fn now(&self, now: Duration) -> impl Iterator<Item = What> + '_ {
        self.troubles.iter().filter(move |trouble| trouble.covers(now)).map(|trouble| trouble.what)
    }

    /// Until when a worker stands still.
    pub fn standstill(&self, worker: usize, now: Duration) -> Option<Duration> {
        let stands = |trouble: &&Trouble| trouble.what == What::Standstill(worker) && trouble.covers(now);
        self.troubles.iter().filter(stands).map(Trouble::until).max()
    }

    /// What a process that starts now has as its clock's error, in milliseconds.
    pub fn skew(&self, worker: usize) -> i64 {
        let of = |trouble: &Trouble| match trouble.what {
            What::Skew(of, skew) if of == worker => Some(skew),
            _ => None,
        };
        self.troubles.iter().find_map(of).unwrap_or(0)
    }

    /// Whether it has a trouble like that.
    pub fn has(&self, like: impl Fn(What) -> bool) -> bool {
        self.troubles.iter().any(|trouble| like(trouble.what))
    }
}
