//! Alarms: timers fire when the queue delivers their alarm. The sweep fires those whose alarm is lost.

use crate::bus::RingingAlarm;
use crate::process::retry::LogPace;
use crate::venue::ingress::timers::{self, AlarmOutcome};
use crate::worker::state::{RECEIVE_PAUSE, Worker};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// Timers that one worker fires at once. Each takes a few calls of the store; turns don't wait for timers, nor timers
/// for slots.
const TIMERS_AT_ONCE: usize = 8;

/// Pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// Fires timers until the worker stops; ends at once if the queue has no alarms.
pub(crate) async fn run(worker: Arc<Worker>) {
    let Some(alarms) = worker.venue.bus.alarms() else { return };
    let stop = worker.shutdown.stop_token();
    let mut pace = LogPace::default();
    loop {
        let listening = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            listening = alarms.listen_ringing() => listening,
        };
        match listening {
            Ok(ringing) => {
                let ringing = ringing.take_until(stop.cancelled());
                ringing.for_each_concurrent(TIMERS_AT_ONCE, |ringing| fire_timer(&worker, ringing)).await;
            }
            Err(error) if pace.claim_due() => tracing::warn!(%error, "no alarms of timers; the sweep fires them"),
            Err(_) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RECEIVE_PAUSE) => {}
        }
    }
}

async fn fire_timer(worker: &Worker, RingingAlarm { alarm, settle }: RingingAlarm) {
    if worker.venue.clock.is_wrong() {
        // Another worker fires it.
        return settle.nak(PAUSE).await;
    }
    match timers::fire_alarm(&worker.venue, &alarm).await {
        Ok(AlarmOutcome::Fired | AlarmOutcome::Stale) => settle.ack().await,
        // Two clocks differ; the next sweep fires it at the latest.
        Ok(AlarmOutcome::Early(wait)) => settle.nak(wait.min(worker.options.sweep)).await,
        Err(error) => {
            tracing::warn!(owner = %alarm.owner, timer = %alarm.timer, %error, "timer not fired");
            // A damaged timer stays damaged.
            if error.is_transient() { settle.nak(PAUSE).await } else { settle.ack().await }
        }
    }
}
