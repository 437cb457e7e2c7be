//! What makes it certain: overdue sessions, waiting sessions with a free slot, stale outboxes.

use super::mailbox::Slot;
use super::outbox;
use super::tx::{Fault, Tx, View};
use super::{capacity, docs, docs::GRAVE};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::time::Millis;
use crate::store::{DocKey, DocWrite, DueOwners, Swept, keys};
use std::time::Duration;

/// What a sweep found due and left to its caller is looked for again after this.
const LOOK_SOON: Duration = Duration::from_millis(200);

/// [`crate::store::Store::sweep`].
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

/// The owner can't be swept: it is looked at again soon.
#[expect(clippy::unnecessary_wraps, reason = "requests of the writer may fail")]
pub(super) fn put_off(tx: &mut Tx<'_>, now: Millis, owner: &str) -> Result<(), Fault> {
    tx.index_mut().begin_look(owner, now.plus(LOOK_SOON).0);
    Ok(())
}

/// The documents were looked at, too: the owner is looked at again then.
#[expect(clippy::unnecessary_wraps, reason = "requests of the writer may fail")]
pub(super) fn end(tx: &mut Tx<'_>, owner: &str, next: Option<Millis>) -> Result<(), Fault> {
    tx.index_mut().end_look(owner, next.map(|at| at.0));
    Ok(())
}

/// When the first documents make it that the owner is looked at again.
pub(super) fn next_of(first: &[Option<DocKey>], now: Millis) -> Option<Millis> {
    let due = first.iter().flatten().filter_map(|key| keys::swept_at(key));
    // What is due is done behind this sweep; whether it was, the next one sees.
    due.map(|at| if at > now { at } else { now.plus(LOOK_SOON) }).min()
}

/// The one that is earlier, where there is one.
pub(super) fn earlier(one: Option<Millis>, other: Option<Millis>) -> Option<Millis> {
    one.into_iter().chain(other).min()
}

/// [`crate::store::Store::due`].
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

/// [`Swept::first`]. It may pass over a day of deleted documents: not for the writer's thread.
pub(super) fn first(view: &impl View, owner: &str) -> Result<[Option<DocKey>; keys::SWEPT.len()], Fault> {
    let mut found = <[Option<DocKey>; keys::SWEPT.len()]>::default();
    for (prefix, first) in keys::SWEPT.iter().zip(&mut found) {
        *first = docs::first(view, owner, prefix)?;
    }
    Ok(found)
}

/// Wakes those who wait for agents whose gate was written: resumed, or given more slots.
pub(super) fn gates_changed(tx: &mut Tx<'_>, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<(), Fault> {
    for write in writes {
        let Some(agent) = write.key.strip_prefix("g/").and_then(|k| k.strip_suffix("/gate")) else { continue };
        capacity::wake_waiting(tx, now, owner, agent, Duration::ZERO)?;
    }
    Ok(())
}
