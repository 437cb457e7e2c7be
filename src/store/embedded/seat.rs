//! Sessions set to a turn, and forgotten, from outside their turns.

use super::layout::{self, Space};
use super::mailbox::Slot;
use super::session::Session;
use super::tx::{Fault, Tx, View};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::time::Millis;
use crate::store::{Seat, Seated};
use std::ops::ControlFlow;

/// [`crate::store::Store::seat`].
pub(super) fn seat(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    seat: Option<&Seat>,
) -> Result<Seated, Fault> {
    let mut slot = Slot::load(tx, owner, session)?;
    if let Some(until) = slot.now.live_until(now) {
        return Ok(Seated::Held(Millis(until)));
    }
    let Some(seat) = seat else {
        forget(tx, &slot)?;
        slot.now = Session { epoch: slot.now.epoch, ..Session::default() };
        slot.save(tx)?;
        return Ok(Seated::Done);
    };
    let is_so = slot.now.version == seat.version
        && tx.get(Space::Core, &slot.part(b"s"))?.is_some_and(|state| *state == *seat.state);
    if slot.now.arrivals > 0 || slot.now.version > 0 && !is_so {
        return Ok(Seated::Taken);
    }
    tx.register(&slot.owner)?;
    tx.put(Space::Core, slot.part(b"s"), seat.state.to_vec());
    slot.now.version = seat.version;
    slot.save(tx)?;
    Ok(Seated::Done)
}

/// Its mail and its parts.
fn forget(tx: &mut Tx<'_>, slot: &Slot) -> Result<(), Fault> {
    let places = [(Space::Mail, layout::mailbox(&slot.owner, &slot.token)), (Space::Core, slot.part(b""))];
    for (space, prefix) in places {
        let mut keys = Vec::new();
        tx.walk(space, &prefix, &layout::end_of(&prefix), &mut |key, _| {
            keys.push(key.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        for key in keys {
            tx.remove(space, key);
        }
    }
    Ok(())
}
