//! The worker: takes one event from its delivery to the messages that its turn publishes, as the core decides.
//!
//! ```text
//! arrive ─▶ lease ─▶ session ─▶ turn: context ─▶ model ─▶ (record) ─▶ tools ─▶ commit ─▶ outbox
//! invoked ─▶ operations that callers have invoked, beside turns
//! rounds  ─▶ periodic tasks: clock comparison, sweep, timers, audit, clean-up, registry of workers
//! ```
//!
//! The modules stand in that order, and each uses only those after it; exceptions are the lease and the caches.

mod intake;
mod lease;
mod session;
mod turn;
mod context;
mod model;
mod tools;
mod commit;
mod outbox;

mod operations;
mod rounds;

mod turn_base;
mod holds;
mod live_text;
pub mod stage;

use crate::domain::retention::RetentionRules;
use crate::domain::shard::Share;
use crate::model::Model;
use crate::process::pace::Pace;
use crate::process::retry::RetryPolicy;
use crate::process::shutdown::Shutdown;
use crate::store::LeaseRequest;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::census::OwnerCensus;
use crate::venue::local_worker::DirectWorker;
use crate::venue::rates::RateSettings;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed read of the queue.
const RECEIVE_PAUSE: Duration = Duration::from_millis(500);

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Name of the worker in leases and logs.
    pub name: String,
    /// Sessions that run at once.
    pub slots: usize,
    /// Operations invoked by callers that run at once, beside the sessions.
    pub operations: usize,
    /// Lifetime of a lease without renewal.
    pub lease: Duration,
    /// Pause between two sweeps.
    pub sweep: Duration,
    /// Workers that an event may kill before it is dead-lettered.
    pub crash_limit: u32,
    /// Sessions of one owner that the fleet runs at once; 0 = any number.
    pub owner_cap: u32,
    /// Percent of the slots that one owner may hold here while the venue has other owners.
    pub owner_share: u32,
    /// Lifetime of an approval, and of a question without a time of its own.
    pub approval_time: Duration,
    /// Turns that one request may cause in an hour; 0 = any number.
    pub turns_per_origin: u32,
    /// Pause between two audits (searches for lost changes).
    pub audit: Duration,
    /// Share of its time that each audit and each clean-up takes at most.
    pub upkeep: Pace,
    /// Backoff and total time of calls to a provider that is unavailable.
    pub retry: RetryPolicy,
    /// Rate limits of model providers.
    pub rates: RateSettings,
    /// Verification of the senders of submissions.
    pub auth: Arc<Auth>,
    /// Retention of jobs, turns and sessions.
    pub retention: RetentionRules,
    /// Distance to the store's clock beyond which this worker starts nothing.
    pub clock_limit: Duration,
}

/// State of a running worker.
pub(crate) struct Worker {
    pub(crate) venue: Arc<Venue>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) options: WorkerOptions,
    pub(crate) shutdown: Shutdown,
    /// Tasks that are being served here: a cancellation stops them through this table.
    tasks: lease::control::TaskRegistry,
    /// Cache of agents and policies.
    record_cache: lease::record_cache::RecordCache,
    /// Cache of sessions that were served here.
    session_cache: lease::session_cache::SessionCache,
    /// Cache of prompt records.
    prompt_records: context::prompt_records::PromptRecordCache,
    /// Cache of the accounts that model calls are charged to.
    payments: model::Payments,
    /// Counts of the turns that one request causes.
    origin_counts: model::OriginCounts,
    /// Queue of messages that commits decided and that are not published yet.
    relay: outbox::Relay,
    /// Owners among whom slots and operations are shared.
    census: Arc<OwnerCensus>,
    /// Slots of this worker, and the sessions that wait for one.
    slots: Arc<intake::slots::SlotTable>,
    /// Slots for operations.
    operation_slots: operations::OperationSlots,
    /// Sessions whose last runs ended with a store error.
    store_failures: lease::outage::StoreFailures,
    /// The one slot for events that may have killed workers.
    quarantine: lease::quarantine::Quarantine,
    /// Result of [`Worker::share`], set by each sweep.
    share: parking_lot::Mutex<Option<Share>>,
}

impl Worker {
    /// Returns the shards whose owners this worker looks after; `None` before its first sweep.
    pub(crate) fn share(&self) -> Option<Share> {
        self.share.lock().clone()
    }

    /// Whether it may start anything: it isn't stopping, and its clock is right.
    pub(crate) fn takes_work(&self) -> bool {
        !self.shutdown.stop_token().is_cancelled() && !self.venue.clock.is_wrong()
    }

    /// Starts a periodic task that ends with the worker.
    pub(crate) fn spawn_rounds<F>(self: &Arc<Self>, name: &'static str, run: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = Arc::clone(self);
        self.shutdown.spawn_rounds(name, move || run(Arc::clone(&worker)));
    }

    /// Returns a lease request for one delivery; its token lets the store's own retries find the same grant.
    pub(crate) fn lease_request(&self) -> LeaseRequest {
        LeaseRequest {
            token: uuid::Uuid::new_v4().simple().to_string(),
            worker: self.options.name.clone(),
            ttl: self.options.lease,
            mailbox_limit: crate::domain::limits::GRANT_EVENTS,
            crash_limit: self.options.crash_limit,
            owner_cap: self.options.owner_cap,
        }
    }
}

/// Starts the tasks that run beside the sessions.
fn start_rounds(worker: &Arc<Worker>, pending: outbox::OutboundQueue) {
    worker.shutdown.spawn_service("relay", outbox::run(Arc::clone(worker), pending));
    worker.spawn_rounds("clocks", rounds::clocks::run);
    worker.spawn_rounds("sweep", rounds::sweep::run);
    worker.spawn_rounds("alarms", rounds::alarms::run);
    worker.spawn_rounds("waiting operations", operations::start_waiting);
    worker.spawn_rounds("auditor", rounds::auditor::run);
    worker.spawn_rounds("tidy", rounds::retention::run);
    worker.spawn_rounds("roll", rounds::registration::run);
    worker.spawn_rounds("control", lease::control::run);
    worker.spawn_rounds("questions", intake::questions::run);
}

/// Takes events until the shutdown says stop; running turns are left to the stages of the shutdown.
pub async fn run(venue: Arc<Venue>, model: Arc<dyn Model>, options: WorkerOptions, shutdown: Shutdown) {
    let (relay, pending) = outbox::Relay::new();
    let census = Arc::new(OwnerCensus::default());
    let seats = intake::slots::SlotTable::new(options.slots, options.owner_share, Arc::clone(&census), &venue.clock);
    let places =
        operations::OperationSlots::new(options.operations, options.owner_share, Arc::clone(&census), &venue.clock);
    let worker = Arc::new(Worker {
        venue,
        model,
        options,
        shutdown: shutdown.clone(),
        tasks: lease::control::TaskRegistry::default(),
        record_cache: lease::record_cache::RecordCache::default(),
        session_cache: lease::session_cache::SessionCache::default(),
        prompt_records: context::prompt_records::PromptRecordCache::default(),
        payments: model::Payments::default(),
        origin_counts: model::OriginCounts::default(),
        relay,
        census,
        slots: seats,
        operation_slots: places,
        store_failures: lease::outage::StoreFailures::default(),
        quarantine: lease::quarantine::Quarantine::default(),
        share: parking_lot::Mutex::default(),
    });
    rounds::clocks::start(&worker).await;
    // Before the first delivery: a session that finds no slot because owners aren't known yet waits for a sweep.
    if let Err(error) = worker.census.refresh(&worker.venue).await {
        tracing::debug!(%error, "among whom slots are shared isn't known yet; the sweep asks again");
    }
    let direct: Arc<dyn DirectWorker> = Arc::new(intake::direct::DirectAdmission(Arc::clone(&worker)));
    worker.venue.local.register(&worker.options.name, &direct);
    start_rounds(&worker, pending);
    intake::receive::run(&worker).await;
}
