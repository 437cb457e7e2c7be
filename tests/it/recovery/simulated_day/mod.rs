//! 24 hours of timers, failures and restarts under a manual clock, in seconds: at their end the books
//! close, and every timer has fired as often as its schedule says.
//!
//! `TRELLIS_DAY_SEED` and `TRELLIS_DAY_HOURS` make it another day, or a longer one; `TRELLIS_DAY_SEEDS`
//! is how many days with seeds one after the other.

mod calendar;
mod check;
mod day_process;
mod simulated_agents;
mod day_timers;
mod traffic;

use crate::support::dice::Dice;
use calendar::Calendar;
use day_process::{Life, SWEEP};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use traffic::Traffic;
use trellis::domain::message::BusMessage;
use trellis::domain::time::Millis;
use trellis::process::clock::Clock;
use trellis::store::faulty::{FaultAt, FaultPlan};

/// A Saturday noon in UTC; in the night after it Berlin leaves out the hour after two.
const START: Millis = Millis(1_774_699_200_000);
/// When that hour would have begun.
const GAP: Millis = Millis(1_774_746_000_000);

/// Longest step of the clock.
const STEP: Duration = Duration::from_mins(5);
/// After the day nothing new happens, and what waits has come to its end after so long.
const REST: Duration = Duration::from_hours(30);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(format!("TRELLIS_DAY_{name}")).map_or(default, |text| text.parse().expect("a number"))
}

/// What outlives processes.
struct Day {
    clock: Clock,
    dice: Dice,
    end: Millis,
    calendar: Calendar,
    traffic: Traffic,
    /// Completions that were told.
    told: Vec<BusMessage>,
    /// When the last process died.
    died: Millis,
    restarts: u64,
    deaths: u64,
    steps: u64,
}

/// How a process ends.
#[derive(Clone, Copy)]
enum Death {
    /// Asked to.
    Asked,
    /// At any moment.
    Sudden,
    /// At a call of its store.
    AtStore,
}

impl Day {
    fn new(seed: u64, hours: u64) -> Self {
        Self {
            clock: Clock::manual(START),
            dice: Dice(seed),
            end: START.plus(Duration::from_hours(hours)),
            calendar: Calendar::default(),
            traffic: Traffic::default(),
            told: Vec::new(),
            died: START,
            restarts: 0,
            deaths: 0,
            steps: 0,
        }
    }

    fn seconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_secs(from + self.dice.below(to - from))
    }

    /// The next moment at which something is to be seen, at most a step away.
    fn next_step(&mut self) -> Duration {
        let now = self.clock.now();
        let timer = self.calendar.next().map_or(STEP, |at| at.elapsed_since(now));
        let least = self.seconds(60, STEP.as_secs());
        timer.min(least).max(SWEEP)
    }

    /// One process from its start to its end.
    async fn life(&mut self, dir: &Path) -> Life {
        let life = Life::open(dir, &self.clock).await;
        self.calendar.reopened(&life.timers().await, &life.events().await, self.died, self.clock.now());
        if self.restarts == 0 {
            prepare(&life).await;
            day_timers::set_all(&life, &mut self.calendar).await;
        }
        life.begin();
        let mut ends = self.clock.now().plus(self.seconds(50 * 60, 110 * 60)).min(self.end);
        let death = *self.dice.pick(&[Death::Asked, Death::Sudden, Death::Sudden, Death::AtStore, Death::AtStore]);
        life.quiet(false).await;
        let mut mortal = false;
        let alive = loop {
            let Some(timers) = life.settled(mortal).await else { break false };
            self.calendar.settled(&timers, self.clock.now());
            self.traffic.resume(&life, self.clock.now()).await;
            if self.clock.now() >= ends {
                if mortal || !matches!(death, Death::AtStore) {
                    break true;
                }
                // It dies within the next minutes, wherever that is.
                (mortal, ends) = (true, ends.plus(Duration::from_mins(20)));
                let at = *self.dice.pick(&[FaultAt::Before, FaultAt::After]);
                life.plan(FaultPlan::From { n: 1 + self.dice.below(25), at });
            }
            let things = self.dice.below(4).saturating_sub(if mortal { 0 } else { 2 });
            for _ in 0..things {
                self.traffic.happen(&life, &mut self.dice, mortal).await;
            }
            if self.dice.below(40) == 0 && !mortal {
                day_timers::change(&life, &mut self.calendar, &mut self.dice).await;
            }
            let step = self.next_step();
            self.steps += 1;
            self.told.extend(life.told());
            if !life.step(step, mortal).await {
                break false;
            }
        };
        self.end_life(&life, death, alive).await;
        life
    }

    async fn end_life(&mut self, life: &Life, death: Death, alive: bool) {
        self.deaths += u64::from(!alive);
        match death {
            Death::Asked => life.stop().await,
            Death::AtStore if !alive => {}
            // In the middle of something, if it is quick.
            Death::AtStore | Death::Sudden => {
                for _ in 0..3 {
                    self.traffic.happen(life, &mut self.dice, true).await;
                }
                tokio::time::sleep(Duration::from_millis(self.dice.below(8))).await;
            }
        }
    }

    /// Everything comes to its end: timers are cancelled, agents resumed, and the clock goes on.
    async fn rest(&mut self, dir: &Path) -> Life {
        let life = Life::open(dir, &self.clock).await;
        self.calendar.reopened(&life.timers().await, &life.events().await, self.died, self.clock.now());
        life.begin();
        life.quiet(false).await;
        let timers = life.settled(false).await.unwrap();
        self.calendar.settled(&timers, self.clock.now());
        day_timers::cancel_all(&life, &mut self.calendar).await;
        self.traffic.resume(&life, Millis(u64::MAX)).await;
        let latest = self.clock.now().plus(REST);
        while let Some(moving) = check::moving(&life).await {
            assert!(self.clock.now() < latest, "it never ends: {moving}");
            life.step(STEP, false).await;
            self.told.extend(life.told());
            self.traffic.resume(&life, self.clock.now()).await;
        }
        self.calendar.settled(&life.timers().await, self.clock.now());
        life
    }
}

/// A runtime per process: what is dropped with it stops wherever it is.
fn in_process<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(run);
    drop(runtime);
    outcome
}

async fn prepare(life: &Life) {
    life.door.write("w/prices", json!({"bolts": 3})).await;
    for (id, config) in simulated_agents::agents() {
        life.door.agent(id, config).await;
    }
}

fn live_through(seed: u64, hours: u64) {
    let start = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let mut day = Day::new(seed, hours);
    while day.clock.now() < day.end {
        // Dropped after its runtime: nothing of it runs any more.
        let life = in_process(day.life(dir.path()));
        day.told.extend(life.told());
        drop(life);
        day.restarts += 1;
        day.died = day.clock.now();
        let down = day.seconds(0, 40 * 60);
        if day.dice.below(4) > 0 {
            day.clock.advance(down);
        }
    }
    let report = in_process(async {
        let life = day.rest(dir.path()).await;
        day.told.extend(life.told());
        check::all(&life, &day.traffic, &day.calendar, (&day.told, day.restarts)).await
    });
    eprintln!(
        "a day (seed {seed}): {report}; {} restarts ({} at a call of the store), {} calls of the store failed, \
         {} suspensions, {} steps, simulated {}, real {:.1} s",
        day.restarts,
        day.deaths,
        day.traffic.failures,
        day.traffic.suspensions,
        day.steps,
        humantime::format_duration(day.clock.now().elapsed_since(START)),
        start.elapsed().as_secs_f32(),
    );
}

#[test]
fn a_day_of_timers_failures_and_restarts_ends_with_closed_books() {
    let (seed, days) = (number("SEED", 1), number("SEEDS", 1));
    for seed in seed..seed + days {
        live_through(seed, number("HOURS", 24));
    }
}
