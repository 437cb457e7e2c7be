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
    let mut all_loaded = Vec::with_capacity(forget.sessions.len());
    for resting in &forget.sessions {
        let loaded = LoadedSession::load(tx, owner, &resting.session)?;
        if !loaded.record.is_idle() || loaded.record.arrivals != resting.arrivals {
            // An absent session was forgotten by an earlier try of this call.
            if loaded.is_known() {
                return Ok(ForgetOutcome::Changed(resting.session.clone()));
            }
            continue;
        }
        all_loaded.push(loaded);
    }
    for loaded in &mut all_loaded {
        loaded.erase(tx)?;
    }
    for session in &forget.sessions_with_losses {
        let mut loaded = LoadedSession::load(tx, owner, session)?;
        // Damaged entries can't be served.
        let (_, damaged) = loaded.all_entries(tx)?;
        let damaged: Vec<Vec<u8>> = damaged.into_iter().map(String::into_bytes).collect();
        loaded.consume(tx, &damaged)?;
        let mut there = 0;
        loaded.walk(tx, &mut |_, _| {
            there += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        loaded.record.consumed = loaded.record.arrivals.saturating_sub(there);
        loaded.save(tx)?;
    }
    for key in &forget.documents {
        docs::delete(tx, now, &token, key)?;
    }
    for event in &forget.events {
        tx.remove(Space::Core, layout::dedupe(&token, event.as_str()));
    }
    Ok(ForgetOutcome::Done)
}
