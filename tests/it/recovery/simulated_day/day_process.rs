//! One process of the day: a worker over a store that can fail, and the doors that callers use.

use crate::support::venue::TestVenue;
use crate::support::venue::all_jobs;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::message::BusMessage;
use trellis::domain::timer::Timer;
use trellis::process::clock::Clock;
use trellis::process::retry::RetryPolicy;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::faulty::{FaultPlan, FaultyStore};
use trellis::venue::timers;

use super::simulated_agents::RULES;

/// Pause of a worker between two sweeps, and so the least step of the clock.
pub const SWEEP: Duration = Duration::from_secs(1);
/// Longer than any step: a running turn keeps its lease, since the day can't renew it.
const LEASE: Duration = Duration::from_mins(5);
/// Real time after which the clock goes on although something still runs.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for what only a sweep can move.
const LEFT_OVER: Duration = Duration::from_millis(30);
/// Steps after which a due timer must have fired.
const RETRIES: u32 = 40;

/// A process.
pub struct Life {
    /// With its worker, over a store that fails as planned.
    worker: TestVenue,
    faulty: Arc<FaultyStore>,
    /// What callers see: the same store, which never fails them.
    pub door: TestVenue,
    pub bus: EmbeddedBus,
    outbound: Mutex<BoxStream<'static, Bytes>>,
}

impl Life {
    /// Opens the folder; nothing works in it yet.
    pub async fn open(dir: &Path, clock: &Clock) -> Self {
        let store = EmbeddedStore::open(dir).unwrap();
        let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), clock.clone()).unwrap();
        let outbound = Mutex::new(bus.listen_outbound());
        let door = TestVenue::at(store.clone(), Arc::new(bus.clone()), dir, RULES, clock.clone()).await;
        let faulty = FaultyStore::new(store, FaultPlan::Never);
        let mut worker = TestVenue::at(faulty.clone(), Arc::new(bus.clone()), dir, RULES, clock.clone()).await;
        (worker.lease, worker.sweep) = (LEASE, SWEEP);
        let total = Some(Duration::from_mins(30));
        worker.retry =
            RetryPolicy { first: Duration::from_secs(2), max: Duration::from_mins(1), total, ..RetryPolicy::CONNECT };
        Self { worker, faulty, door, bus, outbound }
    }

    /// Completions that were told and not heard yet; also of a process that is dead.
    pub fn told(&self) -> Vec<BusMessage> {
        let mut outbound = self.outbound.lock().unwrap();
        let next = || outbound.next().now_or_never().flatten();
        std::iter::from_fn(next).map(|message| serde_json::from_slice(&message).unwrap()).collect()
    }

    /// The worker begins.
    pub fn begin(&self) {
        self.worker.worker();
    }

    /// The store fails as planned from now on.
    pub fn plan(&self, plan: FaultPlan) {
        self.faulty.set_plan(plan);
    }

    /// The store has failed on purpose, and says so until the next plan.
    pub fn has_failed(&self) -> bool {
        !self.faulty.injected_faults().is_empty()
    }

    /// Moves the clock, and waits until the worker has looked at what is due, and done it. `false`: the
    /// store of a process that is to die has failed.
    pub async fn step(&self, by: Duration, mortal: bool) -> bool {
        let sweeps = || self.worker.venue.metrics.sweeps.get();
        let (before, start) = (sweeps(), Instant::now());
        self.door.venue.clock.advance(by);
        while sweeps() == before && start.elapsed() < PATIENCE && !(mortal && self.has_failed()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.quiet(mortal).await
    }

    /// Waits until nothing runs at this moment of the clock.
    pub async fn quiet(&self, mortal: bool) -> bool {
        let (start, mut calm) = (Instant::now(), 0);
        while calm < 2 && start.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if mortal && self.has_failed() {
                return false;
            }
            let rests = self.worker.shutdown.turns() == 0 && (start.elapsed() > LEFT_OVER || self.outbox().await == 0);
            calm = if rests { calm + 1 } else { 0 };
        }
        true
    }

    async fn outbox(&self) -> usize {
        self.door.venue.store.outbox(&self.door.owner).await.unwrap().len()
    }

    /// All timers that are kept.
    pub async fn timers(&self) -> Vec<Timer> {
        timers::list(&self.door.venue, &self.door.owner, None, true, 0, 1_000).await.unwrap().items
    }

    /// Events that have a job.
    pub async fn events(&self) -> BTreeSet<String> {
        let jobs = all_jobs(&self.door.venue, &self.door.owner).await;
        jobs.into_iter().map(|job| job.head.event.to_string()).collect()
    }

    /// Waits until every timer has fired what is due; the clock goes on by a little as long as one
    /// hasn't. `None`: the process died over it.
    pub async fn settled(&self, mortal: bool) -> Option<Vec<Timer>> {
        for _ in 0..RETRIES {
            let (timers, now) = (self.timers().await, self.door.venue.now());
            if timers.iter().all(|timer| !timer.is_active() || timer.due > now) {
                return Some(timers);
            }
            if !self.step(SWEEP, mortal).await {
                return None;
            }
        }
        panic!("timers don't fire: {:?}", self.timers().await);
    }

    /// Ends like a process that is asked to.
    pub async fn stop(&self) {
        self.worker.shutdown.trigger();
        self.worker.shutdown.run(Duration::from_secs(2)).await;
    }
}
