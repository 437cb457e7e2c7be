//! Timers as they are stored: listed, cancelled. What sets and fires them is [`crate::ingress::timers`].
//!
//! A timer is a document with two places in indexes: among those that are due, always, and among
//! those of its agent while it fires. All are written together, under the version of the document.

use crate::bus::Alarm;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::timer::{Phase, Timer, TimerId};
use crate::store::{Change, DocWrite, Expect, StoreError, Written, decode, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::Listed;
use bytes::Bytes;

/// Tries of a change that others get in the way of.
pub(crate) const TRIES: u32 = 16;

/// Timers of one page.
const PAGE: usize = 500;

/// A timer, and the version of its document, which is there without a timer, too.
pub async fn get(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<(Option<Timer>, u64), StoreError> {
    let key = keys::timer(id);
    let doc = venue.store.read(owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    Ok((doc.value.map(|bytes| decode(&key, &bytes)).transpose()?, doc.version))
}

/// A page of the timers of an owner, or of one agent, by the time at which they fire next: of those
/// that still fire, or of all that are kept. It ends where they would weigh more than [`crate::domain::limits::LIST_BYTES`].
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    (agent, all): (Option<&AgentId>, bool),
    offset: usize,
    limit: usize,
) -> Result<Listed<Timer>, StoreError> {
    let mut known = Vec::new();
    let mut look = |timer: Timer| {
        if (all || timer.is_active()) && agent.is_none_or(|agent| timer.agent == *agent) {
            known.push((timer.next.is_none(), timer.due, timer.id.as_str().to_owned(), [keys::timer(&timer.id)]));
        }
    };
    each(venue, owner, &mut look).await?;
    known.sort();
    let places: Vec<_> = known.into_iter().map(|(.., key)| key).collect();
    let (items, next) = steps::page(&*venue.store, owner, &places, offset, limit).await?;
    Ok(Listed { items, total: places.len(), next })
}

/// Shows all timers that an owner keeps, one after the other.
pub async fn each(venue: &Venue, owner: &Owner, look: &mut (dyn FnMut(Timer) + Send)) -> Result<(), StoreError> {
    steps::each(&*venue.store, owner, keys::TIMERS, look).await
}

pub(crate) fn contended(id: &TimerId) -> StoreError {
    StoreError::Unavailable { store: "documents".into(), reason: format!("timer `{id}` is being changed by others") }
}

/// Cancels a timer. One that fires no more stays as it is.
pub async fn cancel(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<Option<Timer>, StoreError> {
    end(venue, owner, id, &Phase::Cancelled).await
}

/// Deletes a timer with everything that it says.
pub async fn erase(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        let (known, version) = get(venue, owner, id).await?;
        let Some(known) = known else { return Ok(()) };
        if forget(venue, owner, &known, version).await? == Written::Done {
            return Ok(());
        }
    }
    Err(contended(id))
}

/// Deletes the timer of this version with its places in the indexes.
pub(crate) async fn forget(venue: &Venue, owner: &Owner, timer: &Timer, version: u64) -> Result<Written, StoreError> {
    let delete = |key, expect| DocWrite { key, expect, change: Change::Delete };
    let writes = [
        delete(keys::timer(&timer.id), Expect::Version(version)),
        delete(keys::timer_due(timer.due, &timer.id), Expect::Any),
        delete(keys::agent_timer(&timer.agent, &timer.id), Expect::Any),
    ];
    venue.store.write(venue.now(), owner, &writes).await
}

/// Ends all timers of an agent that is there no more.
pub async fn fail_all(venue: &Venue, owner: &Owner, agent: &AgentId, error: &str) -> Result<(), StoreError> {
    let prefix = keys::agent_timers(agent);
    let failed = Phase::Failed { error: error.to_owned() };
    let mut after: Option<String> = None;
    loop {
        let page = venue.store.scan(owner, &prefix, after.as_deref(), false, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for id in page.iter().filter_map(|(key, _)| TimerId::new(key.strip_prefix(&prefix)?).ok()) {
            end(venue, owner, &id, &failed).await?;
        }
    }
}

async fn end(venue: &Venue, owner: &Owner, id: &TimerId, phase: &Phase) -> Result<Option<Timer>, StoreError> {
    for _ in 0..TRIES {
        let (known, version) = get(venue, owner, id).await?;
        let Some(known) = known else { return Ok(None) };
        if !known.is_active() {
            return Ok(Some(known));
        }
        let timer = known.clone().ended(phase.clone(), venue.now());
        if put(venue, owner, Some(&known), version, &timer).await? == Written::Done {
            return Ok(Some(timer));
        }
    }
    Err(contended(id))
}

/// Writes a timer over `before`, with its places in the indexes.
pub(crate) async fn put(
    venue: &Venue,
    owner: &Owner,
    before: Option<&Timer>,
    version: u64,
    timer: &Timer,
) -> Result<Written, StoreError> {
    let bytes = Bytes::from(serde_json::to_vec(timer).expect("timers serialise"));
    let any = |key, change| DocWrite { key, expect: Expect::Any, change };
    let mut writes =
        vec![DocWrite { key: keys::timer(&timer.id), expect: Expect::Version(version), change: Change::Put(bytes) }];
    if let Some(before) = before {
        if before.due != timer.due {
            writes.push(any(keys::timer_due(before.due, &timer.id), Change::Delete));
        }
        if before.is_active() && !(timer.is_active() && timer.agent == before.agent) {
            writes.push(any(keys::agent_timer(&before.agent, &timer.id), Change::Delete));
        }
    }
    writes.push(any(keys::timer_due(timer.due, &timer.id), Change::Put(Bytes::new())));
    if timer.is_active() && !before.is_some_and(|before| before.is_active() && before.agent == timer.agent) {
        writes.push(any(keys::agent_timer(&timer.agent, &timer.id), Change::Put(Bytes::new())));
    }
    let written = venue.store.write(venue.now(), owner, &writes).await?;
    if written == Written::Done {
        arm(venue, owner, timer).await;
    }
    Ok(written)
}

/// Has the queue ring when the timer is due. What goes wrong costs time only: a sweep finds it.
async fn arm(venue: &Venue, owner: &Owner, timer: &Timer) {
    let Some(alarms) = venue.bus.alarms() else { return };
    let armed = match timer.phase {
        Phase::Active => {
            let Timer { id, generation, due, .. } = timer;
            let alarm = Alarm { owner: owner.clone(), timer: id.clone(), generation: *generation, at: *due };
            alarms.set(&alarm).await
        }
        // What has rung is gone.
        Phase::Fired => Ok(()),
        Phase::Cancelled | Phase::Failed { .. } => alarms.clear(owner, &timer.id).await,
    };
    if let Err(error) = armed {
        tracing::debug!(%owner, timer = %timer.id, %error, "alarm not set; the sweep will find the timer");
    }
}
