//! How many sessions of an agent and of an owner run at once, which wait, and which are woken.
//!
//! A session waits in its agent's queue, by the priority of its tasks, then first come, first served. If the owner has
//! a cap, agents that have a free slot but wait for one of their owner take turns, so that no agent starves the others.

use super::layout::{self, Space};
use super::lease::gate;
use super::mailbox::Slot;
use super::outbox;
use super::tx::{Fault, Tx, View};
use crate::domain::ids::{AgentId, Owner, SessionKey, decode_token};
use crate::domain::time::Millis;
use crate::store::OutboxEntry;
use crate::store::keys::GateStatus;
use std::collections::HashMap;
use std::time::Duration;

/// A woken session that hasn't come after this time has lost its slot; it is woken again.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

/// Sets the owner's cap, 0 = none: the last lease request counts.
pub(super) fn set_cap(tx: &mut Tx<'_>, owner: &str, cap: u32) {
    let cap = (cap > 0).then_some(cap);
    if tx.index().of(owner).and_then(|index| index.cap) != cap {
        tx.index_mut().owner(owner).cap = cap;
        // Other sessions may get a slot by the new cap.
        tx.index_mut().look_at(owner, 0);
    }
}

/// Whether there is a slot for this session; else it joins the queue.
pub(super) fn admits(tx: &mut Tx<'_>, now: Millis, slot: &mut Slot, concurrency: u32) -> Result<bool, Fault> {
    if !has_place(tx, now, slot, concurrency)? {
        let was_told = tx.index().of(&slot.owner).is_some_and(|owner| owner.told.contains_key(&slot.token));
        wait(tx, slot)?;
        if was_told {
            // A more urgent session came in between: it is woken instead.
            wake_waiting(tx, now, &slot.owner_id, &slot.key.agent.token(), AGAIN)?;
        }
        return Ok(false);
    }
    if !has_turn(tx, now, slot)? {
        wait(tx, slot)?;
        take_turn(tx, &slot.owner, &slot.key.agent.token());
        return Ok(false);
    }
    Ok(true)
}

/// Whether the agent has a slot for the session: more urgent ones go first, then those that wait longer.
fn has_place(tx: &Tx<'_>, now: Millis, slot: &Slot, concurrency: u32) -> Result<bool, Fault> {
    let concurrency = usize::try_from(concurrency).unwrap_or(usize::MAX);
    let Some(agent) = tx.index().agent(&slot.owner, &slot.key.agent.token()) else { return Ok(concurrency > 0) };
    let free = concurrency.saturating_sub(agent.live(now.0));
    Ok(match slot.now.ticket() {
        Some(ticket) => {
            let is_queued = agent.waiting.contains_key(&ticket);
            is_queued && leaves_slot(free, agent.waiting.len(), agent.waiting.range(..ticket))
        }
        None if agent.waiting.is_empty() => free > 0,
        None => leaves_slot(free, agent.waiting.len(), agent.waiting.range(..=(slot.rank(tx)?, u64::MAX))),
    })
}

/// Whether the sessions `ahead` in a queue of `queued` leave one of the free slots. An agent without a limit has more
/// free slots than sessions; then none of those that wait for their owner's slots is visited.
fn leaves_slot(free: usize, queued: usize, ahead: impl Iterator) -> bool {
    queued < free || ahead.take(free).count() < free
}

/// Whether the owner has a slot for the session: woken sessions go first, then those that wait.
fn has_turn(tx: &Tx<'_>, now: Millis, slot: &Slot) -> Result<bool, Fault> {
    let Some(owner) = tx.index().of(&slot.owner) else { return Ok(true) };
    let Some(free) = owner.free(now.0) else { return Ok(true) };
    if free == 0 || owner.told.contains_key(&slot.token) {
        return Ok(free > 0);
    }
    Ok(owner.turns().next().is_none() && promised(tx, now, &slot.owner, AGAIN)? < free)
}

/// Returns how many slots of an owner are reserved for woken sessions.
fn promised(tx: &Tx<'_>, now: Millis, owner: &str, again: Duration) -> Result<usize, Fault> {
    let told = tx.index().of(owner).into_iter().flat_map(|index| index.told.keys());
    told.map(|session| is_on_its_way(tx, now, owner, session, again).map(usize::from)).sum()
}

/// Joins the agent's queue, or keeps the place there.
pub(super) fn wait(tx: &mut Tx<'_>, slot: &mut Slot) -> Result<(), Fault> {
    let rank = slot.rank(tx)?;
    if !slot.now.wait(rank, || tx.index_mut().next()) {
        tx.index_mut().owner(&slot.owner).told.remove(&slot.token);
    }
    slot.save(tx)
}

fn take_turn(tx: &mut Tx<'_>, owner: &str, agent: &str) {
    let index = tx.index_mut();
    let place = index.next();
    index.owner(owner).take_turn(place, agent);
}

/// Puts a wake into the outbox for each waiting session that has a free slot, once per `again`, and returns these
/// wakes. `agent` is a token. While a wake is unpublished, none is added for the same session because of time alone.
pub(super) fn wake_waiting(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    agent: &str,
    again: Duration,
) -> Result<Vec<OutboxEntry>, Fault> {
    let token = owner.token();
    if is_capped(tx, &token) {
        // A session woken a moment ago has its slot already.
        let again = again.max(AGAIN);
        offer(tx, now, &token, agent, again)?;
        return take_turns(tx, now, owner, again);
    }
    let found = untold(tx, now, &token, agent, again, usize::MAX)?;
    found.iter().map(|session| tell(tx, now, owner, session)).collect()
}

/// Wakes waiting sessions of all agents of an owner.
pub(super) fn wake_all(tx: &mut Tx<'_>, now: Millis, owner: &Owner, again: Duration) -> Result<(), Fault> {
    let token = owner.token();
    let capped = is_capped(tx, &token);
    for agent in tx.index().agents_waiting(&token) {
        if capped {
            offer(tx, now, &token, &agent, again)?;
        } else {
            wake_waiting(tx, now, owner, &agent, again)?;
        }
    }
    if capped {
        take_turns(tx, now, owner, again)?;
    }
    Ok(())
}

fn is_capped(tx: &Tx<'_>, owner: &str) -> bool {
    tx.index().of(owner).is_some_and(|owner| owner.cap.is_some())
}

/// Queues the agent for a slot of its owner, if one of its sessions waits without a wake.
fn offer(tx: &mut Tx<'_>, now: Millis, owner: &str, agent: &str, again: Duration) -> Result<(), Fault> {
    if !untold(tx, now, owner, agent, again, 1)?.is_empty() {
        take_turn(tx, owner, agent);
    }
    Ok(())
}

/// Wakes sessions for the free slots of their owner: one of each agent, then again. Agents without another session
/// leave the queue, so that each step wakes a session or removes an agent.
fn take_turns(tx: &mut Tx<'_>, now: Millis, owner: &Owner, again: Duration) -> Result<Vec<OutboxEntry>, Fault> {
    let (token, mut wakes) = (owner.token(), Vec::new());
    let mut free = tx.index().of(&token).and_then(|index| index.free(now.0)).unwrap_or(0);
    if free > 0 {
        free = free.saturating_sub(promised(tx, now, &token, again)?);
    }
    let mut left: HashMap<String, std::vec::IntoIter<String>> = HashMap::new();
    while wakes.len() < free {
        let Some(agent) = tx.index().of(&token).and_then(|index| index.turns().next().cloned()) else { break };
        tx.index_mut().owner(&token).end_turn(&agent);
        if !left.contains_key(&agent) {
            let found = untold(tx, now, &token, &agent, again, free - wakes.len())?;
            left.insert(agent.clone(), found.into_iter());
        }
        let Some(mine) = left.get_mut(&agent) else { break };
        if let Some(session) = mine.next() {
            let another = mine.len() > 0;
            wakes.push(tell(tx, now, owner, &session)?);
            if another {
                take_turn(tx, &token, &agent);
            }
        }
    }
    Ok(wakes)
}

/// Returns at most `limit` waiting sessions, in order, for which an agent has a slot and which have no recent wake.
fn untold(
    tx: &Tx<'_>,
    now: Millis,
    owner: &str,
    agent: &str,
    again: Duration,
    limit: usize,
) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    let Some(index) = tx.index().agent(owner, agent).filter(|index| !index.waiting.is_empty()) else {
        return Ok(found);
    };
    // A damaged gate of one agent must not stop the sweep of its owner or the commit that wakes.
    let Ok(Some(gate)) = gate(tx, owner, &agent_id(agent)?) else { return Ok(found) };
    if gate.status != GateStatus::Active {
        return Ok(found);
    }
    let free = usize::try_from(gate.concurrency).unwrap_or(usize::MAX).saturating_sub(index.live(now.0));
    for session in index.waiting.values().take(free) {
        if found.len() == limit {
            break;
        }
        if !is_on_its_way(tx, now, owner, session, again)? {
            found.push(session.clone());
        }
    }
    Ok(found)
}

/// Whether a waiting session was woken less than `again` ago, or its wake is unpublished: time alone adds no second
/// one.
fn is_on_its_way(tx: &Tx<'_>, now: Millis, owner: &str, session: &str, again: Duration) -> Result<bool, Fault> {
    let Some((at, wake)) = tx.index().of(owner).and_then(|index| index.told.get(session)) else { return Ok(false) };
    if Millis(*at).plus(again) > now {
        return Ok(true);
    }
    Ok(!again.is_zero() && tx.get(Space::Core, &layout::outbox(owner, wake))?.is_some())
}

/// Wakes a waiting session; it keeps its place in the queue until its lease is granted.
fn tell(tx: &mut Tx<'_>, now: Millis, owner: &Owner, session: &str) -> Result<OutboxEntry, Fault> {
    let key = SessionKey::from_token(session).map_err(|e| Fault::Record(e.to_string()))?;
    let wake = outbox::put_wake(tx, now, owner, &key)?;
    tx.index_mut().owner(&owner.token()).told.insert(session.to_owned(), (now.0, wake.id.clone()));
    Ok(wake)
}

/// Decodes the token of an agent.
fn agent_id(token: &str) -> Result<AgentId, Fault> {
    let bad = || Fault::Record(format!("agent token `{token}` is damaged"));
    AgentId::new(decode_token(token).ok_or_else(bad)?).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::leaves_slot;

    #[test]
    fn a_queue_shorter_than_the_free_slots_is_not_walked() {
        for (free, queued, ahead, expected, most) in [
            (usize::MAX, 50_000, 50_000, true, 0),
            (50_001, 50_000, 50_000, true, 0),
            (2, 50_000, 0, true, 0),
            (2, 50_000, 1, true, 1),
            (2, 50_000, 49_999, false, 2),
            (0, 0, 0, false, 0),
            (0, 3, 3, false, 0),
        ] {
            let mut visited = 0;
            let leaves = leaves_slot(free, queued, (0..ahead).inspect(|_| visited += 1));
            assert_eq!(leaves, expected, "{free} free, {ahead} ahead of {queued}");
            assert!(visited <= most, "{visited} visited with {free} free, {ahead} ahead of {queued}");
        }
    }
}
