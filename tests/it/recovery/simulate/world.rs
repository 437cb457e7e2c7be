//! What all parts of one simulation share: its time, its faults and its trace; and the links between processes and
//! servers, on which messages are late or lost.

use super::plan::{FaultKind, Plan, Server};
use crate::support::dice::Dice;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use trellis::domain::time::Millis;

/// Time by the clock at which simulations begin: 2026-03-28 12:00 UTC, a Saturday.
pub const START: Millis = Millis(1_774_699_200_000);
/// Number of the last lines of the trace that are kept.
const TRACE_LINES: usize = 20_000;
/// Longest time after which a sender notices that a message or its answer was lost, in milliseconds.
const TIMEOUT: u64 = 1_500;
/// Longest time that a message takes where nothing slows it down, in microseconds.
const LATENCY: u64 = 3_000;

/// A bug that a server has on purpose: the simulation must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The store accepts commits of a holder whose lease another has taken.
    NoFence,
    /// The store drops the first outbox message of each commit.
    DropOutbox,
    /// The store grants leases without the replies that were recorded.
    ForgetReply,
    /// The store admits an event again that it admitted before.
    AdmitAgain,
    /// The store keeps no marks of answers that sessions may not have received, as builds before those marks.
    DropMarks,
    /// The queue loses one in so many messages to agents that it has accepted.
    LoseMessages(u64),
    /// The queue loses one in so many completions.
    LoseCompletions(u64),
}

impl Sabotage {
    /// Finds a sabotage by its name in the environment, e.g. `NoFence` or `LoseMessages`.
    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::NoFence,
            Self::DropOutbox,
            Self::ForgetReply,
            Self::AdmitAgain,
            Self::DropMarks,
            Self::LoseMessages(30),
            Self::LoseCompletions(30),
        ];
        all.into_iter().find(|sabotage| format!("{sabotage:?}").split('(').next() == Some(name))
    }
}

/// The state of one simulation.
pub struct World {
    /// Faults and their times.
    pub plan: Plan,
    pub sabotage: Option<Sabotage>,
    begin: Instant,
    /// Whether messages take no time and nothing is random, for conformance suites.
    pub is_instant: bool,
    trace: Mutex<Trace>,
}

/// What happened: a hash of all lines, and the text of the last ones.
#[derive(Default)]
struct Trace {
    hash: DefaultHasher,
    lines: VecDeque<String>,
    count: u64,
    /// How often each kind of fault has affected something, by name.
    fault_counts: BTreeMap<&'static str, u64>,
    /// Violations of the rules, in the order in which they were seen.
    violations: Vec<String>,
}

impl World {
    pub fn new(plan: Plan, sabotage: Option<Sabotage>) -> Arc<Self> {
        Arc::new(Self { plan, sabotage, begin: Instant::now(), is_instant: false, trace: Mutex::default() })
    }

    /// Makes a world without faults, in which messages take no time.
    pub fn instant() -> Arc<Self> {
        let (plan, begin) = (Plan::default(), Instant::now());
        Arc::new(Self { plan, sabotage: None, begin, is_instant: true, trace: Mutex::default() })
    }

    /// Returns the simulated time since the beginning.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Appends a line to the trace, with the time.
    pub fn note(&self, what: impl Display) {
        let line = format!("{:>10.4} {what}", self.now().as_secs_f64());
        let mut trace = self.trace.lock().unwrap();
        line.hash(&mut trace.hash);
        trace.count += 1;
        if trace.lines.len() == TRACE_LINES {
            trace.lines.pop_front();
        }
        trace.lines.push_back(line);
    }

    /// Counts that a fault of this name has affected something.
    pub fn count_fault(&self, name: &'static str) {
        *self.trace.lock().unwrap().fault_counts.entry(name).or_default() += 1;
    }

    /// Records that something has happened which must not.
    pub fn record_violation(&self, what: String) {
        self.note(format_args!("WRONG: {what}"));
        self.trace.lock().unwrap().violations.push(what);
    }

    pub fn violations(&self) -> Vec<String> {
        self.trace.lock().unwrap().violations.clone()
    }

    /// Returns how often each kind of fault has affected something, by name.
    pub fn fault_counts(&self) -> BTreeMap<&'static str, u64> {
        self.trace.lock().unwrap().fault_counts.clone()
    }

    /// Returns the hash and the number of all lines of the trace, which are the same in every run of one seed.
    pub fn trace_digest(&self) -> (u64, u64) {
        let trace = self.trace.lock().unwrap();
        (trace.hash.finish(), trace.count)
    }

    /// Returns the last `lines` lines of the trace.
    pub fn tail(&self, lines: usize) -> String {
        let trace = self.trace.lock().unwrap();
        let skip = trace.lines.len().saturating_sub(lines);
        trace.lines.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }
}

/// Error: a message or its answer didn't arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// The connections of one process to the servers.
pub struct Link {
    pub world: Arc<World>,
    /// Name of the process in the trace.
    pub name: String,
    /// Number of the worker in the plan; `None` for a process that faults of workers don't reach.
    worker: Option<usize>,
    dead: AtomicBool,
    dice: Mutex<Dice>,
}

impl Link {
    pub fn new(world: &Arc<World>, name: String, worker: Option<usize>, seed: u64) -> Arc<Self> {
        let dead = AtomicBool::new(false);
        Arc::new(Self { world: Arc::clone(world), name, worker, dead, dice: Mutex::new(Dice(seed)) })
    }

    /// Kills the process: from now on nothing that it sends arrives, and nothing reaches it.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Returns a random number below `end`; 0 if `end` is 0.
    pub fn below(&self, end: u64) -> u64 {
        self.dice.lock().unwrap().below(end)
    }

    /// Returns true at random, `percent` times in a hundred.
    pub fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Waits until no standstill stops the process; for ever if it is dead.
    pub async fn wait_until_running(&self) {
        loop {
            if self.is_dead() {
                return std::future::pending().await;
            }
            let now = self.world.now();
            let Some(until) = self.worker.and_then(|worker| self.world.plan.end_of_standstill(worker, now)) else {
                return;
            };
            self.world.count_fault("standstill");
            sleep(until.saturating_sub(now)).await;
        }
    }

    /// Waits while a message is on its way between the process and a server, in either direction.
    pub async fn transmit(&self, server: Server) -> Result<(), Lost> {
        self.wait_until_running().await;
        if self.world.is_instant {
            return Ok(());
        }
        // Longest time of the message, in microseconds.
        let slow = self.world.plan.active(self.world.now()).filter_map(|kind| match kind {
            FaultKind::Slow(millis) => Some(millis * 1_000),
            _ => None,
        });
        let slowest = slow.max().unwrap_or(LATENCY);
        if self.below(2) == 0 || slowest > LATENCY {
            sleep(Duration::from_micros(self.below(slowest))).await;
            self.wait_until_running().await;
        }
        if !self.decide_loss(server) {
            return Ok(());
        }
        sleep(Duration::from_millis(self.below(TIMEOUT))).await;
        self.wait_until_running().await;
        Err(Lost)
    }

    /// Decides whether a message between the process and a server is lost now, and counts the fault that loses it.
    fn decide_loss(&self, server: Server) -> bool {
        for kind in self.world.plan.active(self.world.now()) {
            let name = match kind {
                FaultKind::Cut(worker, of) if Some(worker) == self.worker && of == server => "cut",
                FaultKind::Away(of) if of == server => "away",
                FaultKind::Lossy(of, percent) if of == server && self.percent(percent) => "lost",
                _ => continue,
            };
            self.world.count_fault(name);
            return true;
        }
        false
    }
}
