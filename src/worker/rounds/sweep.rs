//! The sweep: makes certain what messages only make prompt.

use crate::domain::ids::Owner;
use crate::domain::lattice::layout;
use crate::domain::time::Millis;
use crate::ingress::timers::{self, OwnerRemainder};
use crate::store::{DocWrite, StoreError, keys};
use crate::venue::agents::ending;
use crate::venue::external;
use crate::venue::venue_owner;
use crate::worker::{Worker, invoked};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Owners looked at per page, and overdue items per owner and look.
const PAGE: usize = 100;
const ITEMS: u32 = 256;

/// Work that was handed out is handed out again after so long.
const GRACE: Duration = Duration::from_secs(5);

/// Garbage documents freed per owner and sweep.
const GARBAGE: usize = 500;

/// Owners by the time at which their next timer is due.
type Soon = BTreeSet<(Millis, Owner)>;

/// Sweeps until the process ends.
pub(crate) async fn run(worker: Arc<Worker>) {
    let stop = worker.shutdown.stopping().clone();
    loop {
        let soon = match tick(&worker).await {
            Ok((true, _)) if !stop.is_cancelled() => continue,
            // Where the queue keeps the time it tells one worker; here all would fire at the same moment.
            Ok(_) if worker.venue.bus.alarms().is_some() => Soon::new(),
            Ok((_, soon)) => soon,
            Err(error) => {
                tracing::warn!(%error, "sweep not done; it comes again");
                Soon::new()
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = rest(&worker, soon) => {}
        }
    }
}

/// Until the next sweep timers are fired on time.
async fn rest(worker: &Worker, mut soon: Soon) {
    let clock = &worker.venue.clock;
    let sweep = clock.steady() + worker.options.sweep;
    loop {
        let next = soon.first().map(|(at, _)| clock.steady() + at.since(clock.now()));
        clock.until(next.map_or(sweep, |next| next.min(sweep))).await;
        if clock.steady() >= sweep {
            return;
        }
        while let Some((_, owner)) = soon.first().filter(|(at, _)| *at <= clock.now()).cloned() {
            soon.pop_first();
            match timers::fire(&worker.venue, &owner).await {
                Ok(next) => soon.extend(next.at.map(|at| (at, owner))),
                Err(error) => tracing::warn!(%owner, %error, "timers not fired; the sweep will"),
            }
        }
    }
}

/// Looks at every owner once. Returns whether there is more, and whose timers come before the next
/// sweep.
async fn tick(worker: &Arc<Worker>) -> Result<(bool, Soon), StoreError> {
    let mut more = false;
    let mut soon = Soon::new();
    let (own, mut others) = (venue_owner(), 0_usize);
    let mut owners = worker.venue.store.all_owners().of(PAGE);
    while let Some(page) = owners.next().await? {
        others += page.iter().filter(|owner| **owner != own).count();
        for owner in &page {
            worker.venue.metrics.sweeps.inc();
            match sweep_owner(worker, owner).await {
                Ok((left, next)) => {
                    more |= left;
                    // The next sweep begins later than so long after this one.
                    let before = worker.venue.now().plus(worker.options.sweep * 2);
                    soon.extend(next.filter(|at| *at < before).map(|at| (at, owner.clone())));
                }
                // One owner's damaged record must not keep the others from their sweep.
                Err(error) => tracing::warn!(%owner, %error, "owner not swept; it comes again"),
            }
        }
    }
    worker.seats.share_among(others > 1);
    Ok((more, soon))
}

/// Returns whether there is more, and when the owner's next timer is due.
async fn sweep_owner(worker: &Arc<Worker>, owner: &Owner) -> Result<(bool, Option<Millis>), StoreError> {
    let venue = &worker.venue;
    let swept = venue.store.sweep(venue.now(), owner, GRACE, ITEMS).await?;
    venue.relay(owner, &swept.outbox).await;
    for session in &swept.due {
        venue.wake(owner, session).await;
    }
    let now = venue.now();
    let timers = match swept.first(keys::TIMERS_DUE).map(|key| keys::timer_of_due(key)) {
        None => OwnerRemainder { more: false, at: None },
        Some(Some((at, _))) if at > now => OwnerRemainder { more: false, at: Some(at) },
        Some(_) => timers::fire(venue, owner).await?,
    };
    // What is damaged is told by who looks at it.
    let is_due = |prefix| {
        let first = swept.first(prefix).map(|key| keys::job_of_due(prefix, key));
        first.is_some_and(|first| first.is_none_or(|(at, _)| at <= now))
    };
    let more_jobs = is_due(keys::OUTBOUND_DUE) && external::look(venue, owner).await?;
    if is_due(keys::INVOKED_DUE) {
        invoked::sweep(worker, owner).await?;
    }
    let more_ends = swept.first(keys::ENDING).is_some() && ending::sweep(venue, owner).await?;
    if swept.first(keys::GARBAGE).is_some() {
        free_garbage(worker, owner).await?;
    }
    Ok((swept.more || timers.more || more_jobs || more_ends, timers.at))
}

/// Frees documents that nobody can reach any more, a few at a time.
async fn free_garbage(worker: &Worker, owner: &Owner) -> Result<(), StoreError> {
    let store = &worker.venue.store;
    let marks = store.scan(owner, keys::GARBAGE, None, false, 1).await?;
    let Some((mark, _)) = marks.into_iter().next() else { return Ok(()) };
    let mut writes = Vec::new();
    for prefix in layout::everything_below(&mark[keys::GARBAGE.len()..]) {
        let found = store.scan(owner, &prefix, None, false, GARBAGE - writes.len()).await?;
        writes.extend(found.into_iter().map(|(key, _)| DocWrite::delete(key)));
        if writes.len() == GARBAGE {
            break;
        }
    }
    if writes.len() < GARBAGE {
        writes.push(DocWrite::delete(mark));
    }
    store.write(worker.venue.now(), owner, &writes).await?;
    Ok(())
}
