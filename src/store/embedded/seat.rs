//! Sessions set to a turn, and forgotten, from outside their turns.

use super::layout::Space;
use super::mailbox::Slot;
use super::tx::{Fault, Tx, View};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::time::Millis;
use crate::store::{Seat, Seated};

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
        slot.erase(tx)?;
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
    slot.now.touched = now.0;
    slot.save(tx)?;
    Ok(Seated::Done)
}
