//! What makes it certain: overdue sessions, waiting sessions with a free slot, stale outboxes.

use super::mailbox::Slot;
use super::outbox;
use super::tx::{Fault, Tx, View};
use super::{capacity, docs};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::time::Millis;
use crate::store::{DocKey, DocWrite, Swept, keys};
use std::time::Duration;

/// A deleted document keeps its version for a day: no writer holds an `expect` for longer.
const GRAVE: Duration = Duration::from_hours(24);

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
    Ok(swept)
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
