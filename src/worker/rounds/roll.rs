//! The list of workers: this one signs it, and leaves when it is told to.

use super::GOODBYE;
use crate::domain::format::FORMAT;
use crate::domain::kept::KeptKeys;
use crate::domain::roll::{SIGN_EVERY, WorkerRecord};
use crate::process::host;
use crate::store::StoreError;
use crate::venue::roll;
use crate::worker::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Signs until no turn runs any more.
pub(crate) async fn run(worker: Arc<Worker>) {
    let (clock, shutdown) = (&worker.venue.clock, &worker.shutdown);
    let pause = worker.options.sweep.min(SIGN_EVERY);
    let (mut me, mut signed) = (record(&worker), None);
    loop {
        if let Err(error) = look(&worker, &mut me, &mut signed).await {
            tracing::debug!(%error, "whether this worker is told to leave isn't known; it is asked again");
        }
        tokio::select! {
            biased;
            () = shutdown.ending().cancelled() => break,
            () = shutdown.stopping().cancelled(), if !me.leaving => {}
            () = clock.until(clock.steady() + pause) => {}
        }
    }
    let struck = tokio::time::timeout(GOODBYE, roll::strike(&worker.venue, &me)).await;
    if !matches!(struck, Ok(Ok(()))) {
        tracing::debug!("not struck off the list of workers; it is silent there, and forgotten in a day");
    }
}

fn record(worker: &Worker) -> WorkerRecord {
    let now = worker.venue.now();
    WorkerRecord {
        name: worker.options.name.clone(),
        host: host::name(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        format: FORMAT,
        slots: u32::try_from(worker.options.slots).unwrap_or(u32::MAX),
        busy: 0,
        since: now,
        seen: now,
        leaving: false,
        drain: None,
        kept: KeptKeys::default(),
    }
}

/// Says how it is when that is due, and looks for an order.
async fn look(worker: &Worker, me: &mut WorkerRecord, signed: &mut Option<Duration>) -> Result<(), StoreError> {
    let (venue, steady) = (&worker.venue, worker.venue.clock.steady());
    me.leaving = worker.shutdown.stopping().is_cancelled();
    let is_due = signed.is_none_or(|at| steady.saturating_sub(at) >= SIGN_EVERY);
    let order = if is_due || me.leaving {
        me.seen = venue.now();
        me.busy = u32::try_from(venue.metrics.slots_busy.get()).unwrap_or_default();
        let order = roll::sign(venue, me).await?;
        *signed = Some(steady);
        order
    } else {
        roll::order_to(venue, me).await?
    };
    if let Some(order) = order.filter(|_| !me.leaving) {
        tracing::info!("told to leave by `{}`: stopping", order.by);
        worker.shutdown.trigger();
    }
    Ok(())
}
