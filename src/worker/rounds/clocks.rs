//! Compares the clock of this process with those of the store and the queue, once per sweep.

use crate::venue::clocks::ClockWatch;
use crate::worker::state::Worker;
use std::sync::Arc;

/// Compares the clocks before the worker takes anything.
pub(in crate::worker) async fn start(worker: &Worker) {
    ClockWatch::new(worker.options.clock_limit).start(&worker.venue).await;
}

/// Compares the clocks until no turn runs any more.
pub(in crate::worker) async fn run(worker: Arc<Worker>) {
    ClockWatch::new(worker.options.clock_limit)
        .run(&worker.venue, worker.options.sweep, worker.shutdown.end_token())
        .await;
}
