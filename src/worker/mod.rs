//! A worker: the shell that takes one event from its delivery to its messages, as the core decides.
//!
//! ```text
//! arrive ─▶ lease ─▶ session ─▶ turn: context ─▶ model ─▶ (record) ─▶ tools ─▶ commit ─▶ outbox
//! invoked ─▶ operations that callers have invoked, beside turns
//! rounds  ─▶ clocks are compared, the sweep wakes what is due and relays what was left, alarms fire timers, the auditor and the tidy go about
//! ```
//!
//! The modules stand in that order. An event goes down through them; back up only the lease is asked for, and what was
//! read already.

mod arrive;
mod lease;
mod session;
mod turn;
mod context;
mod model;
mod tools;
mod commit;
mod outbox;

mod invoked;
mod rounds;

mod ground;
mod holds;
mod live;
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
use crate::venue::local::DirectWorker;
use crate::venue::rates::Rates;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed look at the queue, before the next.
const RECEIVE_PAUSE: Duration = Duration::from_millis(500);

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Its name in leases and logs.
    pub name: String,
    /// Sessions that it runs at once.
    pub slots: usize,
    /// Operations that callers have invoked and that it runs at once, beside them.
    pub operations: usize,
    /// A lease lasts so long without renewal.
    pub lease: Duration,
    /// Pause between two sweeps.
    pub sweep: Duration,
    /// Workers that an event may kill before it is dead-lettered.
    pub crash_limit: u32,
    /// Sessions of one owner that the fleet runs at once, 0 = any number.
    pub owner_cap: u32,
    /// Percent of the slots that one owner may hold here while the venue has others.
    pub owner_share: u32,
    /// How long a person has for an approval, and for questions that say nothing else.
    pub approval_time: Duration,
    /// Turns that one request causes in an hour, 0 = any number.
    pub turns_per_origin: u32,
    /// Pause between two looks for what is lost.
    pub audit: Duration,
    /// Share of its time that each look for what is lost, or is no longer kept, takes at most.
    pub upkeep: Pace,
    /// Waits and total time for a provider that is unavailable.
    pub retry: RetryPolicy,
    /// What model providers take.
    pub rates: Rates,
    /// How the senders of submissions are recognised.
    pub auth: Arc<Auth>,
    /// How long jobs, turns and sessions are kept.
    pub retention: RetentionRules,
    /// Distance to the store's clock beyond which this worker begins nothing.
    pub clock_limit: Duration,
}

/// A running worker.
pub(crate) struct Worker {
    pub(crate) venue: Arc<Venue>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) options: WorkerOptions,
    pub(crate) shutdown: Shutdown,
    /// Tasks that are being served here: what a cancellation must reach.
    control: lease::control::Control,
    /// Agents and policies as they were read before.
    known: lease::known::Known,
    /// Sessions that were served here.
    memory: lease::memory::Memory,
    /// What is remembered of the records of prompts.
    books: context::books::Books,
    /// Where calls are paid from accounts and books that others are paid from.
    payments: model::Payments,
    /// Where turns that one request causes are counted.
    counts: model::Counts,
    /// Where commits leave what is to be published.
    relay: outbox::Relay,
    /// Among whom slots and operations are shared.
    census: Arc<OwnerCensus>,
    /// Whose sessions run here.
    seats: Arc<arrive::seats::Seats>,
    /// Whose operations run here.
    places: invoked::Places,
    /// Sessions that the store fails again and again.
    failing: lease::outage::Failing,
    /// One place for events that may have killed workers.
    quarantine: lease::quarantine::Quarantine,
    /// See [`Worker::share`], as of its last sweep.
    share: parking_lot::Mutex<Option<Share>>,
}

impl Worker {
    /// The shards whose owners it looks after; before its first sweep no worker knows them.
    pub(crate) fn share(&self) -> Option<Share> {
        self.share.lock().clone()
    }

    /// Whether it may begin anything: it goes on, and its clock is right.
    pub(crate) fn takes_work(&self) -> bool {
        !self.shutdown.stopping().is_cancelled() && !self.venue.clock.is_wrong()
    }

    /// Starts what goes round until the worker ends.
    pub(crate) fn spawn_rounds<F>(self: &Arc<Self>, name: &'static str, run: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let worker = Arc::clone(self);
        self.shutdown.spawn_rounds(name, move || run(Arc::clone(&worker)));
    }

    /// For one delivery: the store's own repetitions of it find the same grant.
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

/// What goes on beside the sessions.
fn start_rounds(worker: &Arc<Worker>, pending: outbox::Pending) {
    worker.shutdown.spawn_service("relay", outbox::run(Arc::clone(worker), pending));
    worker.spawn_rounds("clocks", rounds::clocks::run);
    worker.spawn_rounds("sweep", rounds::sweep::run);
    worker.spawn_rounds("alarms", rounds::alarms::run);
    worker.spawn_rounds("waiting operations", invoked::call_waiting);
    worker.spawn_rounds("auditor", rounds::auditor::run);
    worker.spawn_rounds("tidy", rounds::tidy::run);
    worker.spawn_rounds("roll", rounds::roll::run);
    worker.spawn_rounds("control", lease::control::run);
    worker.spawn_rounds("questions", arrive::questions::run);
}

/// Works until the shutdown says stop; running turns are left to the shutdown's stages.
pub async fn run(venue: Arc<Venue>, model: Arc<dyn Model>, options: WorkerOptions, shutdown: Shutdown) {
    let (relay, pending) = outbox::Relay::new();
    let census = Arc::new(OwnerCensus::default());
    let seats = arrive::seats::Seats::new(options.slots, options.owner_share, Arc::clone(&census), &venue.clock);
    let places = invoked::Places::new(options.operations, options.owner_share, Arc::clone(&census), &venue.clock);
    let worker = Arc::new(Worker {
        venue,
        model,
        options,
        shutdown: shutdown.clone(),
        control: lease::control::Control::default(),
        known: lease::known::Known::default(),
        memory: lease::memory::Memory::default(),
        books: context::books::Books::default(),
        payments: model::Payments::default(),
        counts: model::Counts::default(),
        relay,
        census,
        seats,
        places,
        failing: lease::outage::Failing::default(),
        quarantine: lease::quarantine::Quarantine::default(),
        share: parking_lot::Mutex::default(),
    });
    rounds::clocks::start(&worker).await;
    // Before anything comes: what finds no slot by what isn't known yet waits for a sweep.
    if let Err(error) = worker.census.look(&worker.venue).await {
        tracing::debug!(%error, "among whom slots are shared isn't known yet; the sweep asks again");
    }
    let direct: Arc<dyn DirectWorker> = Arc::new(arrive::direct::Direct(Arc::clone(&worker)));
    worker.venue.local.is(&worker.options.name, &direct);
    start_rounds(&worker, pending);
    arrive::receive::run(&worker).await;
}
