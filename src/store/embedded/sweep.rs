//! The sweep: overdue sessions, waiting sessions with a free slot, stale outbox entries.

use super::mailbox::Slot;
use super::outbox;
use super::tx::{Fault, Tx, View};
use super::{capacity, docs, docs::GRAVE};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::time::Millis;
use crate::store::{DocKey, DocWrite, DueOwners, Swept, keys};
use std::time::Duration;

/// Time until the next sweep of an owner whose due work was left to the caller.
const LOOK_SOON: Duration = Duration::from_millis(200);

/// Implements [`crate::store::Store::sweep`] for the writer.
pub(super) fn sweep(tx: &mut Tx<'_>, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<Swept, Fault> {
    let token = owner.token();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut swept = Swept::default();
    let (overdue, more_due) = tx.index().overdue(&token, now.0, limit);
    for session in overdue {
        let key = SessionKey::from_token(&session).map_err(|e| Fault::Record(e.to_string()))?;
        let mut slot = Slot::load(tx, owner, &key)?;
        slot.now.due = Some(now.plus(grace));
        slot.save(tx)?;
        swept.due.push(key);
    }
    capacity::wake_all(tx, now, owner, grace)?;
    let (stale, more_outbox) = tx.index().stale(&token, now, grace, limit);
    for place in stale {
        let Some(slot) = tx.index_mut().owner(&token).outbox.get_mut(&place) else { continue };
        slot.at = now.0;
        let id = slot.id.clone();
        swept.outbox.extend(outbox::read(tx, &token, id)?);
    }
    swept.more = more_due || more_outbox;
    if let Some(before) = now.0.checked_sub(Millis(0).plus(GRAVE).0) {
        docs::bury(tx, Millis(before), &token, limit)?;
    }
    swept.next = if swept.more { Some(now) } else { tx.index().next_look(&token, now, grace) };
    let first_grave = docs::first_grave(tx, &token)?.map(|deleted| deleted.plus(GRAVE).plus(Duration::from_millis(1)));
    swept.next = earlier(swept.next, first_grave);
    let soon = now.plus(LOOK_SOON);
    tx.index_mut().begin_look(&token, swept.next.map_or(soon, |next| next.min(soon)).0);
    Ok(swept)
}

/// Schedules the next sweep of an owner whose sweep failed.
#[expect(clippy::unnecessary_wraps, reason = "requests of the writer may fail")]
pub(super) fn put_off(tx: &mut Tx<'_>, now: Millis, owner: &str) -> Result<(), Fault> {
    tx.index_mut().begin_look(owner, now.plus(LOOK_SOON).0);
    Ok(())
}

/// Schedules the next sweep of an owner, when its documents were read, too.
#[expect(clippy::unnecessary_wraps, reason = "requests of the writer may fail")]
pub(super) fn end(tx: &mut Tx<'_>, owner: &str, next: Option<Millis>) -> Result<(), Fault> {
    tx.index_mut().end_look(owner, next.map(|at| at.0));
    Ok(())
}

/// Returns when the first documents under [`keys::SWEPT`] need the next sweep.
pub(super) fn next_of(first: &[Option<DocKey>], now: Millis) -> Option<Millis> {
    let due = first.iter().flatten().filter_map(|key| keys::swept_at(key));
    // Due work is done after this sweep; the next one checks that it was.
    due.map(|at| if at > now { at } else { now.plus(LOOK_SOON) }).min()
}

/// Returns the earlier of two optional times.
pub(super) fn earlier(one: Option<Millis>, other: Option<Millis>) -> Option<Millis> {
    one.into_iter().chain(other).min()
}

/// Implements [`crate::store::Store::due`] for the writer.
pub(super) fn due(tx: &Tx<'_>, now: Millis, horizon: Duration, limit: u32) -> Result<DueOwners, Fault> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = DueOwners::default();
    let looks = tx.index().looks(now.plus(horizon).0, limit);
    found.more = looks.len() == limit && looks.last().is_some_and(|(at, _)| *at <= now.0);
    for (at, owner) in looks {
        let owner = Owner::from_token(&owner).map_err(|error| Fault::Record(error.to_string()))?;
        found.owners.push((owner, Millis(at).since(now)));
    }
    Ok(found)
}

/// Returns [`Swept::first`]. It may skip a day's tombstones, so it doesn't belong on the writer's thread.
pub(super) fn first(view: &impl View, owner: &str) -> Result<[Option<DocKey>; keys::SWEPT.len()], Fault> {
    let mut found = <[Option<DocKey>; keys::SWEPT.len()]>::default();
    for (prefix, first) in keys::SWEPT.iter().zip(&mut found) {
        *first = docs::first(view, owner, prefix)?;
    }
    Ok(found)
}

/// Wakes sessions that wait for agents whose gate was written: resumed, or given more slots.
pub(super) fn gates_changed(tx: &mut Tx<'_>, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<(), Fault> {
    for write in writes {
        let Some(agent) = write.key.strip_prefix("g/").and_then(|k| k.strip_suffix("/gate")) else { continue };
        capacity::wake_waiting(tx, now, owner, agent, Duration::ZERO)?;
    }
    Ok(())
}
