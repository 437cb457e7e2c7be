//! The registry of workers: this worker signs it, and stops when the registry orders it to.

use super::GOODBYE;
use crate::domain::format::FORMAT;
use crate::domain::kept::KeptKeys;
use crate::domain::roll::{AT_SHARE, SIGN_EVERY, WorkerRecord};
use crate::process::host;
use crate::store::StoreError;
use crate::venue::roll;
use crate::worker::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two signatures when something has changed.
const SIGN_CHANGED: Duration = Duration::from_secs(2);

/// Signs the registry until no turn runs any more.
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
        owner_cap: Some(worker.options.owner_cap).filter(|cap| *cap > 0),
        at_share: Vec::new(),
        lists_approvals: true,
        kept: KeptKeys::default(),
    }
}

/// The registry's entry of this worker.
struct Signed {
    at: Duration,
    busy: u32,
    at_share: Vec<String>,
}

/// Signs the registry if that is due or something has changed, and obeys an order to stop.
async fn look(worker: &Worker, me: &mut WorkerRecord, signed: &mut Option<Signed>) -> Result<(), StoreError> {
    let (venue, steady) = (&worker.venue, worker.venue.clock.steady());
    me.leaving = worker.shutdown.stopping().is_cancelled();
    me.busy = u32::try_from(venue.metrics.slots_busy.get()).unwrap_or_default();
    me.at_share = worker.seats.owners_at_share(AT_SHARE);
    let is_due = signed.as_ref().is_none_or(|signed| {
        let is_other = (signed.busy, &signed.at_share) != (me.busy, &me.at_share);
        steady.saturating_sub(signed.at) >= if is_other { SIGN_CHANGED } else { SIGN_EVERY }
    });
    let order = if is_due || me.leaving {
        me.seen = venue.now();
        let order = roll::sign(venue, me).await?;
        *signed = Some(Signed { at: steady, busy: me.busy, at_share: me.at_share.clone() });
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
