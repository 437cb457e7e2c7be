//! What all parts of one simulation share: its time, its troubles and its trace; and the ways between processes and
//! servers, on which messages are late or lost.

use super::plan::{Plan, Server, What};
use crate::support::dice::Dice;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use trellis::domain::time::Millis;

/// When simulations begin: a Saturday noon in UTC.
pub const START: Millis = Millis(1_774_699_200_000);
/// Lines of the trace that are kept to be shown.
const SHOWN: usize = 20_000;
/// A caller notices that it is cut off after so long at most.
const TIMEOUT: u64 = 1_500;

/// What a server does wrong on purpose, so that it is seen that it would be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The store lets a holder commit whose lease another has.
    NoFence,
    /// The store forgets the first message that a commit decided.
    DropOutbox,
    /// The store keeps recorded replies to itself.
    ForgetReply,
    /// The store takes what was admitted before for new.
    AdmitAgain,
    /// The store keeps no marks of answers that nobody may have heard of, as before there were any.
    DropMarks,
    /// The queue loses one in so many of the messages to agents that it has accepted.
    LoseMessages(u64),
    /// The queue loses one in so many completions.
    LoseCompletions(u64),
}

impl Sabotage {
    /// By its name in the environment, e.g. `NoFence` or `LoseMessages`.
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

/// One simulation.
pub struct World {
    pub plan: Plan,
    pub sabotage: Option<Sabotage>,
    begin: Instant,
    /// Ways take no time, and nothing is by chance: under a conformance suite.
    pub still: bool,
    trace: Mutex<Trace>,
}

/// Everything that happened, as a number; the end of it as text.
#[derive(Default)]
struct Trace {
    hash: DefaultHasher,
    lines: VecDeque<String>,
    count: u64,
    /// How often troubles really hit something, by name.
    hits: BTreeMap<&'static str, u64>,
    /// What must not be, as it is seen.
    wrong: Vec<String>,
}

impl World {
    pub fn new(plan: Plan, sabotage: Option<Sabotage>) -> Arc<Self> {
        Arc::new(Self { plan, sabotage, begin: Instant::now(), still: false, trace: Mutex::default() })
    }

    /// One in which nothing takes time.
    pub fn still() -> Arc<Self> {
        let (plan, begin) = (Plan::default(), Instant::now());
        Arc::new(Self { plan, sabotage: None, begin, still: true, trace: Mutex::default() })
    }

    /// Simulated time since the beginning.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Something has happened.
    pub fn note(&self, what: impl Display) {
        let line = format!("{:>10.4} {what}", self.now().as_secs_f64());
        let mut trace = self.trace.lock().unwrap();
        line.hash(&mut trace.hash);
        trace.count += 1;
        if trace.lines.len() == SHOWN {
            trace.lines.pop_front();
        }
        trace.lines.push_back(line);
    }

    /// A trouble has hit something.
    pub fn hit(&self, what: &'static str) {
        *self.trace.lock().unwrap().hits.entry(what).or_default() += 1;
    }

    /// Something has happened that must not.
    pub fn wrong(&self, what: String) {
        self.note(format_args!("WRONG: {what}"));
        self.trace.lock().unwrap().wrong.push(what);
    }

    pub fn wrongs(&self) -> Vec<String> {
        self.trace.lock().unwrap().wrong.clone()
    }

    pub fn hits(&self) -> BTreeMap<&'static str, u64> {
        self.trace.lock().unwrap().hits.clone()
    }

    /// The same for the same seed.
    pub fn mark(&self) -> (u64, u64) {
        let trace = self.trace.lock().unwrap();
        (trace.hash.finish(), trace.count)
    }

    /// The last `lines` of the trace.
    pub fn tail(&self, lines: usize) -> String {
        let trace = self.trace.lock().unwrap();
        let skip = trace.lines.len().saturating_sub(lines);
        trace.lines.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }
}

/// A message didn't arrive, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// The ways of one process.
pub struct Link {
    pub world: Arc<World>,
    pub name: String,
    worker: Option<usize>,
    dead: AtomicBool,
    dice: Mutex<Dice>,
}

impl Link {
    pub fn new(world: &Arc<World>, name: String, worker: Option<usize>, seed: u64) -> Arc<Self> {
        let dead = AtomicBool::new(false);
        Arc::new(Self { world: Arc::clone(world), name, worker, dead, dice: Mutex::new(Dice(seed)) })
    }

    /// The process is gone: whatever it does from now on reaches nobody, and nothing reaches it.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub fn below(&self, end: u64) -> u64 {
        self.dice.lock().unwrap().below(end)
    }

    /// Whether a chance of so many in a hundred comes true.
    pub fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Goes on when the process does: never in a dead one, later in one that stands still.
    pub async fn lives(&self) {
        loop {
            if self.is_dead() {
                return std::future::pending().await;
            }
            let now = self.world.now();
            let Some(until) = self.worker.and_then(|worker| self.world.plan.standstill(worker, now)) else { return };
            self.world.hit("standstill");
            sleep(until.saturating_sub(now)).await;
        }
    }

    /// One way between the process and a server, in either direction.
    pub async fn way(&self, server: Server) -> Result<(), Lost> {
        self.lives().await;
        if self.world.still {
            return Ok(());
        }
        let slow = self.world.plan.now(self.world.now()).filter_map(|what| match what {
            What::Slow(millis) => Some(millis * 1_000),
            _ => None,
        });
        let slowest = slow.max().unwrap_or(3_000);
        if self.below(2) == 0 || slowest > 3_000 {
            sleep(Duration::from_micros(self.below(slowest))).await;
            self.lives().await;
        }
        if !self.is_lost(server) {
            return Ok(());
        }
        sleep(Duration::from_millis(self.below(TIMEOUT))).await;
        self.lives().await;
        Err(Lost)
    }

    /// Whether what is on its way now is lost.
    fn is_lost(&self, server: Server) -> bool {
        for what in self.world.plan.now(self.world.now()) {
            let hit = match what {
                What::Cut(worker, of) if Some(worker) == self.worker && of == server => "cut",
                What::Away(of) if of == server => "away",
                What::Lossy(of, percent) if of == server && self.percent(percent) => "lost",
                _ => continue,
            };
            self.world.hit(hit);
            return true;
        }
        false
    }
}
