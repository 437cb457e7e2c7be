//! The registry of workers: this worker signs it, and stops when the registry orders it to.

use super::DEREGISTRATION_TIME;
use crate::domain::format::FORMAT;
use crate::domain::unknown_fields::UnknownFields;
use crate::domain::worker_registry::{AT_SHARE, HEARTBEAT, WorkerRecord};
use crate::process::host;
use crate::store::StoreError;
use crate::venue::registry;
use crate::worker::state::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two signatures when something has changed.
const CHANGED_SIGNATURE_PAUSE: Duration = Duration::from_secs(2);

/// Signs the registry until no turn runs any more.
pub(crate) async fn run(worker: Arc<Worker>) {
    let (clock, shutdown) = (&worker.venue.clock, &worker.shutdown);
    let pause = worker.options.sweep.min(HEARTBEAT);
    let (mut me, mut signed) = (record(&worker), None);
    loop {
        if let Err(error) = sign_if_due(&worker, &mut me, &mut signed).await {
            tracing::debug!(%error, "whether this worker is told to leave isn't known; it is asked again");
        }
        tokio::select! {
            biased;
            () = shutdown.end_token().cancelled() => break,
            () = shutdown.stop_token().cancelled(), if !me.leaving => {}
            () = clock.wait_until(clock.steady() + pause) => {}
        }
    }
    let struck = tokio::time::timeout(DEREGISTRATION_TIME, registry::unregister(&worker.venue, &me)).await;
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
        kept: UnknownFields::default(),
    }
}

/// The registry's entry of this worker.
struct RegistrySignature {
    signed_at: Duration,
    busy: u32,
    at_share: Vec<String>,
}

/// Signs the registry if that is due or something has changed, and obeys an order to stop.
async fn sign_if_due(
    worker: &Worker,
    me: &mut WorkerRecord,
    signed: &mut Option<RegistrySignature>,
) -> Result<(), StoreError> {
    let (venue, steady) = (&worker.venue, worker.venue.clock.steady());
    me.leaving = worker.shutdown.stop_token().is_cancelled();
    me.busy = u32::try_from(venue.metrics.slots_busy.get()).unwrap_or_default();
    venue.metrics.progress.outbox_waiting.set(i64::try_from(worker.relay.count_waiting()).unwrap_or(i64::MAX));
    me.at_share = worker.slots.owners_at_share(AT_SHARE);
    let is_due = signed.as_ref().is_none_or(|signed| {
        let is_other = (signed.busy, &signed.at_share) != (me.busy, &me.at_share);
        steady.saturating_sub(signed.signed_at) >= if is_other { CHANGED_SIGNATURE_PAUSE } else { HEARTBEAT }
    });
    let order = if is_due || me.leaving {
        me.seen = venue.now();
        let order = registry::register(venue, me).await?;
        *signed = Some(RegistrySignature { signed_at: steady, busy: me.busy, at_share: me.at_share.clone() });
        order
    } else {
        registry::read_order(venue, me).await?
    };
    if let Some(order) = order.filter(|_| !me.leaving) {
        tracing::info!("told to leave by `{}`: stopping", order.by);
        worker.shutdown.trigger();
    }
    Ok(())
}
