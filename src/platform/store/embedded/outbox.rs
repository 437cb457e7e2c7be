//! Messages that a commit decided and that aren't published yet.

use super::index::OutboxPlace;
use super::layout::{self, Space, place_and_message};
use super::tx::Tx;
use super::view::{StoreFault, View};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::lease::DUE_AFTER;
use crate::domain::message::BusMessage;
use crate::domain::time::Millis;
use crate::store::OutboxEntry;
use bytes::Bytes;

/// Adds an entry that its holder publishes from `at` on; an entry of that id that is still there stays.
pub(super) fn put(tx: &mut Tx<'_>, at: Millis, owner: &str, entry: &OutboxEntry) -> Result<(), StoreFault> {
    let key = layout::outbox(owner, &entry.id);
    if tx.get(Space::Core, &key)?.is_some() {
        return Ok(());
    }
    let place = tx.index_mut().next_number();
    let value = [&place.to_be_bytes(), entry.message.as_ref()].concat();
    tx.put(Space::Core, key, value);
    let indexed = OutboxPlace { id: entry.id.clone(), at: at.0 };
    tx.index_mut().owner_mut(owner).outbox.insert(place, indexed);
    tx.index_mut().note_due(owner, if at.0 == 0 { 0 } else { at.plus(DUE_AFTER).0 });
    Ok(())
}

/// Adds a wake under an id of its own. The next sweep returns it: a free slot can't wait for the grace of a holder that
/// may be dead.
pub(super) fn put_wake(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
) -> Result<OutboxEntry, StoreFault> {
    let message =
        serde_json::to_vec(&BusMessage::wake(owner, session)).map_err(|e| StoreFault::Record(e.to_string()))?;
    let id = format!("wake-{:x}-{:x}", now.0, tx.index_mut().next_number());
    let entry = OutboxEntry { id, message: message.into() };
    put(tx, Millis(0), &owner.token(), &entry)?;
    Ok(entry)
}

/// Removes published entries by id.
pub(super) fn remove(tx: &mut Tx<'_>, owner: &str, ids: &[String]) -> Result<(), StoreFault> {
    for id in ids {
        let key = layout::outbox(owner, id);
        if let Some(value) = tx.get(Space::Core, &key)? {
            let (place, _) = place_and_message(&value);
            tx.remove(Space::Core, key);
            tx.index_mut().owner_mut(owner).outbox.remove(&place);
        }
    }
    Ok(())
}

/// Returns every entry, in the order in which they were decided.
pub(super) fn list(tx: &Tx<'_>, owner: &str) -> Result<Vec<OutboxEntry>, StoreFault> {
    let ids: Vec<String> = tx.index().outbox(owner).map(|(_, entry)| entry.id.clone()).collect();
    ids.into_iter().filter_map(|id| read(tx, owner, id).transpose()).collect()
}

/// Returns the entry with the id `id`.
pub(super) fn read(tx: &Tx<'_>, owner: &str, id: String) -> Result<Option<OutboxEntry>, StoreFault> {
    let Some(value) = tx.get(Space::Core, &layout::outbox(owner, &id))? else { return Ok(None) };
    let (_, message) = place_and_message(&value);
    let message = Bytes::copy_from_slice(message);
    Ok(Some(OutboxEntry { id, message }))
}
