//! Sessions set to a turn, changed and forgotten from outside their turns.

use super::layout::{STATE, Space};
use super::mailbox::Slot;
use super::tx::{Fault, Tx, View};
use super::{counts, docs};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::quota::{Over, QuotaUsage};
use crate::domain::time::Millis;
use crate::store::{Amend, Amended, Amendment, Seat, Seated};

/// [`crate::store::Store::seat`].
pub(super) fn seat(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    seat: Option<&Seat>,
) -> Result<Result<Seated, Over>, Fault> {
    let mut slot = Slot::load(tx, owner, session)?;
    if let Some(until) = slot.now.live_until(now) {
        return Ok(Ok(Seated::Held(Millis(until))));
    }
    let Some(seat) = seat else {
        slot.erase(tx)?;
        return Ok(Ok(Seated::Done));
    };
    let is_so = slot.now.version == seat.version
        && tx.get(Space::Core, &slot.part(STATE))?.is_some_and(|state| *state == *seat.state);
    if slot.now.arrivals > 0 || slot.now.version > 0 && !is_so {
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
    slot.now.version = seat.version;
    slot.now.touched = now.0;
    slot.save(tx)?;
    Ok(Ok(Seated::Done))
}

/// [`crate::store::Store::amend`].
pub(super) fn amend(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    amend: &Amend,
) -> Result<Amended, Fault> {
    let mut slot = Slot::load(tx, owner, session)?;
    if slot.now.lease.is_some() {
        return Ok(Amended::Held);
    }
    let state = tx.get(Space::Core, &slot.part(STATE))?;
    let is = |said: &[u8]| slot.now.version == amend.version && state.as_deref() == Some(said);
    match &amend.then {
        // Done by this very call before.
        Amendment::State(after) if is(after) => return Ok(Amended::Done),
        Amendment::Gone { .. } if !slot.is_known() => return Ok(Amended::Done),
        Amendment::State(_) | Amendment::Gone { .. } => {}
    }
    let as_seen = slot.is_known() && slot.now.version == amend.version && state.as_deref() == amend.was.as_deref();
    let fits = match amend.then {
        Amendment::State(_) => slot.now.version > 0,
        Amendment::Gone { arrivals } => slot.now.arrivals == arrivals,
    };
    if !as_seen || !fits {
        return Ok(Amended::Stirred);
    }
    match &amend.then {
        Amendment::State(after) => slot.remember(tx, after)?,
        Amendment::Gone { .. } => slot.erase(tx)?,
    }
    docs::apply(tx, now, &slot.owner, &amend.writes)?;
    Ok(Amended::Done)
}
