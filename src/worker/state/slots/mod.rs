//! Slots of a worker, and the sessions that wait for one.
//!
//! Where a venue has several tenants, none may take all slots, and some are reserved for tenants that hold none. Of the
//! waiting sessions, one of the tenant with the fewest slots is started first, so a tenant that submits very much
//! delays others by one slot, not by all that it has submitted. Users of one tenant share its slots in the same way.
//! More messages are taken from the queue than there are free slots, so that messages of other owners behind them are
//! seen.
//!
//! A session without a slot is not leased: it stays due in the store, where any worker finds it, and is remembered
//! here. While slots are held long, as by models that never answer, sessions of owners that hold none begin beyond the
//! number of slots. Messages of waiting sessions stay unacknowledged, at most as many as wait, so that the queue's
//! length shows the load to an autoscaler.

mod lines;

use crate::bus::{Acknowledge, WhenEmpty};
use crate::domain::ids::{Owner, OwnerPart, SessionKey};
use crate::domain::share::{PlaceShares, TakenPlaces, first_with_fewest};
use crate::process::clock::Clock;
use crate::venue::census::OwnerCensus;
use crate::worker::state::holds::LongHoldCounts;
use lines::{LinePlace, SlotLines, TenantSlots};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Waiting sessions that are remembered, of one owner and of all; the others are read from the store later.
const OWNER_WAITING_MAX: usize = 1_000;
const WAITING_MAX: usize = 20_000;

/// Remembered sessions known only by a wake: anybody may have sent it, and the store knows which are due.
const UNCONFIRMED_MAX: usize = 256;

/// Wakes published to other workers when sessions of an owner begin to wait here.
const WAKES_MAX: usize = 16;

/// Unacknowledged messages of waiting sessions, of all owners: enough to show the load, and with hundreds of workers
/// still far below the number at which a consumer stops delivering.
const UNACKNOWLEDGED_MAX: usize = 200;

/// Messages received at once while several owners are known: reading past the messages of one owner costs little more
/// than reading one.
pub(crate) const READ_AHEAD: usize = 256;

/// Pause between two reads of the queue while no slot is free.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// Pause and number of messages while one owner has all slots: a cancellation among the next few needs no slot. The
/// rest stays in the queue, in order.
const READ_PAUSE_ALONE: Duration = Duration::from_secs(1);
const READ_AHEAD_ALONE: usize = 32;

/// Slots of this worker, and the sessions that wait for one.
#[derive(Debug)]
pub(crate) struct SlotTable {
    slots: usize,
    shares: PlaceShares,
    census: Arc<OwnerCensus>,
    table: Mutex<SlotLines>,
    changed: Notify,
}

/// Sessions and messages that still waited when the worker stopped.
#[derive(Default)]
pub(crate) struct WaitingWork {
    pub(crate) sessions: Vec<(Owner, SessionKey)>,
    /// Messages that are not acknowledged yet.
    pub(crate) messages: Vec<Arc<dyn Acknowledge>>,
}

/// Reason why a session waits for a slot.
pub(crate) enum SlotWait<'a> {
    /// The event of this message is admitted to it.
    Admitted(&'a Arc<dyn Acknowledge>),
    /// The store says that it is due.
    Due,
    /// A wake says that it is due; the store has not confirmed it.
    Woken,
}

/// A slot of an owner; dropping it releases it.
#[derive(Debug)]
pub(crate) struct AdmissionSlot {
    slots: Arc<SlotTable>,
    number: u64,
    /// Owner that holds the slot.
    pub(crate) owner: Owner,
}

/// A request to the queue for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueRequest {
    /// Messages at most.
    pub(crate) limit: usize,
    /// Whether to wait when the queue is empty.
    pub(crate) when_empty: WhenEmpty,
}

impl SlotTable {
    /// Makes the table of a worker with so many slots, of which one owner may take `percent`.
    pub(crate) fn new(slots: usize, percent: u32, census: Arc<OwnerCensus>, clock: &Clock) -> Arc<Self> {
        let shares = PlaceShares::new(slots, percent);
        Arc::new(Self {
            slots,
            shares,
            census,
            table: Mutex::new(SlotLines::new(clock.clone())),
            changed: Notify::new(),
        })
    }

    /// Records that the census of owners has changed.
    pub(crate) fn note_census(&self) {
        self.changed.notify_one();
    }

    /// Records an owner that needs a slot; the second owner is known from its first message.
    fn note_owner(&self, owner: &Owner) {
        if self.census.meet(owner) {
            self.note_census();
        }
    }

    /// Counts the slots that an owner may still take.
    fn count_room(&self, table: &SlotLines, owner: &Owner) -> usize {
        let taken = table.count_taken(owner, &table.long_holds(self.slots));
        self.shares.room(taken, self.census.sharers(owner.tenant()))
    }

    /// Returns whose session runs next: of the tenants that have room the one with the fewest slots, of its users the
    /// one with the fewest; equals take turns.
    fn pick_next_line(&self, table: &SlotLines) -> Option<LinePlace> {
        let long = table.long_holds(self.slots);
        let tenants = table.tenant_order.iter().map(|name| {
            let slots = table.tenants.get(name);
            (
                slots.map_or(0, |slots| slots.taken),
                slots.is_some_and(|slots| self.next_user(table, name, slots, &long).is_some()),
            )
        });
        let tenant = first_with_fewest(tenants)?;
        let name = table.tenant_order.get(tenant)?;
        let user = self.next_user(table, name, table.tenants.get(name)?, &long)?;
        Some(LinePlace { tenant, user })
    }

    fn next_user(
        &self,
        table: &SlotLines,
        name: &OwnerPart,
        slots: &TenantSlots,
        long: &LongHoldCounts,
    ) -> Option<usize> {
        let sharers = self.census.sharers(name);
        let long = long.counts_for(name);
        let taken = |user| TakenPlaces { all: table.taken, tenant: slots.taken, user, long };
        // If a user without slots has no room, no user of this tenant has.
        if self.shares.room(taken(0), sharers) == 0 {
            return None;
        }
        let users = slots.turns.iter().map(|user| slots.count_taken_by(user));
        first_with_fewest(users.map(|own| (own, self.shares.room(taken(own), sharers) > 0)))
    }

    /// Lists at most `limit` owners whose sessions wait for their share although slots are free.
    pub(crate) fn owners_at_share(&self, limit: usize) -> Vec<String> {
        let table = self.table.lock();
        if table.taken >= self.slots {
            return Vec::new();
        }
        let tenants = table.tenants.iter();
        let users =
            tenants.flat_map(|(tenant, slots)| slots.users.iter().map(move |(user, mine)| (tenant, user, mine)));
        let waiting = users.filter(|(.., mine)| !mine.waiting.is_empty() || mine.has_more_due);
        let owners = waiting.map(|(tenant, user, _)| Owner::new(tenant.clone(), user.clone()));
        let mut found: Vec<_> =
            owners.filter(|owner| self.count_room(&table, owner) == 0).map(|owner| owner.to_string()).collect();
        found.sort_unstable();
        found.truncate(limit);
        found
    }

    /// Returns the next request to the queue, as soon as one is useful. While no slot is free it doesn't wait for
    /// messages: new ones are for workers that have a slot. `more`: the last request returned messages.
    pub(crate) async fn next_queue_request(&self, more: bool) -> QueueRequest {
        let mut look = std::pin::pin!(tokio::time::sleep(READ_PAUSE));
        let mut look_alone = std::pin::pin!(tokio::time::sleep(READ_PAUSE_ALONE));
        loop {
            let changed = self.changed.notified();
            let (free, shared) = {
                let table = self.table.lock();
                (self.slots.saturating_sub(table.taken), !self.census.is_alone())
            };
            if free > 0 {
                return QueueRequest { limit: if shared { READ_AHEAD } else { free }, when_empty: WhenEmpty::Wait };
            }
            let (mut look, most) =
                if shared { (look.as_mut(), READ_AHEAD) } else { (look_alone.as_mut(), READ_AHEAD_ALONE) };
            if shared && more || look.is_elapsed() {
                return QueueRequest { limit: most, when_empty: WhenEmpty::Return };
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut look => {}
            }
        }
    }

    /// Takes a slot for an owner; `None` if all are taken, its share is used, or other sessions of it wait.
    pub(crate) fn take(self: &Arc<Self>, owner: &Owner) -> Option<AdmissionSlot> {
        self.note_owner(owner);
        let mut table = self.table.lock();
        let others_wait = table.find(owner).is_some_and(|mine| !mine.waiting.is_empty());
        if others_wait || self.count_room(&table, owner) == 0 {
            return None;
        }
        Some(self.take_slot_for(&mut table, owner.clone()))
    }

    fn take_slot_for(self: &Arc<Self>, table: &mut SlotLines, owner: Owner) -> AdmissionSlot {
        table.taken += 1;
        table.tenant_mut(&owner).taken += 1;
        table.owner_mut(&owner).taken += 1;
        let number = table.next_number;
        table.next_number += 1;
        table.holds.begin(number, owner.clone());
        AdmissionSlot { slots: Arc::clone(self), number, owner }
    }

    /// Remembers a session without a slot. Returns whether its message stays unacknowledged, until
    /// [`SlotTable::release`] returns it.
    pub(crate) fn enqueue_waiting(&self, owner: &Owner, session: &SessionKey, why: &SlotWait<'_>) -> bool {
        self.note_owner(owner);
        let mut table = self.table.lock();
        let (is_full, may_hold) = (table.waiting >= WAITING_MAX, table.unacknowledged_count < UNACKNOWLEDGED_MAX);
        let mine = table.owner_mut(owner);
        if mine.waiting.contains(session) {
            return false;
        }
        let most = if matches!(why, SlotWait::Woken) { UNCONFIRMED_MAX } else { OWNER_WAITING_MAX };
        let is_first = mine.waiting.is_empty();
        let is_remembered = mine.waiting.len() < most && (is_first || !is_full);
        if is_remembered {
            mine.waiting.push_back(session.clone());
        } else {
            mine.note_more_due();
        }
        let is_held = match why {
            SlotWait::Admitted(message) if may_hold => {
                mine.unacknowledged.push(Arc::clone(message));
                true
            }
            SlotWait::Admitted(_) | SlotWait::Due | SlotWait::Woken => false,
        };
        table.waiting += usize::from(is_remembered);
        table.unacknowledged_count += usize::from(is_held);
        if is_first && is_remembered {
            table.queue_owner(owner);
        }
        is_held
    }

    /// Counts a wake for other workers and returns whether to send it: only the first few since the owner last waited.
    pub(crate) fn claim_announcement(&self, owner: &Owner) -> bool {
        let mut table = self.table.lock();
        let Some(mine) = table.find_mut(owner).filter(|mine| mine.wakes_sent < WAKES_MAX) else { return false };
        mine.wakes_sent += 1;
        true
    }

    /// Returns the messages of an owner that exceed its waiting sessions; they are to be acknowledged.
    pub(crate) fn release(&self, owner: &Owner) -> Vec<Arc<dyn Acknowledge>> {
        let mut table = self.table.lock();
        let Some(mine) = table.find_mut(owner) else { return Vec::new() };
        if mine.has_more_due {
            return Vec::new();
        }
        let wait = mine.waiting.len().min(mine.unacknowledged.len());
        let released = mine.unacknowledged.split_off(wait);
        table.unacknowledged_count = table.unacknowledged_count.saturating_sub(released.len());
        table.remove_if_empty(owner);
        released
    }

    /// Lists the messages that are unacknowledged.
    pub(crate) fn unacknowledged_messages(&self) -> Vec<Arc<dyn Acknowledge>> {
        let table = self.table.lock();
        let users = table.tenants.values().flat_map(|tenant| tenant.users.values());
        users.flat_map(|mine| mine.unacknowledged.iter().map(Arc::clone)).collect()
    }

    /// Takes a slot for the session that runs next: the oldest of the owner whose turn it is.
    pub(crate) fn take_next(self: &Arc<Self>) -> Option<(AdmissionSlot, SessionKey)> {
        let mut table = self.table.lock();
        let turn = self.pick_next_line(&table)?;
        let (owner, session) = table.take_waiting(turn)?;
        Some((self.take_slot_for(&mut table, owner), session))
    }

    /// Records that more sessions of this owner may be due in the store than are known here.
    pub(crate) fn note_more_due(&self, owner: &Owner) {
        self.table.lock().owner_mut(owner).note_more_due();
    }

    /// Returns how many sessions to ask the store for when a slot of the owner was released, until
    /// [`SlotTable::finish_lookup`]: it has room, none of its remembered sessions waits, and more may be due. `None`:
    /// not now; the sweep finds those of an owner that has nothing here.
    pub(crate) fn sessions_to_fetch(&self, owner: &Owner) -> Option<usize> {
        let mut table = self.table.lock();
        let room = self.count_room(&table, owner);
        let mine = table.find_mut(owner)?;
        if !mine.has_more_due || mine.is_lookup_running || !mine.waiting.is_empty() || room == 0 && mine.taken > 0 {
            return None;
        }
        if room > 0 {
            mine.is_lookup_running = true;
            return Some(room.max(self.shares.most_of_tenant().min(OWNER_WAITING_MAX)));
        }
        mine.has_more_due = false;
        table.remove_if_empty(owner);
        None
    }

    /// Ends a lookup in the store. `more`: the store returned as many sessions as were asked for.
    pub(crate) fn finish_lookup(&self, owner: &Owner, more: bool) {
        let mut table = self.table.lock();
        let Some(mine) = table.find_mut(owner) else { return };
        // The sweep finds the sessions of an owner that has nothing here.
        let is_here = mine.taken > 0 || !mine.waiting.is_empty();
        mine.has_more_due = more || mine.due_during_lookup && is_here;
        (mine.is_lookup_running, mine.due_during_lookup) = (false, false);
        table.remove_if_empty(owner);
    }

    /// Whether another session of this owner would find no slot.
    pub(crate) fn is_full(&self, owner: &Owner) -> bool {
        let table = self.table.lock();
        table.find(owner).is_some_and(|mine| !mine.waiting.is_empty()) || self.count_room(&table, owner) == 0
    }

    /// Removes all waiting sessions and their messages, when the worker stops.
    pub(crate) fn remove_waiting(&self) -> WaitingWork {
        let mut table = self.table.lock();
        (table.waiting, table.unacknowledged_count) = (0, 0);
        let mut given = WaitingWork::default();
        for (name, tenant) in &mut table.tenants {
            tenant.turns.clear();
            for (user, mine) in &mut tenant.users {
                let owner = Owner::new(name.clone(), user.clone());
                given.sessions.extend(mine.waiting.drain(..).map(|session| (owner.clone(), session)));
                given.messages.append(&mut mine.unacknowledged);
            }
            tenant.users.retain(|_, mine| !mine.is_unused());
        }
        table.tenant_order.clear();
        table.tenants.retain(|_, tenant| !tenant.users.is_empty());
        given
    }
}

impl Drop for AdmissionSlot {
    fn drop(&mut self) {
        let mut table = self.slots.table.lock();
        table.taken = table.taken.saturating_sub(1);
        table.holds.end(&self.number);
        if let Some(tenant) = table.tenants.get_mut(self.owner.tenant()) {
            tenant.taken = tenant.taken.saturating_sub(1);
        }
        if let Some(mine) = table.find_mut(&self.owner) {
            mine.taken = mine.taken.saturating_sub(1);
        }
        table.remove_if_empty(&self.owner);
        drop(table);
        self.slots.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
