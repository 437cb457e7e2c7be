//! Removal of what retention is over for: documents, dedupe records, resting sessions.

use super::docs;
use super::layout::{self, Space};
use super::mailbox::LoadedSession;
use super::tx::Tx;
use super::view::StoreFault;
use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::store::{ForgetOutcome, ForgetRequest};
use std::ops::ControlFlow;

/// Implements [`crate::store::Store::forget`] for the writer.
pub(super) fn forget(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    forget: &ForgetRequest,
) -> Result<ForgetOutcome, StoreFault> {
    let token = owner.token();
    let mut slots = Vec::with_capacity(forget.sessions.len());
    for resting in &forget.sessions {
        let slot = LoadedSession::load(tx, owner, &resting.session)?;
        if !slot.record.is_idle() || slot.record.arrivals != resting.arrivals {
            // An absent session was forgotten by an earlier try of this call.
            if slot.is_known() {
                return Ok(ForgetOutcome::Changed(resting.session.clone()));
            }
            continue;
        }
        slots.push(slot);
    }
    for slot in &mut slots {
        slot.erase(tx)?;
    }
    for session in &forget.sessions_with_losses {
        let mut slot = LoadedSession::load(tx, owner, session)?;
        // Damaged entries can't be served.
        let (_, damaged) = slot.all_entries(tx)?;
        let damaged: Vec<Vec<u8>> = damaged.into_iter().map(String::into_bytes).collect();
        slot.consume(tx, &damaged)?;
        let mut there = 0;
        slot.walk(tx, &mut |_, _| {
            there += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        slot.record.consumed = slot.record.arrivals.saturating_sub(there);
        slot.save(tx)?;
    }
    for key in &forget.documents {
        docs::delete(tx, now, &token, key)?;
    }
    for event in &forget.events {
        tx.remove(Space::Core, layout::dedupe(&token, event.as_str()));
    }
    Ok(ForgetOutcome::Done)
}
