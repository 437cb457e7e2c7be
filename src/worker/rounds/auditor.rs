//! The audit: each worker looks for lost changes in its shards and repairs them; one worker of the fleet writes the
//! markers by which a restored, older store is recognised.

use crate::store::{DocWrite, StoreError, WriteOutcome, keys};
use crate::venue::upkeep::audit::{self, AuditError, AuditWatch};
use crate::venue::venue_owner;
use crate::worker::state::Worker;
use std::sync::Arc;

/// Audits at the configured interval, until the process ends.
pub(crate) async fn run(worker: Arc<Worker>) {
    let (clock, stop) = (&worker.venue.clock, worker.shutdown.stop_token());
    let mut watch = AuditWatch::with_pace(worker.options.upkeep);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = clock.wait_until(clock.steady() + worker.options.audit) => {}
        }
        let looked = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            looked = audit_once(&worker, &mut watch) => looked,
        };
        if let Err(error) = looked {
            tracing::warn!(%error, "what may be lost is not looked for; it comes again");
        }
    }
}

async fn audit_once(worker: &Worker, watch: &mut AuditWatch) -> Result<(), AuditError> {
    let venue = &worker.venue;
    if venue.clock.is_wrong() {
        return Ok(());
    }
    let marked = write_marker(worker).await;
    if let Some(share) = worker.share() {
        let mut repaired = Vec::new();
        let looked = watch.check_share(venue, &share, &mut repaired).await;
        venue.metrics.unaccounted.set(i64::try_from(repaired.len()).unwrap_or(i64::MAX));
        for repaired in repaired {
            tracing::warn!(owner = repaired.owner, found = repaired.found, did = repaired.did, "repaired");
        }
        looked?;
    }
    marked
}

/// Writes a marker, if this worker is the one that does.
async fn write_marker(worker: &Worker) -> Result<(), AuditError> {
    if claim_marker(worker).await?
        && let Some(found) = audit::advance_mark(&worker.venue).await?
    {
        tracing::error!("the store was set back, {found}; `trellis audit` lists what is known of it");
    }
    Ok(())
}

/// Whether this worker writes the markers: the right expires, and another worker takes it.
async fn claim_marker(worker: &Worker) -> Result<bool, StoreError> {
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
    Ok(venue.store.write(now, &owner, &[DocWrite::put(keys::MARKER, line).at_version(doc.version)]).await?
        == WriteOutcome::Done)
}
