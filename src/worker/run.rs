//! Runs a worker: makes its state, starts its periodic tasks and receives events.

use super::intake::direct::DirectAdmission;
use super::state::relay::OutboundQueue;
use super::state::{Worker, WorkerOptions};
use super::{intake, lease, operations, outbox, rounds};
use crate::model::Model;
use crate::process::shutdown::Shutdown;
use crate::venue::Venue;
use crate::venue::local_worker::DirectWorker;
use std::sync::Arc;

/// Starts the tasks that run beside the sessions.
fn start_rounds(worker: &Arc<Worker>, pending: OutboundQueue) {
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
    let (worker, pending) = Worker::new(venue, model, options, shutdown);
    let worker = Arc::new(worker);
    worker.venue.metrics.progress.slots.set(i64::try_from(worker.options.slots).unwrap_or(i64::MAX));
    rounds::clocks::start(&worker).await;
    // Before the first delivery: a session that finds no slot because owners aren't known yet waits for a sweep.
    if let Err(error) = worker.census.refresh(&worker.venue).await {
        tracing::debug!(%error, "among whom slots are shared isn't known yet; the sweep asks again");
    }
    let direct: Arc<dyn DirectWorker> = Arc::new(DirectAdmission(Arc::clone(&worker)));
    worker.venue.local.register(&worker.options.name, &direct);
    start_rounds(&worker, pending);
    intake::receive::run(&worker).await;
}
