//! The sweep: finds due sessions, timers and other items whose messages were lost.

use super::GOODBYE;
use crate::domain::ids::Owner;
use crate::domain::lattice::layout;
use crate::domain::time::Millis;
use crate::ingress::timers;
use crate::store::{DocWrite, StoreError, keys};
use crate::venue::agents::ending;
use crate::venue::approvals;
use crate::venue::external;
use crate::venue::open_calls;
use crate::worker::arrive::due::{self, GRACE};
use crate::worker::{Worker, invoked};
use futures::future::join_all;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Owners per shard, and overdue items per owner, in one look.
const OWNERS: u32 = 256;
const ITEMS: u32 = 256;

/// Owners swept at the same time: each waits for the disk of the store.
const SIDE_BY_SIDE: usize = 8;

/// Sessions woken of an owner that has no slot here: a worker that has slots for more asks the store.
const FEW: u32 = 2;

/// Garbage documents freed per owner and sweep.
const GARBAGE: usize = 500;

/// Owners to look at before the next sweep, by steady time.
type Soon = BTreeSet<(Duration, Owner)>;

/// Sweeps until the process ends; then other workers take its shards at once.
pub(crate) async fn run(worker: Arc<Worker>) {
    sweeps(&worker).await;
    let signed_off = tokio::time::timeout(GOODBYE, worker.venue.store.sign_off(&worker.options.name)).await;
    if !matches!(signed_off, Ok(Ok(()))) {
        tracing::debug!("not signed off; others have its share when its time is over");
    }
}

async fn sweeps(worker: &Arc<Worker>) {
    let stop = worker.shutdown.stopping().clone();
    loop {
        let soon = match tick(worker).await {
            Ok((true, _)) if !stop.is_cancelled() => continue,
            // Where the queue keeps timers it delivers each to one worker; the sweep would fire it at the same moment.
            Ok(_) if worker.venue.bus.alarms().is_some() => Soon::new(),
            Ok((_, soon)) => soon,
            Err(error) => {
                tracing::warn!(%error, "sweep not done; it comes again");
                Soon::new()
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = rest(worker, soon) => {}
        }
    }
}

/// Until the next sweep, sweeps owners at the times when something of theirs is due.
async fn rest(worker: &Arc<Worker>, mut soon: Soon) {
    let clock = &worker.venue.clock;
    let sweep = clock.steady() + worker.options.sweep;
    loop {
        let next = soon.first().map(|(at, _)| *at);
        clock.until(next.map_or(sweep, |next| next.min(sweep))).await;
        if clock.steady() >= sweep || clock.is_wrong() {
            return;
        }
        while soon.first().is_some_and(|(at, _)| *at <= clock.steady()) {
            let Some((_, owner)) = soon.pop_first() else { break };
            match look(worker, &owner).await {
                Looked::More => soon.insert((clock.steady(), owner)),
                Looked::Until(wait) => soon.insert((clock.steady() + wait, owner)),
                Looked::Done | Looked::Full | Looked::Failed => false,
            };
            if clock.steady() >= sweep {
                return;
            }
        }
    }
}

/// Sweeps every owner that has something due. Returns whether there is more, and which owners to sweep before the next
/// sweep.
async fn tick(worker: &Arc<Worker>) -> Result<(bool, Soon), StoreError> {
    let venue = &worker.venue;
    if !venue.bus.is_connected() || venue.clock.is_wrong() {
        // Nothing can be published, or the time is unknown; other workers take the shards of a silent one.
        return Ok((false, Soon::new()));
    }
    match worker.census.look(venue).await {
        Ok(()) => {
            worker.seats.note_census();
            // A single owner has room for sessions that came before that was known.
            due::call(worker).await;
        }
        Err(error) => tracing::debug!(%error, "whether there are several owners isn't known"),
    }
    let due = venue.store.due(venue.now(), &worker.options.name, horizon(worker), OWNERS).await?;
    *worker.share.lock() = Some(due.share);
    let (began, mut soon) = (venue.clock.steady(), Soon::new());
    let (now, later): (Vec<_>, Vec<_>) = due.owners.into_iter().partition(|(_, wait)| wait.is_zero());
    soon.extend(later.into_iter().map(|(owner, wait)| (began + wait, owner)));
    // In turns: an owner with much to do delays the others by one look only.
    let mut turns: VecDeque<Owner> = now.into_iter().map(|(owner, _)| owner).collect();
    let (mut more, mut moved) = (due.more, false);
    while !turns.is_empty() {
        let some: Vec<Owner> = turns.drain(..turns.len().min(SIDE_BY_SIDE)).collect();
        let looked = join_all(some.iter().map(|owner| look(worker, owner))).await;
        for (owner, looked) in some.into_iter().zip(looked) {
            moved |= !matches!(looked, Looked::Failed | Looked::Full);
            match looked {
                Looked::More => turns.push_back(owner),
                Looked::Until(wait) => drop(soon.insert((venue.clock.steady() + wait, owner))),
                Looked::Done | Looked::Full | Looked::Failed => {}
            }
        }
        // The rest stays due. Other workers must see that this one is alive.
        if venue.clock.steady() >= began + worker.options.sweep {
            more |= !turns.is_empty();
            break;
        }
    }
    worker.venue.metrics.sweeps.inc();
    Ok((more && moved, soon))
}

/// Result of a look at an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// Nothing is due before the next sweep.
    Done,
    /// Something is due before the next sweep, after this time.
    Until(Duration),
    /// Something is due at once.
    More,
    /// Only sessions without a slot here are left: nothing before the next sweep.
    Full,
    /// The store failed; the owner comes again.
    Failed,
}

/// Returns how far ahead due times are remembered: beyond the begin of the next sweep.
fn horizon(worker: &Worker) -> Duration {
    worker.options.sweep * 2
}

async fn look(worker: &Arc<Worker>, owner: &Owner) -> Looked {
    let Left { more, next, leaves_sessions } = match sweep_owner(worker, owner).await {
        Ok(left) => left,
        // A damaged record of one owner must not stop the sweep of the others.
        Err(error) => {
            tracing::warn!(%owner, %error, "owner not swept; it comes again");
            return Looked::Failed;
        }
    };
    let now = worker.venue.now();
    match next {
        _ if more => Looked::More,
        Some(next) if next <= now => Looked::More,
        Some(next) if next < now.plus(horizon(worker)) => Looked::Until(next.since(now)),
        Some(_) | None if leaves_sessions => Looked::Full,
        Some(_) | None => Looked::Done,
    }
}

/// Work that a look has left.
struct Left {
    /// There is more to do at once.
    more: bool,
    /// Time of the next look at the owner.
    next: Option<Millis>,
    /// Sessions are due that have no slot here.
    leaves_sessions: bool,
}

async fn sweep_owner(worker: &Arc<Worker>, owner: &Owner) -> Result<Left, StoreError> {
    let venue = &worker.venue;
    let is_full = worker.seats.is_full(owner);
    let items = if is_full { FEW } else { ITEMS };
    let swept = venue.store.sweep(venue.now(), owner, GRACE, items).await?;
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
    let at = |prefix| swept.first(prefix).and_then(|key| keys::swept_at(key));
    let is_due = |prefix| at(prefix).is_some_and(|at| at <= now);
    let mut next = swept.next;
    if leaves_sessions {
        next = keys::SWEPT.into_iter().filter_map(at).filter(|at| *at > now).min();
    }
    if is_due(keys::TIMERS_DUE) {
        let left = timers::fire(venue, owner).await?;
        more |= left.more;
        next = next.into_iter().chain(left.at).min();
    }
    more |= is_due(keys::OUTBOUND_DUE) && external::look(venue, owner).await?;
    more |= is_due(keys::ANSWERED) && approvals::look(venue, owner).await?;
    if is_due(keys::INVOKED_DUE) {
        invoked::sweep(worker, owner).await?;
    }
    if is_due(keys::OPEN_CALLS) {
        open_calls::sweep(venue, owner).await?;
    }
    more |= is_due(keys::ENDING) && ending::sweep(venue, owner).await?;
    if is_due(keys::GARBAGE) {
        free_garbage(worker, owner).await?;
    }
    Ok(Left { more, next, leaves_sessions })
}

/// Deletes documents that nothing refers to, a few at a time.
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
