//! Sessions set to a turn, changed and removed from outside their turns.

use super::layout::{STATE, Space};
use super::mailbox::LoadedSession;
use super::tx::Tx;
use super::view::{StoreFault, View};
use super::{counts, docs};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::lease::{StateAmendment, StateChange};
use crate::domain::quota::QuotaUsage;
use crate::domain::time::Millis;
use crate::store::{Amend, AmendOutcome, Amendment, DocEffect, DocWrite, SessionSnapshot, SetSessionOutcome};

/// Implements [`crate::store::Store::set_session`] for the writer.
pub(super) fn set(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    snapshot: Option<&SessionSnapshot>,
    checks: &[DocWrite],
) -> Result<SetSessionOutcome, StoreFault> {
    let mut loaded = LoadedSession::load(tx, owner, session)?;
    if let Some(until) = loaded.record.live_until(now) {
        return Ok(SetSessionOutcome::Held(until));
    }
    if !docs::conflicts(tx, &loaded.owner, checks)?.is_empty() {
        let is_gone = snapshot.is_none() && !loaded.is_known();
        return Ok(if is_gone { SetSessionOutcome::Done } else { SetSessionOutcome::Changed });
    }
    let Some(snapshot) = snapshot else {
        loaded.erase(tx)?;
        return Ok(SetSessionOutcome::Done);
    };
    let is_same = tx.get(Space::Core, &loaded.part(STATE))?.is_some_and(|state| *state == *snapshot.state);
    if !loaded.record.is_vacant(snapshot.version, is_same) {
        return Ok(SetSessionOutcome::Taken);
    }
    let adds = QuotaUsage { sessions: 1, bytes: snapshot.state.len() as u64, ..QuotaUsage::default() };
    if let Some(quota) = snapshot.quota.as_ref().filter(|_| !loaded.is_known())
        && let Some(over) = counts::exceeded_quota(tx, &loaded.owner, quota, &adds)?
    {
        return Err(StoreFault::Over(over));
    }
    tx.register(&loaded.owner)?;
    loaded.set_state(tx, &snapshot.state)?;
    loaded.record.restore(now, snapshot.version);
    loaded.save(tx)?;
    Ok(SetSessionOutcome::Done)
}

/// Implements [`crate::store::Store::amend`] for the writer.
pub(super) fn amend(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    session: &SessionKey,
    amend: &Amend,
) -> Result<AmendOutcome, StoreFault> {
    let mut loaded = LoadedSession::load(tx, owner, session)?;
    let state = tx.get(Space::Core, &loaded.part(STATE))?;
    let (then, arrivals) = match &amend.amendment {
        Amendment::State(then) => (Some(&**then), 0),
        Amendment::Remove { arrivals } => (None, *arrivals),
    };
    let amending = StateAmendment { version: amend.version, was: amend.expected_state.as_deref(), then, arrivals };
    match loaded.record.check_amendment(state.as_deref(), &amending) {
        StateChange::Allowed => {}
        StateChange::Repeated => return Ok(AmendOutcome::Done),
        StateChange::Held => return Ok(AmendOutcome::Held),
        StateChange::Changed => return Ok(AmendOutcome::Changed),
    }
    let checks: Vec<_> = amend.writes.iter().filter(|write| write.change == DocEffect::Check).cloned().collect();
    if !docs::conflicts(tx, &loaded.owner, &checks)?.is_empty() {
        return Ok(AmendOutcome::Changed);
    }
    match then {
        Some(then) => loaded.set_state(tx, then)?,
        None => loaded.erase(tx)?,
    }
    docs::apply(tx, now, &loaded.owner, &amend.writes)?;
    Ok(AmendOutcome::Done)
}
