//! The processes of a simulation: workers that die, stand still, stop and begin anew, each with its link and clock.

use super::bus::FarQueue;
use super::model::{FarModel, Provider};
use super::plan::{FaultKind, Plan, PlannedFault};
use super::queue::Queue;
use super::store::{FarStore, ServerStore};
use super::world::{Link, START, Sabotage, World};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use trellis::bus::Bus;
use trellis::domain::cap::SpendSettings;
use trellis::domain::ids::Owner;
use trellis::domain::quota::QuotaSettings;
use trellis::domain::retention::RetentionRules;
use trellis::domain::time::Millis;
use trellis::model::rules::ScriptRules;
use trellis::model::scripted::Script;
use trellis::process::clock::Clock;
use trellis::process::pace::Pace;
use trellis::process::retry::RetryPolicy;
use trellis::process::shutdown::Shutdown;
use trellis::process::telemetry::Metrics;
use trellis::process::tracer::Tracer;
use trellis::store::Store;
use trellis::store::ack_log::AckLogStore;
use trellis::store::patient::PatientStore;
use trellis::venue::Venue;
use trellis::venue::auth::Auth;
use trellis::venue::context::PromptCache;
use trellis::venue::history::History;
use trellis::venue::rates::RateSettings;
use trellis::venue::secrets::Vault;
use trellis::venue::upkeep::audit::losses;
use trellis::worker::{self, WorkerOptions};

use super::simulated_agents::RULES;

/// Of its workers.
pub const LEASE: Duration = Duration::from_secs(5);
/// One that is asked to stop has so long.
const GRACE: Duration = Duration::from_secs(4);
/// Waits without chance: what chance there is comes from the seed.
const CONNECT: RetryPolicy = RetryPolicy { jitter: 0, ..RetryPolicy::CONNECT };

/// Everything of one simulation.
pub struct Fleet {
    pub seed: u64,
    pub world: Arc<World>,
    pub store: Arc<ServerStore>,
    pub queue: Arc<Queue>,
    pub provider: Arc<Provider>,
    pub owner: Owner,
    pub workers: usize,
    /// Its look at everything, which nothing disturbs.
    pub venue: Arc<Venue>,
    /// Processes that were started, of each worker.
    starts: Mutex<Vec<u64>>,
}

/// Makes the venue of one process.
fn venue(store: Arc<dyn Store>, bus: Arc<dyn Bus>, clock: Clock, history: History) -> Venue {
    Venue {
        store,
        bus,
        clock,
        name: "simulated".into(),
        key: b"the key of a simulation".to_vec(),
        catalog: trellis::ops::catalog(true),
        secrets: Vault::default(),
        boundaries: Vec::new(),
        spend: SpendSettings::default(),
        quota: QuotaSettings::default(),
        prompts: PromptCache::default(),
        meters: trellis::venue::rates::Meters::default(),
        local: trellis::venue::local_worker::LocalWorker::default(),
        fleet: trellis::venue::registry::FleetCache::default(),
        history,
        metrics: Arc::new(Metrics::new()),
        tracer: Tracer::default(),
    }
}

impl Fleet {
    /// Nothing runs yet.
    pub fn new(seed: u64, plan: Plan, workers: usize, sabotage: Option<Sabotage>) -> Arc<Self> {
        let world = World::new(plan, sabotage);
        let store = ServerStore::new(&world);
        let queue = Queue::new(&world, Clock::from_timers(START), LEASE, seed ^ 0x0b05);
        let script = Script::from_rules("rules", ScriptRules::parse(RULES).unwrap());
        let provider = Arc::new(Provider { script, calls: Mutex::new(BTreeMap::new()) });
        // A link of another world: no fault affects it, and it takes no time.
        let link = Link::new(&World::instant(), "inspector".into(), None, 0);
        let bus = Arc::new(FarQueue { server: Arc::clone(&queue), link });
        let inner = Arc::clone(&store.inner);
        let venue = Arc::new(venue(inner, bus, Clock::from_timers(START), History::default()));
        let (owner, starts) = ("local/me".parse().unwrap(), Mutex::new(vec![0; workers]));
        Arc::new(Self { seed, world, store, queue, provider, owner, workers, venue, starts })
    }

    /// Makes the queue and the venue of a caller, whose link only faults of servers affect.
    pub fn caller(&self, name: &str, number: u64) -> (FarQueue, Arc<Venue>) {
        let link = Link::new(&self.world, name.to_owned(), None, self.seed ^ (0xca11 + number));
        let bus = FarQueue { server: Arc::clone(&self.queue), link: Arc::clone(&link) };
        // As an HTTP server it remembers what it was told.
        let tail = Arc::new(AckLogStore::new(Arc::new(FarStore { server: Arc::clone(&self.store), link })));
        let history = History::new(Some(Arc::clone(&tail)), None);
        let venue = Arc::new(venue(tail, Arc::new(bus.clone()), Clock::from_timers(self.now()), history));
        if self.world.plan.has(|kind| kind == FaultKind::LostTail) {
            tokio::spawn(losses::watch(Arc::clone(&venue), name.to_owned(), CancellationToken::new()));
        }
        (bus, venue)
    }

    /// The true time.
    pub fn now(&self) -> Millis {
        START.plus(self.world.now())
    }

    /// Starts a process of a worker.
    fn start(&self, worker: usize) -> (Arc<Link>, Shutdown) {
        let number = {
            let mut starts = self.starts.lock().unwrap();
            starts[worker] += 1;
            starts[worker]
        };
        let name = format!("w{worker}.{number}");
        let seed = self.seed ^ (worker as u64 * 1_000 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let link = Link::new(&self.world, name.clone(), Some(worker), seed);
        self.world.note(format_args!("{name} starts"));
        let far = Arc::new(FarStore { server: Arc::clone(&self.store), link: Arc::clone(&link) });
        let tail = Arc::new(AckLogStore::new(far));
        let policy = RetryPolicy { max: Duration::from_secs(1), total: Some(LEASE), ..CONNECT };
        let store = Arc::new(PatientStore::new(Arc::clone(&tail) as Arc<dyn Store>, policy));
        let bus = Arc::new(FarQueue { server: Arc::clone(&self.queue), link: Arc::clone(&link) });
        let skew = self.world.plan.skew(worker);
        let clock = Clock::from_timers(Millis(self.now().0.saturating_add_signed(skew)));
        let history = History::new(Some(tail), None);
        let venue = Arc::new(venue(store, bus, clock, history));
        let shutdown = Shutdown::new(Arc::clone(&venue.metrics));
        let provider = Arc::clone(&self.provider);
        let model = Arc::new(FarModel { provider, store: Arc::clone(&self.store), link: Arc::clone(&link) });
        let options = self.options(name.clone());
        let work = worker::run(Arc::clone(&venue), model, options, shutdown.clone());
        shutdown.spawn_service("worker", work);
        shutdown.spawn_service("tail", losses::watch(venue, name, shutdown.end_token().clone()));
        (link, shutdown)
    }

    fn options(&self, name: String) -> WorkerOptions {
        // What is lost is put back by the auditor. Where nothing can be, it must not hide what is lost all the same.
        let audits = self.world.plan.has(|kind| kind == FaultKind::LostTail);
        WorkerOptions {
            rates: RateSettings::default(),
            auth: Arc::<Auth>::default(),
            name,
            slots: 4,
            operations: 2,
            lease: LEASE,
            sweep: Duration::from_secs(1),
            crash_limit: 5,
            owner_cap: 0,
            owner_share: 75,
            clock_limit: Duration::from_secs(5),
            approval_time: Duration::from_mins(10),
            turns_per_origin: 1_000,
            audit: if audits { Duration::from_secs(5) } else { Duration::from_hours(1_000) },
            upkeep: Pace::default(),
            retry: RetryPolicy {
                first: Duration::from_millis(500),
                max: Duration::from_secs(4),
                total: Some(Duration::from_hours(1)),
                jitter: 0,
            },
            retention: RetentionRules::NEVER,
        }
    }

    /// The lives of one worker, until the simulation ends.
    pub async fn live(self: Arc<Self>, worker: usize) {
        let ends = |kind| kind == FaultKind::Kill(worker) || kind == FaultKind::Stop(worker);
        let faults: Vec<PlannedFault> =
            self.world.plan.faults.iter().copied().filter(|fault| ends(fault.kind)).collect();
        let mut process = self.start(worker);
        for fault in faults {
            sleep(fault.at.saturating_sub(self.world.now())).await;
            let (link, shutdown) = &process;
            if matches!(fault.kind, FaultKind::Stop(_)) {
                self.world.count_fault("stop");
                self.world.note(format_args!("{} is asked to stop", link.name));
                shutdown.trigger();
                shutdown.run(GRACE).await;
            } else {
                self.world.count_fault("kill");
                self.world.note(format_args!("{} is killed", link.name));
            }
            link.kill();
            sleep(fault.until().saturating_sub(self.world.now())).await;
            process = self.start(worker);
        }
        std::future::pending::<()>().await;
    }

    /// Sets the store back, as often as planned.
    pub async fn lose_tails(self: Arc<Self>) {
        let faults = self.world.plan.faults.clone();
        for fault in faults.into_iter().filter(|fault| fault.kind == FaultKind::LostTail) {
            sleep(fault.at.saturating_sub(self.world.now())).await;
            let kept = self.store.keep();
            sleep(fault.until().saturating_sub(self.world.now())).await;
            self.world.count_fault("lost tail");
            self.world.note("the store is set back");
            self.store.set_back(&kept);
        }
    }
}
