//! The audit: each worker looks for lost changes in its shards and repairs them; one worker of the fleet writes the
//! markers by which a restored, older store is recognised.

use crate::store::{DocWrite, OutsideWrite, StoreError, keys};
use crate::upkeep::audit::{self, AuditError, AuditWatch};
use crate::venue::venue_owner;
use crate::worker::Worker;
use std::sync::Arc;

/// Audits at the configured interval, until the process ends.
pub(crate) async fn run(worker: Arc<Worker>) {
    let (clock, stop) = (&worker.venue.clock, worker.shutdown.stopping());
    let mut watch = AuditWatch::at(worker.options.upkeep);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = clock.until(clock.steady() + worker.options.audit) => {}
        }
        let looked = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            looked = look(&worker, &mut watch) => looked,
        };
        if let Err(error) = looked {
            tracing::warn!(%error, "what may be lost is not looked for; it comes again");
        }
    }
}

async fn look(worker: &Worker, watch: &mut AuditWatch) -> Result<(), AuditError> {
    let venue = &worker.venue;
    if venue.clock.is_wrong() {
        return Ok(());
    }
    let marked = mark(worker).await;
    if let Some(share) = worker.share() {
        let mut repaired = Vec::new();
        let looked = watch.look(venue, &share, &mut repaired).await;
        venue.metrics.unaccounted.set(i64::try_from(repaired.len()).unwrap_or(i64::MAX));
        for repaired in repaired {
            tracing::warn!(owner = repaired.owner, found = repaired.found, did = repaired.did, "repaired");
        }
        looked?;
    }
    marked
}

/// Writes a marker, if this worker is the one that does.
async fn mark(worker: &Worker) -> Result<(), AuditError> {
    if is_on(worker).await?
        && let Some(found) = audit::beat(&worker.venue).await?
    {
        tracing::error!("the store was set back, {found}; `trellis audit` lists what is known of it");
    }
    Ok(())
}

/// Whether this worker writes the markers: the right expires, and another worker takes it.
async fn is_on(worker: &Worker) -> Result<bool, StoreError> {
    let (venue, owner) = (&worker.venue, venue_owner());
    let now = venue.now();
    let doc = venue.store.doc(&owner, keys::MARKER).await?;
    let text = doc.value.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    let held = text.and_then(|text| text.split_once(' '));
    let name = worker.options.name.as_str();
    let others = held.is_some_and(|(until, by)| by != name && until.parse::<u64>().is_ok_and(|until| until > now.0));
    if others {
        return Ok(false);
    }
    let line = format!("{} {name}", now.plus(worker.options.audit * 2));
    Ok(venue.store.write(now, &owner, &[DocWrite::put(keys::MARKER, line).at(doc.version)]).await?
        == OutsideWrite::Done)
}
