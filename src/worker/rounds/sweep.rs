//! The sweep: finds due sessions, timers and other items whose messages were lost.

use super::DEREGISTRATION_TIME;
use crate::domain::ids::Owner;
use crate::domain::lattice::layout;
use crate::domain::time::Millis;
use crate::store::{DocWrite, StoreError, keys};
use crate::venue::agents::deletion;
use crate::venue::approvals;
use crate::venue::external;
use crate::venue::ingress::timers;
use crate::venue::notifications;
use crate::venue::open_calls;
use crate::worker::intake::due_sessions::{self, REPEAT_DELAY};
use crate::worker::operations;
use crate::worker::state::Worker;
use futures::future::join_all;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Owners per shard, and overdue items per owner, in one look.
const OWNERS_PER_SHARD: u32 = 256;
const ITEMS_PER_OWNER: u32 = 256;

/// Owners swept at the same time: each waits for the disk of the store.
const OWNERS_AT_ONCE: usize = 8;

/// Sessions woken of an owner that has no slot here: a worker that has slots for more asks the store.
const SESSIONS_WITHOUT_SLOT: u32 = 2;

/// Garbage documents freed per owner and sweep.
const GARBAGE_PER_SWEEP: usize = 500;

/// Owners to look at before the next sweep, by steady time.
type SweepTimes = BTreeSet<(Duration, Owner)>;

/// Sweeps until the process ends; then other workers take its shards at once.
pub(crate) async fn run(worker: Arc<Worker>) {
    sweeps(&worker).await;
    let signed_off = tokio::time::timeout(DEREGISTRATION_TIME, worker.venue.store.sign_off(&worker.options.name)).await;
    if !matches!(signed_off, Ok(Ok(()))) {
        tracing::debug!("not signed off; others have its share when its time is over");
    }
}

async fn sweeps(worker: &Arc<Worker>) {
    let stop = worker.shutdown.stop_token().clone();
    let clock = &worker.venue.clock;
    let mut planned = clock.steady();
    loop {
        let lag = clock.steady().saturating_sub(planned);
        worker.venue.metrics.progress.sweep_lag.set(lag.as_secs_f64());
        planned = clock.steady();
        let soon = match sweep_shards(worker).await {
            Ok((true, _)) if !stop.is_cancelled() => continue,
            // Where the queue keeps timers it delivers each to one worker; the sweep would fire it at the same moment.
            Ok(_) if worker.venue.bus.alarms().is_some() => SweepTimes::new(),
            Ok((_, soon)) => soon,
            Err(error) => {
                tracing::warn!(%error, "sweep not done; it comes again");
                SweepTimes::new()
            }
        };
        planned = clock.steady() + worker.options.sweep;
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = sweep_until_next(worker, soon) => {}
        }
    }
}

/// Until the next sweep, sweeps owners at the times when something of theirs is due.
async fn sweep_until_next(worker: &Arc<Worker>, mut soon: SweepTimes) {
    let clock = &worker.venue.clock;
    let sweep = clock.steady() + worker.options.sweep;
    loop {
        let next = soon.first().map(|(at, _)| *at);
        clock.wait_until(next.map_or(sweep, |next| next.min(sweep))).await;
        if clock.steady() >= sweep || clock.is_wrong() {
            return;
        }
        while soon.first().is_some_and(|(at, _)| *at <= clock.steady()) {
            let Some((_, owner)) = soon.pop_first() else { break };
            match sweep_once(worker, &owner).await {
                OwnerSweep::DueNow => soon.insert((clock.steady(), owner)),
                OwnerSweep::DueIn(wait) => soon.insert((clock.steady() + wait, owner)),
                OwnerSweep::Done | OwnerSweep::NoSlots | OwnerSweep::Failed => false,
            };
            if clock.steady() >= sweep {
                return;
            }
        }
    }
}

/// Sweeps every owner that has something due. Returns whether there is more, and which owners to sweep before the next
/// sweep.
async fn sweep_shards(worker: &Arc<Worker>) -> Result<(bool, SweepTimes), StoreError> {
    let venue = &worker.venue;
    if venue.bus.outage().is_some() || venue.clock.is_wrong() {
        // Nothing can be published, or the time is unknown; other workers take the shards of a silent one.
        return Ok((false, SweepTimes::new()));
    }
    match worker.census.refresh(venue).await {
        Ok(()) => {
            worker.slots.note_census();
            // A single owner has room for sessions that came before that was known.
            due_sessions::call(worker).await;
        }
        Err(error) => tracing::debug!(%error, "whether there are several owners isn't known"),
    }
    let due = venue.store.due_owners(venue.now(), &worker.options.name, horizon(worker), OWNERS_PER_SHARD).await?;
    worker.set_share(due.share);
    let (began, mut soon) = (venue.clock.steady(), SweepTimes::new());
    let (now, later): (Vec<_>, Vec<_>) = due.owners.into_iter().partition(|(_, wait)| wait.is_zero());
    worker.venue.metrics.progress.owners_due.set(i64::try_from(now.len()).unwrap_or(i64::MAX));
    soon.extend(later.into_iter().map(|(owner, wait)| (began + wait, owner)));
    // In turns: an owner with much to do delays the others by one look only.
    let mut turns: VecDeque<Owner> = now.into_iter().map(|(owner, _)| owner).collect();
    let (mut more, mut moved) = (due.more, false);
    while !turns.is_empty() {
        let some: Vec<Owner> = turns.drain(..turns.len().min(OWNERS_AT_ONCE)).collect();
        let looked = join_all(some.iter().map(|owner| sweep_once(worker, owner))).await;
        for (owner, looked) in some.into_iter().zip(looked) {
            moved |= !matches!(looked, OwnerSweep::Failed | OwnerSweep::NoSlots);
            match looked {
                OwnerSweep::DueNow => turns.push_back(owner),
                OwnerSweep::DueIn(wait) => drop(soon.insert((venue.clock.steady() + wait, owner))),
                OwnerSweep::Done | OwnerSweep::NoSlots | OwnerSweep::Failed => {}
            }
        }
        // The rest stays due. Other workers must see that this one is alive.
        if venue.clock.steady() >= began + worker.options.sweep {
            more |= !turns.is_empty();
            break;
        }
    }
    record_sweep(worker, began);
    Ok((more && moved, soon))
}

/// Records a sweep that began at this steady time, and the wait of the due sessions that it has named.
fn record_sweep(worker: &Worker, began: Duration) {
    let (metrics, now) = (&worker.venue.metrics, worker.venue.clock.steady());
    metrics.sweeps.inc();
    metrics.progress.sweep_seconds.observe(now.saturating_sub(began).as_secs_f64());
    let silence = (worker.options.sweep * 3).max(REPEAT_DELAY * 3);
    metrics.progress.due_oldest.set(worker.due_ages.forget_served(now, silence).as_secs_f64());
}

/// Result of a look at an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerSweep {
    /// Nothing is due before the next sweep.
    Done,
    /// Something is due before the next sweep, after this time.
    DueIn(Duration),
    /// Something is due at once.
    DueNow,
    /// Only sessions without a slot here are left: nothing before the next sweep.
    NoSlots,
    /// The store failed; the owner comes again.
    Failed,
}

/// Returns how far ahead due times are remembered: beyond the begin of the next sweep.
fn horizon(worker: &Worker) -> Duration {
    worker.options.sweep * 2
}

async fn sweep_once(worker: &Arc<Worker>, owner: &Owner) -> OwnerSweep {
    let RemainingWork { more, next, leaves_sessions } = match sweep_owner(worker, owner).await {
        Ok(left) => left,
        // A damaged record of one owner must not stop the sweep of the others.
        Err(error) => {
            tracing::warn!(%owner, %error, "owner not swept; it comes again");
            return OwnerSweep::Failed;
        }
    };
    let now = worker.venue.now();
    match next {
        _ if more => OwnerSweep::DueNow,
        Some(next) if next <= now => OwnerSweep::DueNow,
        Some(next) if next < now.plus(horizon(worker)) => OwnerSweep::DueIn(next.elapsed_since(now)),
        Some(_) | None if leaves_sessions => OwnerSweep::NoSlots,
        Some(_) | None => OwnerSweep::Done,
    }
}

/// Work that a look has left.
struct RemainingWork {
    /// Whether another sweep finds more due sessions at once.
    more: bool,
    /// Time of the next look at the owner.
    next: Option<Millis>,
    /// Sessions are due that have no slot here.
    leaves_sessions: bool,
}

async fn sweep_owner(worker: &Arc<Worker>, owner: &Owner) -> Result<RemainingWork, StoreError> {
    let venue = &worker.venue;
    let is_full = worker.slots.is_full(owner);
    let items = if is_full { SESSIONS_WITHOUT_SLOT } else { ITEMS_PER_OWNER };
    let swept = venue.store.sweep(venue.now(), owner, REPEAT_DELAY, items).await?;
    worker.due_ages.note_named(owner, &swept.due, venue.clock.steady());
    venue.relay(owner, &swept.outbox).await;
    let is_all = |count: usize| count < items as usize;
    let all_told = is_all(swept.due.len());
    for session in &swept.due {
        if all_told {
            venue.wake(owner, session).await;
        } else {
            venue.wake_of_many(owner, session).await;
        }
    }
    let now = venue.now();
    // Sessions without a slot would be woken again and again; the owner's other items decide when it is swept next.
    let leaves_sessions = swept.more && is_full && is_all(swept.outbox.len());
    let mut more = swept.more && !leaves_sessions;
    // Damaged items are reported by those who read them.
    let at = |prefix| swept.first_document(prefix).and_then(|key| keys::sweep_time(key));
    let is_due = |prefix| at(prefix).is_some_and(|at| at <= now);
    let mut next = swept.next;
    if leaves_sessions {
        next = keys::SWEPT.into_iter().filter_map(at).filter(|at| *at > now).min();
    }
    if is_due(keys::TIMERS_DUE) {
        let left = timers::fire_due(venue, owner).await?;
        more |= left.more;
        next = next.into_iter().chain(left.at).min();
    }
    more |= is_due(keys::OUTBOUND_DUE) && external::check_due(venue, owner).await?;
    more |= is_due(keys::ANSWERS_DUE) && approvals::deliver_answers(venue, owner).await?;
    more |= is_due(keys::NOTIFICATIONS_DUE) && Box::pin(notifications::send_due(venue, owner)).await?;
    if is_due(keys::INVOKED_DUE) {
        operations::sweep(worker, owner).await?;
    }
    if is_due(keys::OPEN_CALLS) {
        open_calls::sweep(venue, owner).await?;
    }
    more |= is_due(keys::DELETIONS) && deletion::sweep(venue, owner).await?;
    if is_due(keys::GARBAGE) {
        delete_garbage(worker, owner).await?;
    }
    Ok(RemainingWork { more, next, leaves_sessions })
}

/// Deletes documents that nothing refers to, a few at a time.
async fn delete_garbage(worker: &Worker, owner: &Owner) -> Result<(), StoreError> {
    let store = &worker.venue.store;
    let marks = store.scan(owner, keys::GARBAGE, None, false, 1).await?;
    let Some((mark, _)) = marks.into_iter().next() else { return Ok(()) };
    let mut writes = Vec::new();
    for prefix in layout::prefixes_below(&mark[keys::GARBAGE.len()..]) {
        let found = store.scan(owner, &prefix, None, false, GARBAGE_PER_SWEEP - writes.len()).await?;
        writes.extend(found.into_iter().map(|(key, _)| DocWrite::delete(key)));
        if writes.len() == GARBAGE_PER_SWEEP {
            break;
        }
    }
    if writes.len() < GARBAGE_PER_SWEEP {
        writes.push(DocWrite::delete(mark));
    }
    store.write(worker.venue.now(), owner, &writes).await?;
    Ok(())
}
