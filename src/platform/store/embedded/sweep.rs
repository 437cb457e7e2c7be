//! The sweep: overdue sessions, waiting sessions with a free slot, stale outbox entries.

use super::mailbox::LoadedSession;
use super::outbox;
use super::tx::Tx;
use super::view::{StoreFault, View};
use super::{capacity, docs, docs::TOMBSTONE_AGE};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::time::Millis;
use crate::store::{DocKey, DocWrite, DueOwners, SweepResult, keys};
use std::time::Duration;

/// Time until the next sweep of an owner whose due work was left to the caller.
const SWEEP_SOON: Duration = Duration::from_millis(200);

/// Implements [`crate::store::Store::sweep`] for the writer.
pub(super) fn sweep(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    grace: Duration,
    limit: u32,
) -> Result<SweepResult, StoreFault> {
    let token = owner.token();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut swept = SweepResult::default();
    let (overdue, more_due) = tx.index().overdue_sessions(&token, now.0, limit);
    for session in overdue {
        let key = SessionKey::from_token(&session).map_err(|e| StoreFault::Record(e.to_string()))?;
        let mut loaded = LoadedSession::load(tx, owner, &key)?;
        loaded.record.due = Some(now.plus(grace));
        loaded.save(tx)?;
        swept.due.push(key);
    }
    capacity::wake_all(tx, now, owner, grace)?;
    let (stale, more_outbox) = tx.index().stale_messages(&token, now, grace, limit);
    for place in stale {
        let Some(entry) = tx.index_mut().owner_mut(&token).outbox.get_mut(&place) else { continue };
        entry.at = now.0;
        let id = entry.id.clone();
        swept.outbox.extend(outbox::read(tx, &token, id)?);
    }
    swept.more = more_due || more_outbox;
    if let Some(before) = now.0.checked_sub(Millis(0).plus(TOMBSTONE_AGE).0) {
        docs::remove_tombstones(tx, Millis(before), &token, limit)?;
    }
    swept.next = if swept.more { Some(now) } else { tx.index().next_sweep(&token, now, grace) };
    let first_grave =
        docs::oldest_tombstone(tx, &token)?.map(|deleted| deleted.plus(TOMBSTONE_AGE).plus(Duration::from_millis(1)));
    swept.next = earliest(swept.next, first_grave);
    let soon = now.plus(SWEEP_SOON);
    tx.index_mut().begin_sweep(&token, swept.next.map_or(soon, |next| next.min(soon)).0);
    Ok(swept)
}

/// Schedules the next sweep of an owner whose sweep failed.
#[expect(clippy::unnecessary_wraps, reason = "requests of the writer may fail")]
pub(super) fn reschedule(tx: &mut Tx<'_>, now: Millis, owner: &str) -> Result<(), StoreFault> {
    tx.index_mut().begin_sweep(owner, now.plus(SWEEP_SOON).0);
    Ok(())
}

/// Schedules the next sweep of an owner, when its documents were read, too.
#[expect(clippy::unnecessary_wraps, reason = "requests of the writer may fail")]
pub(super) fn finish(tx: &mut Tx<'_>, owner: &str, next: Option<Millis>) -> Result<(), StoreFault> {
    tx.index_mut().end_sweep(owner, next.map(|at| at.0));
    Ok(())
}

/// Returns when the first documents under [`keys::SWEPT`] need the next sweep.
pub(super) fn next_due(first: &[Option<DocKey>], now: Millis) -> Option<Millis> {
    let due = first.iter().flatten().filter_map(|key| keys::sweep_time(key));
    // Due work is done after this sweep; the next one checks that it was.
    due.map(|at| if at > now { at } else { now.plus(SWEEP_SOON) }).min()
}

/// Returns the earlier of two optional times.
pub(super) fn earliest(one: Option<Millis>, other: Option<Millis>) -> Option<Millis> {
    one.into_iter().chain(other).min()
}

/// Implements [`crate::store::Store::due_owners`] for the writer.
pub(super) fn due_owners(tx: &Tx<'_>, now: Millis, horizon: Duration, limit: u32) -> Result<DueOwners, StoreFault> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = DueOwners::default();
    let looks = tx.index().owners_to_sweep(now.plus(horizon).0, limit);
    found.more = looks.len() == limit && looks.last().is_some_and(|(at, _)| *at <= now.0);
    for (at, owner) in looks {
        let owner = Owner::from_token(&owner).map_err(|error| StoreFault::Record(error.to_string()))?;
        found.owners.push((owner, Millis(at).elapsed_since(now)));
    }
    Ok(found)
}

/// Returns [`SweepResult::first`]. It may skip a day's tombstones, so it doesn't belong on the writer's thread.
pub(super) fn first_documents(
    view: &impl View,
    owner: &str,
) -> Result<[Option<DocKey>; keys::SWEPT.len()], StoreFault> {
    let mut found = <[Option<DocKey>; keys::SWEPT.len()]>::default();
    for (prefix, first) in keys::SWEPT.iter().zip(&mut found) {
        *first = docs::first_key(view, owner, prefix)?;
    }
    Ok(found)
}

/// Wakes sessions that wait for agents whose gate was written: resumed, or given more slots.
pub(super) fn wake_for_gates(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    writes: &[DocWrite],
) -> Result<(), StoreFault> {
    for write in writes {
        let Some(agent) = write.key.strip_prefix("g/").and_then(|k| k.strip_suffix("/gate")) else { continue };
        capacity::wake_waiting(tx, now, owner, agent, Duration::ZERO)?;
    }
    Ok(())
}
