//! Stages 3 to 7: the loop that performs what the core decides.
//!
//! ```text
//! intake ─▶ admit ─▶ session (lease) ─▶ turn: gather ─▶ ask ─▶ record ─▶ call ─▶ commit ─▶ relay
//! sweep  ─▶ wakes what is due, relays what was left
//! invoked ─▶ operations that callers have invoked, beside turns
//! alarms ─▶ timers that are due, one worker each
//! ```

mod alarms;
mod answers;
mod ask;
mod auditor;
mod books;
mod callers;
mod calls;
mod commit;
mod control;
mod expiry;
mod hand;
mod harness;
mod intake;
mod invoked;
mod keeper;
mod known;
mod live;
mod orders;
mod origin;
mod output;
mod quarantine;
mod recheck;
mod relay;
mod resources;
mod seats;
mod session;
mod spend;
pub mod stage;
mod stray;
mod sweep;
mod tidy;
mod transcript;
mod turn;
mod waits;
mod wallet;

use crate::domain::retention::Rules;
use crate::model::Model;
use crate::process::retry::Policy;
use crate::process::shutdown::Shutdown;
use crate::store::LeaseRequest;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::rates::Rates;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Pause after a failed receive, before the next.
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
    /// Waits and total time for a provider that is unavailable.
    pub retry: Policy,
    /// What model providers take.
    pub rates: Rates,
    /// How the senders of submissions are recognised.
    pub auth: Arc<Auth>,
    /// How long jobs, turns and sessions are kept.
    pub retention: Rules,
}

/// A running worker.
pub(crate) struct Worker {
    pub(crate) venue: Arc<Venue>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) options: WorkerOptions,
    pub(crate) shutdown: Shutdown,
    /// Tasks that are being served here: what a cancellation must reach.
    control: control::Control,
    /// Agents as they were read before.
    known: known::Known,
    /// What is remembered of the records of prompts.
    books: books::Books,
    /// Where commits leave what is to be published.
    relay: relay::Relay,
    /// Whose sessions run here.
    seats: seats::Seats,
    /// Whose operations run here.
    places: invoked::Places,
    /// One place for events that may have killed workers.
    quarantine: quarantine::Quarantine,
}

impl Worker {
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

/// Works until the shutdown says stop; running turns are left to the shutdown's stages.
pub async fn run(venue: Arc<Venue>, model: Arc<dyn Model>, options: WorkerOptions, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(options.slots));
    let (relay, pending) = relay::Relay::new();
    let seats = seats::Seats::new(options.slots, options.owner_share);
    let places = invoked::Places::new(options.operations, options.owner_share);
    let worker = Arc::new(Worker {
        venue,
        model,
        options,
        shutdown: shutdown.clone(),
        control: control::Control::default(),
        known: known::Known::default(),
        books: books::Books::default(),
        relay,
        seats,
        places,
        quarantine: quarantine::Quarantine::default(),
    });
    shutdown.spawn_service("relay", relay::run(Arc::clone(&worker), pending));
    shutdown.spawn_service("sweep", sweep::run(Arc::clone(&worker)));
    shutdown.spawn_service("alarms", alarms::run(Arc::clone(&worker)));
    shutdown.spawn_service("auditor", auditor::run(Arc::clone(&worker)));
    shutdown.spawn_service("tidy", tidy::run(Arc::clone(&worker)));
    shutdown.spawn_service("control", control::run(Arc::clone(&worker)));
    let stop = shutdown.stopping();
    loop {
        let free = tokio::select! {
            () = stop.cancelled() => break,
            permit = Arc::clone(&slots).acquire_owned() => permit,
        };
        let Ok(first) = free else { break };
        let more = slots.available_permits();
        let received = tokio::select! {
            () = stop.cancelled() => break,
            received = worker.venue.bus.receive(more + 1) => received,
        };
        match received {
            Err(error) => {
                tracing::warn!(%error, "no messages received");
                tokio::time::sleep(RECEIVE_PAUSE).await;
            }
            Ok(deliveries) => {
                stray::collect(&worker);
                let mut first = Some(first);
                for delivery in deliveries {
                    let permit = match first.take() {
                        Some(permit) => permit,
                        None => match Arc::clone(&slots).acquire_owned().await {
                            Ok(permit) => permit,
                            Err(_) => return,
                        },
                    };
                    let worker = Arc::clone(&worker);
                    shutdown.spawn_turn("session", async move {
                        intake::handle(&worker, delivery).await;
                        drop(permit);
                    });
                }
            }
        }
    }
}
