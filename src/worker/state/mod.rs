//! State of a running worker, which its stages share. Each part is a type that doesn't use [`Worker`]. A function that
//! takes the whole worker belongs to the stage that calls it; the methods here need only the fields.

pub(crate) mod accounts;
pub(crate) mod cache;
pub(crate) mod due_ages;
pub(crate) mod operation_slots;
pub(crate) mod origin_counts;
pub(crate) mod outages;
pub(crate) mod quarantine;
pub(crate) mod relay;
pub(crate) mod slots;
pub(crate) mod tasks;

mod holds;

use crate::domain::limits::GRANT_EVENTS;
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
use crate::venue::rates::RateSettings;
use accounts::Payments;
use cache::prompt_records::PromptRecordCache;
use cache::records::RecordCache;
use cache::sessions::SessionCache;
use due_ages::DueAges;
use operation_slots::OperationSlots;
use origin_counts::OriginCounts;
use outages::StoreFailures;
use parking_lot::Mutex;
use quarantine::Quarantine;
use relay::{OutboundQueue, Relay};
use slots::SlotTable;
use std::sync::Arc;
use std::time::Duration;
use tasks::TaskRegistry;

/// Pause after a failed read of the queue.
pub(crate) const RECEIVE_PAUSE: Duration = Duration::from_millis(500);

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
    pub(crate) tasks: TaskRegistry,
    /// Cache of agents and policies.
    pub(crate) record_cache: RecordCache,
    /// Cache of sessions that were served here.
    pub(crate) session_cache: SessionCache,
    /// Cache of prompt records.
    pub(crate) prompt_records: PromptRecordCache,
    /// Payments of model calls from their accounts.
    pub(crate) payments: Payments,
    /// Counts of the turns that one request causes.
    pub(crate) origin_counts: OriginCounts,
    /// Queue of messages that commits decided and that are not published yet.
    pub(crate) relay: Relay,
    /// Owners among whom slots and operations are shared.
    pub(crate) census: Arc<OwnerCensus>,
    /// Slots of this worker, and the sessions that wait for one.
    pub(crate) slots: Arc<SlotTable>,
    /// Waits of the due sessions that sweeps named.
    pub(crate) due_ages: DueAges,
    /// Slots for operations.
    pub(crate) operation_slots: OperationSlots,
    /// Sessions whose last runs ended with a store error.
    pub(crate) store_failures: StoreFailures,
    /// The one slot for events that may have killed workers.
    pub(crate) quarantine: Quarantine,
    /// Result of [`Worker::share`], set by each sweep.
    share: Mutex<Option<Share>>,
}

impl Worker {
    /// Makes the state of a worker that has done nothing yet, and the end of its relay from which messages are
    /// published.
    pub(crate) fn new(
        venue: Arc<Venue>,
        model: Arc<dyn Model>,
        options: WorkerOptions,
        shutdown: Shutdown,
    ) -> (Self, OutboundQueue) {
        let (relay, pending) = Relay::new();
        let census = Arc::new(OwnerCensus::default());
        let slots = SlotTable::new(options.slots, options.owner_share, Arc::clone(&census), &venue.clock);
        let operation_slots =
            OperationSlots::new(options.operations, options.owner_share, Arc::clone(&census), &venue.clock);
        let worker = Self {
            venue,
            model,
            options,
            shutdown,
            tasks: TaskRegistry::default(),
            record_cache: RecordCache::default(),
            session_cache: SessionCache::default(),
            prompt_records: PromptRecordCache::default(),
            payments: Payments::default(),
            origin_counts: OriginCounts::default(),
            relay,
            census,
            slots,
            due_ages: DueAges::default(),
            operation_slots,
            store_failures: StoreFailures::default(),
            quarantine: Quarantine::default(),
            share: Mutex::default(),
        };
        (worker, pending)
    }

    /// Returns the shards whose owners this worker looks after; `None` before its first sweep.
    pub(crate) fn share(&self) -> Option<Share> {
        self.share.lock().clone()
    }

    /// Sets the shards whose owners this worker looks after.
    pub(crate) fn set_share(&self, share: Share) {
        *self.share.lock() = Some(share);
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
            mailbox_limit: GRANT_EVENTS,
            crash_limit: self.options.crash_limit,
            owner_cap: self.options.owner_cap,
        }
    }
}
