//! Settling of messages: a handled one is acknowledged, another is delivered again later.

use crate::bus::Acknowledge;
use crate::worker::lease::outage::pause;
use crate::worker::session::SessionEnd;
use crate::worker::state::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Redelivery delay of a message whose handling failed.
pub(super) const REDELIVERY_DELAY: Duration = Duration::from_secs(1);

/// Settles a message, or what stands for it, by the end of its session's run.
pub(super) async fn settle(worker: &Worker, settle: &Arc<dyn Acknowledge>, end: SessionEnd) {
    match end {
        // In the background, so that the slot doesn't wait for the queue.
        SessionEnd::Idle => {
            let settle = Arc::clone(settle);
            worker.shutdown.spawn_turn("acknowledgement", async move { settle.ack().await });
        }
        SessionEnd::LeaseLost => {
            worker.venue.metrics.progress.count_retry("lease");
            settle.nak(REDELIVERY_DELAY).await;
        }
        SessionEnd::Failed(error) => {
            worker.venue.metrics.progress.count_retry("store");
            settle.nak(pause(&error)).await;
        }
    }
}
