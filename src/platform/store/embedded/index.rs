//! Due times, leases, waiting queues and outboxes in memory, rebuilt at open.

use super::layout::{Space, place_and_message, prefix_end};
use super::view::{StoreFault, View};
use crate::domain::lease::{SessionRecord, Ticket};
use crate::domain::time::Millis;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::time::Duration;

/// The in-memory index of all owners.
#[derive(Debug, Default)]
pub(super) struct Index {
    owners: HashMap<String, OwnerIndex>,
    /// Owners by the time of their next sweep.
    sweep_times: BTreeSet<(u64, String)>,
    /// Last ticket of a queue and place in an outbox: at least as large as any in use.
    next: u64,
}

/// The in-memory index of one owner.
#[derive(Debug, Default)]
pub(super) struct OwnerIndex {
    /// Whether the owner is known to be on the list of owners.
    pub(super) registered: bool,
    /// Latest time of the next sweep of the owner.
    sweep_at: Option<u64>,
    /// Earliest time that became due since the last sweep began.
    due_since_sweep: Option<u64>,
    /// Due time in ms and session token.
    pub(super) due: BTreeSet<(u64, String)>,
    /// Indexes of its agents, by agent token.
    pub(super) agents: BTreeMap<String, AgentIndex>,
    /// Lease end and session of all agents, lapsed leases included.
    leases: BTreeSet<(u64, String)>,
    /// Sessions that may run at once, by the last lease request; `None` = any number.
    pub(super) cap: Option<u32>,
    /// Agents with a session that waits for one of these slots, in the order of their turns.
    turns: BTreeMap<u64, String>,
    /// Waiting sessions that were woken and haven't come since: time and id of the wake.
    pub(super) woken: HashMap<String, (u64, String)>,
    /// Unpublished messages by place.
    pub(super) outbox: BTreeMap<u64, OutboxPlace>,
}

/// The in-memory index of one agent.
#[derive(Debug, Default)]
pub(super) struct AgentIndex {
    /// Lease end and session, lapsed leases included.
    pub(super) leases: BTreeSet<(u64, String)>,
    /// Ticket to session: by rank, then first come, first served.
    pub(super) waiting: BTreeMap<Ticket, String>,
    /// Its place among the agents that wait for a slot of their owner.
    turn: Option<u64>,
}

/// An unpublished message of an outbox.
#[derive(Debug)]
pub(super) struct OutboxPlace {
    /// Id of the outbox entry.
    pub(super) id: String,
    /// When it was written or handed out last; 0 = the next sweep returns it: a wake, or an entry of a process before
    /// the restart.
    pub(super) at: u64,
}

/// Returns how many of the leases are live.
fn count_live(leases: &BTreeSet<(u64, String)>, now: u64) -> usize {
    // Lapsed ones are few: the sweep removes them.
    leases.len() - leases.range(..(now.saturating_add(1), String::new())).count()
}

impl OwnerIndex {
    /// Returns the slots that the owner's cap leaves free; `None` without a cap.
    pub(super) fn free_slots(&self, now: u64) -> Option<usize> {
        let cap = usize::try_from(self.cap?).unwrap_or(usize::MAX);
        Some(cap.saturating_sub(count_live(&self.leases, now)))
    }

    /// Returns agents that wait for a slot of the owner, the next first.
    pub(super) fn queued_agents(&self) -> impl Iterator<Item = &String> {
        self.turns.values()
    }

    /// Queues the agent for a slot of its owner, behind the others, unless it is queued.
    pub(super) fn enqueue_agent(&mut self, place: u64, agent: &str) {
        if let Some(index) = self.agents.get_mut(agent)
            && index.turn.is_none()
        {
            index.turn = Some(place);
            self.turns.insert(place, agent.to_owned());
        }
    }

    /// Removes the agent from that queue.
    pub(super) fn dequeue_agent(&mut self, agent: &str) {
        if let Some(place) = self.agents.get_mut(agent).and_then(|index| index.turn.take()) {
            self.turns.remove(&place);
        }
    }
}

impl AgentIndex {
    /// Returns the number of sessions with a live lease.
    pub(super) fn live_leases(&self, now: u64) -> usize {
        count_live(&self.leases, now)
    }

    fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.waiting.is_empty()
    }
}

fn agent_of(session: &str) -> &str {
    session.split('/').next().unwrap_or_default()
}

impl Index {
    /// Builds the index from every session and outbox record.
    pub(super) fn load(view: &impl View) -> Result<Self, StoreFault> {
        Self::load_with(view, |_, _| Ok(()))
    }

    /// [`Index::load`] where `change` may change each session, by its key, before it is indexed.
    pub(super) fn load_with(
        view: &impl View,
        mut change: impl FnMut(&[u8], &mut SessionRecord) -> Result<(), StoreFault>,
    ) -> Result<Self, StoreFault> {
        let mut index = Self::default();
        view.walk(Space::Core, b"s", &prefix_end(b"s"), &mut |key, value| {
            // A damaged record keeps no other session from being served; the audit names it.
            let (Ok((owner, name)), Ok(mut session)) = (split_key(key), parse_session(value)) else {
                tracing::error!(key = %String::from_utf8_lossy(key).escape_debug(), "a session record is damaged");
                return Ok(ControlFlow::Continue(()));
            };
            change(key, &mut session)?;
            index.update_session(&owner, &name, &SessionRecord::default(), &session);
            Ok(ControlFlow::Continue(()))
        })?;
        view.walk(Space::Core, b"x", &prefix_end(b"x"), &mut |key, value| {
            let Ok((owner, id)) = split_key(key) else { return Ok(ControlFlow::Continue(())) };
            let (place, _) = place_and_message(value);
            index.next = index.next.max(place.saturating_add(1));
            index.owner_mut(&owner).outbox.insert(place, OutboxPlace { id, at: 0 });
            Ok(ControlFlow::Continue(()))
        })?;
        // The first sweep finds what else is due of an owner.
        view.walk(Space::Core, b"o", &prefix_end(b"o"), &mut |key, _| {
            index.note_due(&String::from_utf8_lossy(&key[1..]), 0);
            Ok(ControlFlow::Continue(()))
        })?;
        for owner in index.owners.values_mut() {
            // The cap isn't known before the first lease request: one slot lets a first session come and set it.
            owner.cap = owner.agents.values().any(|agent| !agent.waiting.is_empty()).then_some(1);
        }
        Ok(index)
    }

    /// Returns the owner's index, created if needed.
    pub(super) fn owner_mut(&mut self, owner: &str) -> &mut OwnerIndex {
        if !self.owners.contains_key(owner) {
            self.owners.insert(owner.to_owned(), OwnerIndex::default());
        }
        self.owners.get_mut(owner).expect("inserted above")
    }

    /// Notes that something of the owner is due at `at`: a sweep runs at that time or before.
    pub(super) fn note_due(&mut self, owner: &str, at: u64) {
        let index = self.owner_mut(owner);
        index.due_since_sweep = index.due_since_sweep.into_iter().chain([at]).min();
        if index.sweep_at.is_none_or(|look| at < look) {
            self.set_sweep_time(owner, Some(at));
        }
    }

    /// Notes the begin of a sweep; if it doesn't end, the next one runs at `again`.
    pub(super) fn begin_sweep(&mut self, owner: &str, again: u64) {
        self.owner_mut(owner).due_since_sweep = None;
        self.set_sweep_time(owner, Some(again));
    }

    /// Notes the end of a sweep; the next one runs at `again`, or earlier if something became due meanwhile.
    pub(super) fn end_sweep(&mut self, owner: &str, again: Option<u64>) {
        let asked = self.owner_mut(owner).due_since_sweep;
        self.set_sweep_time(owner, again.into_iter().chain(asked).min());
    }

    /// Takes over sweep times from the index before, since records don't contain them.
    pub(super) fn copy_sweep_times(&mut self, before: &Self) {
        for (owner, index) in &before.owners {
            self.owner_mut(owner).due_since_sweep = index.due_since_sweep;
            self.set_sweep_time(owner, index.sweep_at);
        }
    }

    fn set_sweep_time(&mut self, owner: &str, at: Option<u64>) {
        let before = std::mem::replace(&mut self.owner_mut(owner).sweep_at, at);
        if let Some(before) = before {
            self.sweep_times.remove(&(before, owner.to_owned()));
        }
        if let Some(at) = at {
            self.sweep_times.insert((at, owner.to_owned()));
        }
    }

    /// Returns the first `limit` owners to sweep up to `until`, with the time.
    pub(super) fn owners_to_sweep(&self, until: u64, limit: usize) -> Vec<(u64, String)> {
        self.sweep_times.iter().take_while(|(at, _)| *at <= until).take(limit).cloned().collect()
    }

    /// Whether the owner is known to be on the list of owners.
    pub(super) fn is_registered(&self, owner: &str) -> bool {
        self.owners.get(owner).is_some_and(|index| index.registered)
    }

    /// Returns the owner's index, if it has one.
    pub(super) fn find_owner(&self, owner: &str) -> Option<&OwnerIndex> {
        self.owners.get(owner)
    }

    /// Returns the agent's index, if it has one.
    pub(super) fn find_agent(&self, owner: &str, agent: &str) -> Option<&AgentIndex> {
        self.owners.get(owner)?.agents.get(agent)
    }

    /// Returns owner and session of every lease that ends after a time.
    pub(super) fn live_leases(&self, after: u64) -> Vec<(String, String)> {
        let of_owner = |(owner, index): (&String, &OwnerIndex)| {
            let live = index.leases.range((after.saturating_add(1), String::new())..);
            live.map(|(_, session)| (owner.clone(), session.clone())).collect::<Vec<_>>()
        };
        self.owners.iter().flat_map(of_owner).collect()
    }

    /// Returns the owner's unpublished messages, in order.
    pub(super) fn outbox(&self, owner: &str) -> impl Iterator<Item = (&u64, &OutboxPlace)> {
        self.owners.get(owner).into_iter().flat_map(|o| &o.outbox)
    }

    /// Returns the first `limit` sessions due at `now`, and whether there are more.
    pub(super) fn overdue_sessions(&self, owner: &str, now: u64, limit: usize) -> (Vec<String>, bool) {
        let Some(index) = self.owners.get(owner) else { return (Vec::new(), false) };
        let mut due = index.due.iter().take_while(|(at, _)| *at <= now).map(|(_, session)| session.clone());
        let first = due.by_ref().take(limit).collect();
        (first, due.next().is_some())
    }

    /// Returns how many sessions of all owners are due by `until`.
    pub(super) fn count_due(&self, until: Millis) -> u64 {
        let due = |owner: &OwnerIndex| owner.due.iter().take_while(|(at, _)| *at <= until.0).count();
        self.owners.values().map(|owner| due(owner) as u64).sum()
    }

    /// Returns how many sessions of each agent wait for a slot, with the tokens of owner and agent.
    pub(super) fn waiting_sessions(&self) -> impl Iterator<Item = (&String, &String, u64)> {
        self.owners.iter().flat_map(|(owner, index)| {
            let waiting = index.agents.iter().map(|(agent, index)| (agent, index.waiting.len() as u64));
            waiting.filter(|(_, waiting)| *waiting > 0).map(move |(agent, waiting)| (owner, agent, waiting))
        })
    }

    /// Returns the agents whose sessions wait.
    pub(super) fn agents_waiting(&self, owner: &str) -> Vec<String> {
        let agents = self.owners.get(owner).into_iter().flat_map(|o| &o.agents);
        agents.filter(|(_, a)| !a.waiting.is_empty()).map(|(token, _)| token.clone()).collect()
    }

    /// Returns the first `limit` messages that weren't published within `grace`, and whether there are more.
    pub(super) fn stale_messages(&self, owner: &str, now: Millis, grace: Duration, limit: usize) -> (Vec<u64>, bool) {
        let is_stale = |(_, entry): &(&u64, &OutboxPlace)| Millis(entry.at).plus(grace) <= now;
        let mut stale = self.outbox(owner).filter(is_stale).map(|(place, _)| *place);
        let first = stale.by_ref().take(limit).collect();
        (first, stale.next().is_some())
    }

    /// Returns when the owner must be swept because of its sessions and its outbox.
    pub(super) fn next_sweep(&self, owner: &str, now: Millis, grace: Duration) -> Option<Millis> {
        let index = self.owners.get(owner)?;
        let due = index.due.first().map(|(at, _)| Millis(*at));
        let outbox = index.outbox.values().map(|entry| Millis(entry.at).plus(grace)).min();
        // Woken sessions that didn't come are woken again.
        let told = (!index.woken.is_empty()).then(|| now.plus(grace));
        due.into_iter().chain(outbox).chain(told).min()
    }

    /// Returns a number larger than any given before.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Updates the index after a session record changed from `was` to `is`.
    pub(super) fn update_session(&mut self, owner: &str, session: &str, was: &SessionRecord, is: &SessionRecord) {
        self.next = self.next.max(is.waiting.unwrap_or(0));
        let index = self.owner_mut(owner);
        if was.due != is.due {
            if let Some(due) = was.due {
                index.due.remove(&(due.0, session.to_owned()));
            }
            if let Some(due) = is.due {
                index.due.insert((due.0, session.to_owned()));
                self.note_due(owner, due.0);
            }
        }
        let index = self.owner_mut(owner);
        let (old, new) = (was.lease.as_ref().map(|l| l.until.0), is.lease.as_ref().map(|l| l.until.0));
        if old == new && was.ticket() == is.ticket() {
            return;
        }
        let agent = index.agents.entry(agent_of(session).to_owned()).or_default();
        if old != new {
            for leases in [&mut agent.leases, &mut index.leases] {
                if let Some(until) = old {
                    leases.remove(&(until, session.to_owned()));
                }
                if let Some(until) = new {
                    leases.insert((until, session.to_owned()));
                }
            }
        }
        if was.ticket() != is.ticket() {
            if let Some(ticket) = was.ticket() {
                agent.waiting.remove(&ticket);
            }
            if let Some(ticket) = is.ticket() {
                agent.waiting.insert(ticket, session.to_owned());
            } else {
                index.woken.remove(session);
            }
        }
        let (is_empty, waits) = (agent.is_empty(), !agent.waiting.is_empty());
        if !waits {
            index.dequeue_agent(agent_of(session));
        }
        if is_empty {
            index.agents.remove(agent_of(session));
        }
    }
}

/// Splits a `core` key into owner and rest.
pub(super) fn split_key(key: &[u8]) -> Result<(String, String), StoreFault> {
    let bad = || StoreFault::Record(format!("key {:?}", String::from_utf8_lossy(key)));
    let text = std::str::from_utf8(key.get(1..).unwrap_or_default()).map_err(|_| bad())?;
    let (owner, rest) = text.split_once('\0').ok_or_else(bad)?;
    Ok((owner.to_owned(), rest.to_owned()))
}

/// Decodes a session record from JSON.
pub(super) fn parse_session(bytes: &[u8]) -> Result<SessionRecord, StoreFault> {
    serde_json::from_slice(bytes).map_err(|e| StoreFault::Record(format!("session record: {e}")))
}
