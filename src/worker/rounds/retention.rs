//! Retention: forgets expired things in the background, at a slow pace.

use crate::venue::upkeep::retention::{Janitor, PACE};
use crate::worker::state::Worker;
use std::sync::Arc;

/// Applies retention to this worker's shards until the process ends.
pub(crate) async fn run(worker: Arc<Worker>) {
    if worker.options.retention.is_never() {
        return;
    }
    let mut janitor = Janitor::new(worker.options.retention).with_pace(worker.options.upkeep);
    let (clock, stop) = (&worker.venue.clock, worker.shutdown.stop_token());
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = clock.wait_until(clock.steady() + PACE) => {}
        }
        let Some(share) = worker.share().filter(|_| worker.takes_work()) else { continue };
        let looked = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            looked = janitor.tidy_share(&worker.venue, &share) => looked,
        };
        match looked {
            Ok(tidied) if tidied.is_zero() => {}
            Ok(tidied) => tracing::info!(?tidied, "forgot what is no longer kept"),
            Err(error) => tracing::warn!(%error, "not tidied up; it comes again"),
        }
    }
}
