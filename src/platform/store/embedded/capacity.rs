//! How many sessions of an agent and of an owner run at once, which wait, and which are woken.
//!
//! A session waits in its agent's queue, by the priority of its tasks, then first come, first served. If the owner has
//! a cap, agents that have a free slot but wait for one of their owner take turns, so that no agent starves the others.

use super::layout::{self, Space};
use super::lease::gate;
use super::mailbox::LoadedSession;
use super::tx::Tx;
use super::view::{StoreFault, View};
use super::{docs, outbox};
use crate::domain::ids::{AgentId, Owner, SessionKey, decode_token};
use crate::domain::time::Millis;
use crate::store::OutboxEntry;
use crate::store::keys::{self, Gate, GateStatus};
use std::collections::HashMap;
use std::time::Duration;

/// A woken session that hasn't come after this time has lost its slot; it is woken again.
pub(super) const WAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets the owner's cap, 0 = none: the last lease request counts.
pub(super) fn set_cap(tx: &mut Tx<'_>, owner: &str, cap: u32) {
    let cap = (cap > 0).then_some(cap);
    if tx.index().find_owner(owner).and_then(|index| index.cap) != cap {
        tx.index_mut().owner_mut(owner).cap = cap;
        // Other sessions may get a slot by the new cap.
        tx.index_mut().note_due(owner, 0);
    }
}

/// Whether there is a slot for this session; else it joins the queue.
pub(super) fn try_slot(
    tx: &mut Tx<'_>,
    now: Millis,
    loaded: &mut LoadedSession,
    concurrency: u32,
) -> Result<bool, StoreFault> {
    if !agent_has_slot(tx, now, loaded, concurrency)? {
        let was_told =
            tx.index().find_owner(&loaded.owner).is_some_and(|owner| owner.woken.contains_key(&loaded.token));
        enqueue(tx, loaded)?;
        if was_told {
            // A more urgent session came in between: it is woken instead.
            wake_waiting(tx, now, &loaded.owner_id, &loaded.key.agent.token(), WAKE_TIMEOUT)?;
        }
        return Ok(false);
    }
    if !owner_has_slot(tx, now, loaded)? {
        enqueue(tx, loaded)?;
        enqueue_agent(tx, &loaded.owner, &loaded.key.agent.token());
        return Ok(false);
    }
    Ok(true)
}

/// Whether the agent has a slot for the session: more urgent ones go first, then those that wait longer.
fn agent_has_slot(tx: &Tx<'_>, now: Millis, loaded: &LoadedSession, concurrency: u32) -> Result<bool, StoreFault> {
    let concurrency = usize::try_from(concurrency).unwrap_or(usize::MAX);
    let Some(agent) = tx.index().find_agent(&loaded.owner, &loaded.key.agent.token()) else {
        return Ok(concurrency > 0);
    };
    let free = concurrency.saturating_sub(agent.live_leases(now.0));
    Ok(match loaded.record.ticket() {
        Some(ticket) => {
            let is_queued = agent.waiting.contains_key(&ticket);
            is_queued && is_slot_left(free, agent.waiting.len(), agent.waiting.range(..ticket))
        }
        None if agent.waiting.is_empty() => free > 0,
        None => is_slot_left(free, agent.waiting.len(), agent.waiting.range(..=(loaded.waiting_rank(tx)?, u64::MAX))),
    })
}

/// Whether the sessions `ahead` in a queue of `queued` leave one of the free slots. An agent without a limit has more
/// free slots than sessions; then none of those that wait for their owner's slots is visited.
fn is_slot_left(free: usize, queued: usize, ahead: impl Iterator) -> bool {
    queued < free || ahead.take(free).count() < free
}

/// Whether the owner has a slot for the session: woken sessions go first, then those that wait.
fn owner_has_slot(tx: &Tx<'_>, now: Millis, loaded: &LoadedSession) -> Result<bool, StoreFault> {
    let Some(owner) = tx.index().find_owner(&loaded.owner) else { return Ok(true) };
    let Some(free) = owner.free_slots(now.0) else { return Ok(true) };
    if free == 0 || owner.woken.contains_key(&loaded.token) {
        return Ok(free > 0);
    }
    Ok(owner.queued_agents().next().is_none() && reserved_slots(tx, now, &loaded.owner, WAKE_TIMEOUT)? < free)
}

/// Returns how many slots of an owner are reserved for woken sessions.
fn reserved_slots(tx: &Tx<'_>, now: Millis, owner: &str, again: Duration) -> Result<usize, StoreFault> {
    let told = tx.index().find_owner(owner).into_iter().flat_map(|index| index.woken.keys());
    told.map(|session| has_recent_wake(tx, now, owner, session, again).map(usize::from)).sum()
}

/// Joins the agent's queue, or keeps the place there.
pub(super) fn enqueue(tx: &mut Tx<'_>, loaded: &mut LoadedSession) -> Result<(), StoreFault> {
    let rank = loaded.waiting_rank(tx)?;
    if !loaded.record.enqueue(rank, || tx.index_mut().next_number()) {
        tx.index_mut().owner_mut(&loaded.owner).woken.remove(&loaded.token);
    }
    loaded.save(tx)
}

fn enqueue_agent(tx: &mut Tx<'_>, owner: &str, agent: &str) {
    let index = tx.index_mut();
    let place = index.next_number();
    index.owner_mut(owner).enqueue_agent(place, agent);
}

/// Puts a wake into the outbox for each waiting session that has a free slot, once per `again`, and returns these
/// wakes. `agent` is a token. While a wake is unpublished, none is added for the same session because of time alone.
pub(super) fn wake_waiting(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    agent: &str,
    again: Duration,
) -> Result<Vec<OutboxEntry>, StoreFault> {
    let token = owner.token();
    if is_capped(tx, &token) {
        // A session woken a moment ago has its slot already.
        let again = again.max(WAKE_TIMEOUT);
        offer_slot(tx, now, &token, agent, again)?;
        return wake_for_owner(tx, now, owner, again);
    }
    let found = sessions_to_wake(tx, now, &token, agent, again, usize::MAX)?;
    found.iter().map(|session| wake_session(tx, now, owner, session)).collect()
}

/// Wakes waiting sessions of all agents of an owner.
pub(super) fn wake_all(tx: &mut Tx<'_>, now: Millis, owner: &Owner, again: Duration) -> Result<(), StoreFault> {
    let token = owner.token();
    let capped = is_capped(tx, &token);
    for agent in tx.index().agents_waiting(&token) {
        if capped {
            offer_slot(tx, now, &token, &agent, again)?;
        } else {
            wake_waiting(tx, now, owner, &agent, again)?;
        }
    }
    if capped {
        wake_for_owner(tx, now, owner, again)?;
    }
    Ok(())
}

/// Returns how many sessions of all owners are due, run or wait for a slot; without those of suspended agents that wait,
/// which no worker runs.
pub(super) fn count_busy(tx: &Tx<'_>, until: Millis) -> Result<u64, StoreFault> {
    let mut busy = tx.index().count_due(until);
    for (owner, agent, waiting) in tx.index().waiting_sessions() {
        let gate = docs::get(tx, owner, &keys::agent_gate_of(agent))?.value;
        if gate.and_then(|line| Gate::decode(&line)).is_none_or(|gate| gate.status != GateStatus::Suspended) {
            busy += waiting;
        }
    }
    Ok(busy)
}

fn is_capped(tx: &Tx<'_>, owner: &str) -> bool {
    tx.index().find_owner(owner).is_some_and(|owner| owner.cap.is_some())
}

/// Queues the agent for a slot of its owner, if one of its sessions waits without a wake.
fn offer_slot(tx: &mut Tx<'_>, now: Millis, owner: &str, agent: &str, again: Duration) -> Result<(), StoreFault> {
    if !sessions_to_wake(tx, now, owner, agent, again, 1)?.is_empty() {
        enqueue_agent(tx, owner, agent);
    }
    Ok(())
}

/// Wakes sessions for the free slots of their owner: one of each agent, then again. Agents without another session
/// leave the queue, so that each step wakes a session or removes an agent.
fn wake_for_owner(
    tx: &mut Tx<'_>,
    now: Millis,
    owner: &Owner,
    again: Duration,
) -> Result<Vec<OutboxEntry>, StoreFault> {
    let (token, mut wakes) = (owner.token(), Vec::new());
    let mut free = tx.index().find_owner(&token).and_then(|index| index.free_slots(now.0)).unwrap_or(0);
    if free > 0 {
        free = free.saturating_sub(reserved_slots(tx, now, &token, again)?);
    }
    let mut left: HashMap<String, std::vec::IntoIter<String>> = HashMap::new();
    while wakes.len() < free {
        let Some(agent) = tx.index().find_owner(&token).and_then(|index| index.queued_agents().next().cloned()) else {
            break;
        };
        tx.index_mut().owner_mut(&token).dequeue_agent(&agent);
        if !left.contains_key(&agent) {
            let found = sessions_to_wake(tx, now, &token, &agent, again, free - wakes.len())?;
            left.insert(agent.clone(), found.into_iter());
        }
        let Some(mine) = left.get_mut(&agent) else { break };
        if let Some(session) = mine.next() {
            let another = mine.len() > 0;
            wakes.push(wake_session(tx, now, owner, &session)?);
            if another {
                enqueue_agent(tx, &token, &agent);
            }
        }
    }
    Ok(wakes)
}

/// Returns at most `limit` waiting sessions, in order, for which an agent has a slot and which have no recent wake.
fn sessions_to_wake(
    tx: &Tx<'_>,
    now: Millis,
    owner: &str,
    agent: &str,
    again: Duration,
    limit: usize,
) -> Result<Vec<String>, StoreFault> {
    let mut found = Vec::new();
    let Some(index) = tx.index().find_agent(owner, agent).filter(|index| !index.waiting.is_empty()) else {
        return Ok(found);
    };
    // A damaged gate of one agent must not stop the sweep of its owner or the commit that wakes.
    let Ok(Some(gate)) = gate(tx, owner, &agent_id(agent)?) else { return Ok(found) };
    if gate.status != GateStatus::Active {
        return Ok(found);
    }
    let free = usize::try_from(gate.concurrency).unwrap_or(usize::MAX).saturating_sub(index.live_leases(now.0));
    for session in index.waiting.values().take(free) {
        if found.len() == limit {
            break;
        }
        if !has_recent_wake(tx, now, owner, session, again)? {
            found.push(session.clone());
        }
    }
    Ok(found)
}

/// Whether a waiting session was woken less than `again` ago, or its wake is unpublished: time alone adds no second
/// one.
fn has_recent_wake(tx: &Tx<'_>, now: Millis, owner: &str, session: &str, again: Duration) -> Result<bool, StoreFault> {
    let Some((at, wake)) = tx.index().find_owner(owner).and_then(|index| index.woken.get(session)) else {
        return Ok(false);
    };
    if Millis(*at).plus(again) > now {
        return Ok(true);
    }
    Ok(!again.is_zero() && tx.get(Space::Core, &layout::outbox(owner, wake))?.is_some())
}

/// Wakes a waiting session; it keeps its place in the queue until its lease is granted.
fn wake_session(tx: &mut Tx<'_>, now: Millis, owner: &Owner, session: &str) -> Result<OutboxEntry, StoreFault> {
    let key = SessionKey::from_token(session).map_err(|e| StoreFault::Record(e.to_string()))?;
    let wake = outbox::put_wake(tx, now, owner, &key)?;
    tx.index_mut().owner_mut(&owner.token()).woken.insert(session.to_owned(), (now.0, wake.id.clone()));
    Ok(wake)
}

/// Decodes the token of an agent.
fn agent_id(token: &str) -> Result<AgentId, StoreFault> {
    let bad = || StoreFault::Record(format!("agent token `{token}` is damaged"));
    AgentId::new(decode_token(token).ok_or_else(bad)?).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::is_slot_left;

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
            let leaves = is_slot_left(free, queued, (0..ahead).inspect(|_| visited += 1));
            assert_eq!(leaves, expected, "{free} free, {ahead} ahead of {queued}");
            assert!(visited <= most, "{visited} visited with {free} free, {ahead} ahead of {queued}");
        }
    }
}
