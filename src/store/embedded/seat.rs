//! Sessions set to a turn, changed and removed from outside their turns.

use super::layout::{STATE, Space};
use super::mailbox::Slot;
use super::tx::{Fault, Tx, View};
use super::{counts, docs};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::lease::{Amending, StateChange};
use crate::domain::quota::{Over, QuotaUsage};
use crate::domain::time::Millis;
use crate::store::{Amend, Amended, Amendment, Change, DocWrite, Seat, Seated};

/// Implements [`crate::store::Store::seat`] for the writer.
pub(super) fn seat(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    seat: Option<&Seat>,
    checks: &[DocWrite],
) -> Result<Result<Seated, Over>, Fault> {
    let mut slot = Slot::load(tx, owner, session)?;
    if let Some(until) = slot.now.live_until(now) {
        return Ok(Ok(Seated::Held(until)));
    }
    if !docs::conflicts(tx, &slot.owner, checks)?.is_empty() {
        let is_gone = seat.is_none() && !slot.is_known();
        return Ok(Ok(if is_gone { Seated::Done } else { Seated::Changed }));
    }
    let Some(seat) = seat else {
        slot.erase(tx)?;
        return Ok(Ok(Seated::Done));
    };
    let is_same = tx.get(Space::Core, &slot.part(STATE))?.is_some_and(|state| *state == *seat.state);
    if !slot.now.is_vacant(seat.version, is_same) {
        return Ok(Ok(Seated::Taken));
    }
    let adds = QuotaUsage { sessions: 1, bytes: seat.state.len() as u64, ..QuotaUsage::default() };
    if let Some(quota) = seat.within.as_ref().filter(|_| !slot.is_known())
        && let Err(over) = counts::admits(tx, &slot.owner, quota, &adds)?
    {
        return Ok(Err(over));
    }
    tx.register(&slot.owner)?;
    slot.remember(tx, &seat.state)?;
    slot.now.seat(now, seat.version);
    slot.save(tx)?;
    Ok(Ok(Seated::Done))
}

/// Implements [`crate::store::Store::amend`] for the writer.
pub(super) fn amend(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    amend: &Amend,
) -> Result<Amended, Fault> {
    let mut slot = Slot::load(tx, owner, session)?;
    let state = tx.get(Space::Core, &slot.part(STATE))?;
    let (then, arrivals) = match &amend.then {
        Amendment::State(then) => (Some(&**then), 0),
        Amendment::Gone { arrivals } => (None, *arrivals),
    };
    let amending = Amending { version: amend.version, was: amend.was.as_deref(), then, arrivals };
    match slot.now.amend(state.as_deref(), &amending) {
        StateChange::Allowed => {}
        StateChange::Repeated => return Ok(Amended::Done),
        StateChange::Held => return Ok(Amended::Held),
        StateChange::Stirred => return Ok(Amended::Stirred),
    }
    let checks: Vec<_> = amend.writes.iter().filter(|write| write.change == Change::Check).cloned().collect();
    if !docs::conflicts(tx, &slot.owner, &checks)?.is_empty() {
        return Ok(Amended::Stirred);
    }
    match then {
        Some(then) => slot.remember(tx, then)?,
        None => slot.erase(tx)?,
    }
    docs::apply(tx, now, &slot.owner, &amend.writes)?;
    Ok(Amended::Done)
}
