//! Retention, at a slow pace: what is no longer kept is forgotten in the background.

use crate::upkeep::retention::Janitor;
use crate::worker::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks at all owners. What is forgotten is weeks old: nobody waits for it.
const PACE: Duration = Duration::from_mins(1);

/// Behind a look that found nothing it is so many times as long as that took, up to so long.
const RESTS: u32 = 4;
const LONGEST: Duration = Duration::from_hours(1);

/// Tidies up until the process ends.
pub(crate) async fn run(worker: Arc<Worker>) {
    if worker.options.retention.is_never() {
        return;
    }
    let janitor = Janitor::new(worker.options.retention).at(worker.options.upkeep);
    let (clock, stop) = (&worker.venue.clock, worker.shutdown.stopping());
    let mut pause = PACE;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = clock.until(clock.steady() + pause) => {}
        }
        let began = clock.steady();
        let looked = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            looked = janitor.look(&worker.venue) => looked,
        };
        pause = PACE;
        match looked {
            Ok(tidied) if tidied.is_nothing() => {
                pause = (clock.steady().saturating_sub(began) * RESTS).clamp(PACE, LONGEST);
            }
            Ok(tidied) => tracing::info!(?tidied, "forgot what is no longer kept"),
            Err(error) => tracing::warn!(%error, "not tidied up; it comes again"),
        }
    }
}
