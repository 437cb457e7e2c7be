//! Alarms: timers fire when the queue delivers their alarm. The sweep fires those whose alarm is lost.

use crate::bus::Ringing;
use crate::ingress::timers::{self, Rung};
use crate::process::retry::LogPace;
use crate::worker::{RECEIVE_PAUSE, Worker};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// Timers that one worker fires at once. Each takes a few calls of the store; turns don't wait for timers, nor timers
/// for slots.
const AT_ONCE: usize = 8;

/// Pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// Fires timers until the worker stops; ends at once if the queue has no alarms.
pub(crate) async fn run(worker: Arc<Worker>) {
    let Some(alarms) = worker.venue.bus.alarms() else { return };
    let stop = worker.shutdown.stopping();
    let mut pace = LogPace::default();
    loop {
        let listening = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            listening = alarms.ringing() => listening,
        };
        match listening {
            Ok(ringing) => {
                let ringing = ringing.take_until(stop.cancelled());
                ringing.for_each_concurrent(AT_ONCE, |ringing| ring(&worker, ringing)).await;
            }
            Err(error) if pace.is_due() => tracing::warn!(%error, "no alarms of timers; the sweep fires them"),
            Err(_) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RECEIVE_PAUSE) => {}
        }
    }
}

async fn ring(worker: &Worker, Ringing { alarm, settle }: Ringing) {
    if worker.venue.clock.is_wrong() {
        // Another worker fires it.
        return settle.nak(PAUSE).await;
    }
    match timers::ring(&worker.venue, &alarm).await {
        Ok(Rung::Fired | Rung::Stale) => settle.ack().await,
        // Two clocks differ; the next sweep fires it at the latest.
        Ok(Rung::Early(wait)) => settle.nak(wait.min(worker.options.sweep)).await,
        Err(error) => {
            tracing::warn!(owner = %alarm.owner, timer = %alarm.timer, %error, "timer not fired");
            // A damaged timer stays damaged.
            if error.is_transient() { settle.nak(PAUSE).await } else { settle.ack().await }
        }
    }
}
