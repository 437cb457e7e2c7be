//! Timers as they are stored: listed, cancelled. [`crate::venue::ingress::timers`] sets and fires them.
//!
//! A timer is a document with entries in two indexes: always among those that are due, and while it is active among
//! those of its agent. All are written together, under the version of the document.

use crate::bus::Alarm;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::time::Millis;
use crate::domain::timer::{Timer, TimerId, TimerPhase};
use crate::store::{DocWrite, Edit, StoreError, WriteOutcome, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::ListPage;

/// Returns a timer, and the version of its document, which also exists without a timer.
pub async fn get(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<(Option<Timer>, u64), StoreError> {
    venue.store.get_versioned(owner, &keys::timer(id)).await
}

/// Lists a page of the timers of an owner, or of one agent, by their next time: the active ones, or all that are kept.
/// It ends where the timers exceed [`crate::domain::limits::LIST_BYTES`].
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    agent: Option<&AgentId>,
    all: bool,
    offset: usize,
    limit: usize,
) -> Result<ListPage<Timer>, StoreError> {
    let mut known = Vec::new();
    let mut look = |timer: Timer| {
        if (all || timer.is_active()) && agent.is_none_or(|agent| timer.agent == *agent) {
            known.push((timer.next.is_none(), timer.due, timer.id.as_str().to_owned(), [keys::timer(&timer.id)]));
        }
    };
    for_each(venue, owner, &mut look).await?;
    known.sort();
    let places: Vec<_> = known.into_iter().map(|(.., key)| key).collect();
    let (items, next) = steps::page(&*venue.store, owner, &places, offset, limit).await?;
    Ok(ListPage { items, total: places.len(), next })
}

/// Calls `look` with each timer that an owner keeps.
pub async fn for_each(venue: &Venue, owner: &Owner, look: &mut (dyn FnMut(Timer) + Send)) -> Result<(), StoreError> {
    let mut timers = venue.store.docs(owner, keys::TIMERS);
    while let Some(page) = timers.records().await? {
        for (_, timer) in page {
            look(timer);
        }
    }
    Ok(())
}

/// Cancels a timer. A timer that isn't active stays as it is.
pub async fn cancel(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<Option<Timer>, StoreError> {
    end_timer(venue, owner, id, &TimerPhase::Cancelled).await
}

/// Returns a cancelled timer and the writes that cancel it, for a larger write. `None` if it isn't active, or its
/// record can't be read.
pub(crate) async fn cancel_writes(
    venue: &Venue,
    owner: &Owner,
    id: &TimerId,
) -> Result<Option<(Timer, Vec<DocWrite>)>, StoreError> {
    let (known, version) = match get(venue, owner, id).await {
        Err(error) if !error.is_transient() => return Ok(None),
        found => found?,
    };
    let Some(known) = known.filter(Timer::is_active) else { return Ok(None) };
    let timer = known.clone().end(TimerPhase::Cancelled, venue.now());
    // The larger write has no conditions except checks.
    let mut writes = vec![DocWrite::check(keys::timer(id), version)];
    writes.extend(replacement_writes(Some(&known), version, &timer));
    Ok(Some((timer, writes)))
}

/// Deletes a timer with its content.
pub async fn erase(venue: &Venue, owner: &Owner, id: &TimerId) -> Result<(), StoreError> {
    let attempt = || async {
        let (known, version) = get(venue, owner, id).await?;
        Ok(known.map_or(Edit::without_writes(()), |known| Edit::write(deletion_writes(&known, version), ())))
    };
    venue.store.edit(venue.now(), owner, "timer", id, attempt).await
}

/// Returns the writes that delete the timer of this version with its entries in the indexes.
pub(crate) fn deletion_writes(timer: &Timer, version: u64) -> [DocWrite; 3] {
    [
        DocWrite::delete(keys::timer(&timer.id)).at_version(version),
        DocWrite::delete(keys::timer_due(timer.due, &timer.id)),
        DocWrite::delete(keys::agent_timer(&timer.agent, &timer.id)),
    ]
}

/// Fails all timers of a deleted agent; those of a later agent of that name continue.
pub async fn fail_all(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentId,
    created: Millis,
    error: &str,
) -> Result<(), StoreError> {
    let prefix = keys::agent_timers(agent);
    let failed = TimerPhase::Failed { error: error.to_owned() };
    let mut places = venue.store.entries(owner, &prefix);
    while let Some(page) = places.keys().await? {
        for id in page.iter().filter_map(|key| TimerId::new(key.strip_prefix(&prefix)?).ok()) {
            let (timer, _) = get(venue, owner, &id).await?;
            if timer.is_some_and(|timer| timer.agent_created <= created) {
                end_timer(venue, owner, &id, &failed).await?;
            }
        }
    }
    Ok(())
}

async fn end_timer(
    venue: &Venue,
    owner: &Owner,
    id: &TimerId,
    phase: &TimerPhase,
) -> Result<Option<Timer>, StoreError> {
    let attempt = || async {
        let (known, version) = get(venue, owner, id).await?;
        let known = match known {
            Some(known) if known.is_active() => known,
            known => return Ok(Edit::without_writes((known, false))),
        };
        let timer = known.clone().end(phase.clone(), venue.now());
        Ok(Edit::write(replacement_writes(Some(&known), version, &timer), (Some(timer), true)))
    };
    let (timer, changed) = venue.store.edit(venue.now(), owner, "timer", id, attempt).await?;
    if let Some(timer) = timer.as_ref().filter(|_| changed) {
        arm(venue, owner, timer).await;
    }
    Ok(timer)
}

/// Replaces `before` by a timer, unless it has another version. Returns whether it did.
pub(crate) async fn replace(
    venue: &Venue,
    owner: &Owner,
    before: &Timer,
    version: u64,
    timer: &Timer,
) -> Result<bool, StoreError> {
    let done = venue.store.write(venue.now(), owner, &replacement_writes(Some(before), version, timer)).await?
        == WriteOutcome::Done;
    if done {
        arm(venue, owner, timer).await;
    }
    Ok(done)
}

/// Returns the writes that replace `before` of this version by a timer, with its entries in the indexes.
pub(crate) fn replacement_writes(before: Option<&Timer>, version: u64, timer: &Timer) -> Vec<DocWrite> {
    let mut writes = vec![DocWrite::json(keys::timer(&timer.id), timer).at_version(version)];
    if let Some(before) = before {
        if before.due != timer.due {
            writes.push(DocWrite::delete(keys::timer_due(before.due, &timer.id)));
        }
        if before.is_active() && !(timer.is_active() && timer.agent == before.agent) {
            writes.push(DocWrite::delete(keys::agent_timer(&before.agent, &timer.id)));
        }
    }
    writes.push(DocWrite::index_entry(keys::timer_due(timer.due, &timer.id)));
    if timer.is_active() && !before.is_some_and(|before| before.is_active() && before.agent == timer.agent) {
        writes.push(DocWrite::index_entry(keys::agent_timer(&timer.agent, &timer.id)));
    }
    writes
}

/// Sets the queue's alarm for the time at which the timer is due. A failure only costs time, until a sweep finds the
/// timer.
pub(crate) async fn arm(venue: &Venue, owner: &Owner, timer: &Timer) {
    let Some(alarms) = venue.bus.alarms() else { return };
    let armed = match timer.phase {
        TimerPhase::Active => {
            let Timer { id, generation, due, .. } = timer;
            let alarm = Alarm { owner: owner.clone(), timer: id.clone(), generation: *generation, at: *due };
            alarms.set(&alarm).await
        }
        // An alarm that has fired is gone.
        TimerPhase::Fired => Ok(()),
        TimerPhase::Cancelled | TimerPhase::Failed { .. } => alarms.clear(owner, &timer.id).await,
    };
    if let Err(error) = armed {
        tracing::debug!(%owner, timer = %timer.id, %error, "alarm not set; the sweep will find the timer");
    }
}
