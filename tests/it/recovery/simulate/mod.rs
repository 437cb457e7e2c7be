//! A fleet in one thread on a simulated clock: real workers over a store, a queue and a model that fail by a seed.
//!
//! Everything that happens is a function of the seed. The runtime has one thread and paused time, so that a sleep is over
//! as soon as nothing else runs; all clocks are [`Clock::from_timers`](trellis::process::clock::Clock::from_timers),
//! each with its own error. What chance there is (times of messages, what is lost, what is sent and when) comes from dice
//! of the seed; the product's own chance is its ids of leases, which name nothing that the trace shows, and jitter, which
//! is 0 here.
//!
//! ```text
//! callers ──┐                       ┌─▶ FarStore ─▶ ServerStore ─▶ EmbeddedStore in memory
//! worker 0 ─┼─ Link (late, lost, …) ┼─▶ FarQueue ─▶ Queue (work queue, alarms, what goes out)
//! worker 1 ─┘                       └─▶ FarModel ─▶ rules
//! ```
//!
//! The store's rules are the embedded store's own, by a clock of its own as in Redis ([`OwnClock`](server_clock::OwnClock)):
//! what isn't told apart by the conformance suites and the differential tests holds of Redis, too.
//! [`ServerStore`](store::ServerStore) knows nothing of them and sees whether what was granted, recorded and committed
//! fits. A process that is killed reaches nobody any more, at any await; its successor starts with nothing. When the
//! faults are over and nothing moves, [`check`] closes the books.
//!
//! A store that is set back (`TRELLIS_SIMULATE_LOST_TAIL=1`) isn't part of the usual run: what died with a process that
//! alone knew of it (the answer of somebody outside, a timer's end) is missing rightly, and is judged as wrong still.
//!
//! `TRELLIS_SIMULATE_SEED` runs one seed and shows its trace, `TRELLIS_SIMULATE_ONLY` leaves all faults but these
//! (their places, with commas; empty for none) out; `TRELLIS_SIMULATE_FROM`, `…_SEEDS` and `…_JOBS` run many, see
//! `tests/simulate.sh`.

pub mod bus;
mod callers;
mod check;
mod fleet;
mod model;
mod server_clock;
mod plan;
pub mod queue;
mod run;
mod simulated_agents;
pub mod store;
pub mod world;

use plan::Plan;
use run::{Outcome, failing, sabotaged, simulate};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use world::Sabotage;

/// Seeds that have found something, each mended since: what it was.
const REGRESSIONS: &[(u64, &str)] = &[];

/// Seeds of the short run.
const SHORT: u64 = 8;
/// Names of the bugs that servers can have on purpose: `TRELLIS_SIMULATE_SABOTAGE=NoFence tests/simulate.sh`.
const SABOTAGES: [&str; 6] = ["NoFence", "DropOutbox", "ForgetReply", "AdmitAgain", "LoseMessages", "LoseCompletions"];
/// Number of seeds of which at least one must find each of them. When this was written, one of the first 14 did; which
/// one changes with every change of what a turn reads and writes.
const SEARCHED: u64 = 60;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(format!("TRELLIS_SIMULATE_{name}")).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("TRELLIS_SIMULATE_{name}: expected a number, got `{text}`")))
}

/// Runs a seed that must be right; panics with all that shows why it isn't.
fn right(seed: u64) -> Outcome {
    let outcome = simulate(seed, Plan::new(seed, run::workers(seed)));
    assert!(outcome.wrong.is_empty(), "{}", failing(seed, &outcome));
    outcome
}

#[test]
fn seeds_of_fixed_bugs_pass() {
    for (seed, what) in REGRESSIONS {
        eprintln!("seed {seed}: {what}");
        right(*seed);
    }
}

#[test]
fn a_few_seeds_end_with_closed_books() {
    for seed in 1..=SHORT {
        right(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in [3, 8] {
        let plan = || Plan::new(seed, run::workers(seed));
        let (one, other) = (simulate(seed, plan()), simulate(seed, plan()));
        assert!(one.digest.1 > 500, "something happens: {:?}", one.digest);
        if one.digest != other.digest {
            let at = one.tail.lines().zip(other.tail.lines()).find(|(a, b)| a != b);
            panic!(
                "two runs of seed {seed} differ: {:?} and {:?}, in the end of the trace at {at:?}",
                one.digest, other.digest
            );
        }
    }
}

#[test]
fn faulty_simulated_servers_are_detected() {
    for name in SABOTAGES {
        let sabotage = Sabotage::named(name);
        assert!(sabotage.is_some(), "{name}");
        let is_found = |seed: &u64| !sabotaged(*seed, Plan::new(*seed, run::workers(*seed)), sabotage).wrong.is_empty();
        let seed = (1..=SEARCHED).find(is_found);
        eprintln!("{name} is found by seed {seed:?}");
        assert!(seed.is_some(), "{name} is found by none of {SEARCHED} seeds");
    }
}

/// Runs the seed of `TRELLIS_SIMULATE_SEED` and prints its trace.
#[test]
fn a_chosen_seed_ends_with_a_clean_audit() {
    let Some(seed) = number("SEED") else { return };
    let mut plan = Plan::new(seed, run::workers(seed));
    if let Ok(only) = std::env::var("TRELLIS_SIMULATE_ONLY") {
        let kept: Vec<usize> = only.split(',').filter_map(|at| at.trim().parse().ok()).collect();
        let mut at = 0..;
        plan.faults.retain(|_| kept.contains(&at.next().unwrap_or(usize::MAX)));
    }
    let outcome = simulate(seed, plan);
    eprintln!("{}\n{:#?}\n{:?}\n{:?}", outcome.tail, outcome.plan, outcome.fault_counts, outcome.done);
    assert!(outcome.wrong.is_empty(), "seed {seed}: {:#?}", outcome.wrong);
}

/// Sums over the runs of many seeds.
#[derive(Default)]
struct Sum {
    seeds: u64,
    seconds: f64,
    /// How often each kind of fault has affected something, and in how many seeds.
    fault_counts: BTreeMap<&'static str, (u64, u64)>,
    done: BTreeMap<&'static str, u64>,
    failed: Vec<u64>,
}

impl Sum {
    /// Formats the real time since `begin` and the seeds per second.
    fn so_far(&self, begin: Instant) -> String {
        let real = begin.elapsed().as_secs_f64();
        let each = real / f64::from(u32::try_from(self.seeds.max(1)).unwrap());
        format!("{real:.0} s, {:.1} per second", 1.0 / each)
    }

    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.seeds += 1;
        self.seconds += outcome.simulated.as_secs_f64();
        for (what, n) in &outcome.fault_counts {
            let (times, seeds) = self.fault_counts.entry(what).or_default();
            (*times, *seeds) = (*times + n, *seeds + 1);
        }
        for (what, n) in &outcome.done {
            *self.done.entry(what).or_default() += n;
        }
        if !outcome.wrong.is_empty() {
            self.failed.push(seed);
        }
    }
}

/// Many seeds, for `tests/simulate.sh`.
#[test]
fn many_seeds_end_with_a_clean_audit() {
    let Some(seeds) = number("SEEDS") else { return };
    let (from, jobs) = (number("FROM").unwrap_or(1), number("JOBS").unwrap_or(1));
    let most = number("STOP_AFTER").unwrap_or(5);
    let sabotage = std::env::var("TRELLIS_SIMULATE_SABOTAGE").ok();
    let sabotage =
        sabotage.map(|name| Sabotage::named(&name).unwrap_or_else(|| panic!("there is no sabotage `{name}`")));
    let (next, stop, begin) = (AtomicU64::new(from), AtomicBool::new(false), Instant::now());
    let sum = Mutex::new(Sum::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds {
                return;
            }
            let outcome = sabotaged(seed, Plan::new(seed, run::workers(seed)), sabotage);
            if !outcome.wrong.is_empty() {
                eprintln!("{}", failing(seed, &outcome));
            }
            let mut sum = sum.lock().unwrap();
            sum.add(seed, &outcome);
            if sum.failed.len() as u64 >= most {
                stop.store(true, Ordering::Relaxed);
            }
            if sum.seeds.is_multiple_of(200) {
                let (so_far, failed) = (sum.so_far(begin), sum.failed.len());
                eprintln!("{} of {seeds} seeds, {so_far}, {failed} failed", sum.seeds);
            }
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    let sum = sum.into_inner().unwrap();
    let hours = sum.seconds / 3600.0;
    println!("{} seeds from {from}, {}, {hours:.1} h simulated", sum.seeds, sum.so_far(begin));
    for (what, (times, in_seeds)) in &sum.fault_counts {
        println!("  hit {what}: {times} times in {in_seeds} seeds");
    }
    for (what, n) in &sum.done {
        println!("  {what}: {n}");
    }
    assert!(sum.failed.is_empty(), "{} seeds failed: {:?}", sum.failed.len(), sum.failed);
}
