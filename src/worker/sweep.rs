//! The sweep: makes certain what messages only make prompt.

use super::Worker;
use crate::domain::ids::Owner;
use crate::outbox;
use crate::store::{Change, DocWrite, Expect, StoreError, keys};
use std::sync::Arc;
use std::time::Duration;

/// Owners looked at per page, and overdue items per owner and look.
const PAGE: usize = 100;
const ITEMS: u32 = 256;

/// Work that was handed out is handed out again after so long.
const GRACE: Duration = Duration::from_secs(5);

/// Garbage documents freed per owner and sweep.
const GARBAGE: usize = 500;

/// Sweeps until the process ends.
pub(super) async fn run(worker: Arc<Worker>) {
    let stop = worker.shutdown.stopping().clone();
    loop {
        match tick(&worker).await {
            Ok(true) if !stop.is_cancelled() => continue,
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "sweep not done; it comes again"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(worker.options.sweep) => {}
        }
    }
}

/// Looks at every owner once. Returns whether there is more.
async fn tick(worker: &Worker) -> Result<bool, StoreError> {
    let mut more = false;
    let mut after: Option<Owner> = None;
    loop {
        let owners = worker.venue.store.owners(after.as_ref(), PAGE).await?;
        for owner in &owners {
            match sweep_owner(worker, owner).await {
                Ok(left) => more |= left,
                // One owner's damaged record must not keep the others from their sweep.
                Err(error) => tracing::warn!(%owner, %error, "owner not swept; it comes again"),
            }
        }
        worker.venue.metrics.sweeps.inc();
        match owners.into_iter().next_back() {
            Some(last) => after = Some(last),
            None => return Ok(more),
        }
    }
}

async fn sweep_owner(worker: &Worker, owner: &Owner) -> Result<bool, StoreError> {
    let venue = &worker.venue;
    let swept = venue.store.sweep(venue.now(), owner, GRACE, ITEMS).await?;
    venue.relay(owner, &swept.outbox).await;
    for session in &swept.due {
        if let Err(error) = venue.bus.publish(&outbox::wake(owner, session)).await {
            tracing::warn!(%session, %error, "wake not published; the next sweep will");
        }
    }
    free_garbage(worker, owner).await?;
    Ok(swept.more)
}

/// Frees documents that nobody can reach any more, a few at a time.
async fn free_garbage(worker: &Worker, owner: &Owner) -> Result<(), StoreError> {
    let store = &worker.venue.store;
    let marks = store.scan(owner, keys::GARBAGE, None, false, 1).await?;
    let Some((mark, _)) = marks.into_iter().next() else { return Ok(()) };
    let prefix = &mark[keys::GARBAGE.len()..];
    let found = store.scan(owner, prefix, None, false, GARBAGE).await?;
    let last = found.len() < GARBAGE;
    let delete = |key| DocWrite { key, expect: Expect::Any, change: Change::Delete };
    let mut writes: Vec<_> = found.into_iter().map(|(key, _)| delete(key)).collect();
    if last {
        writes.push(delete(mark));
    }
    store.write(worker.venue.now(), owner, &writes).await?;
    Ok(())
}
