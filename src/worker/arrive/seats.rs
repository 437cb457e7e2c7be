//! Who has a slot of a worker, and which sessions wait for one.
//!
//! Where a venue has several tenants, none can hold all slots, some are left for tenants that have none, and of the
//! sessions that wait those are called first whose tenant has the fewest: one that submits very much keeps the others
//! waiting for a slot, and not for all that it has submitted. The users of one tenant share what it has in the same way.
//! So that the messages of others are seen behind its own, more is taken from the queue than there are slots for. A
//! session that comes while no slot is free, or its owner has its share, isn't leased: it stays due in the store, where any worker finds it, and
//! is remembered here. While slots are held long, as by models that never answer, sessions of owners that hold none begin
//! beyond the slots. The queue shows how much waits: messages of sessions that do aren't acknowledged as long as their
//! owner has as many here, and who scales a fleet by the queue sees them.

mod table;

use crate::bus::{Settle, WhenEmpty};
use crate::domain::ids::{Owner, OwnerPart, SessionKey};
use crate::domain::share::{PlaceShares, TakenPlaces, first_with_fewest};
use crate::process::clock::Clock;
use crate::venue::census::OwnerCensus;
use crate::worker::holds::LongHoldCounts;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use table::{LinePlace, Table, TenantSlots};
use tokio::sync::Notify;

/// Sessions of one owner that are remembered, and of all together; those beyond are asked for when these have had their
/// turn.
const REMEMBERED: usize = 1_000;
const REMEMBERED_IN_ALL: usize = 20_000;

/// Of those at most so many because a wake names them: anybody may have sent it, and the store knows who is due.
const NAMED: usize = 256;

/// Sessions that other workers are told of when those of an owner begin to wait here: they have room, or they don't.
const TOLD: usize = 16;

/// Messages of sessions that wait, of all owners together: enough to see that workers are missing, and of hundreds of
/// workers together far from the number at which a consumer delivers nothing more.
const HELD: usize = 200;

/// Messages that are taken at once where there are several owners, whatever is free: a queue that is full of one
/// owner's gives many almost as fast as one.
pub(super) const AHEAD: usize = 256;

/// Pause between two looks into the queue while no slot is free.
const LOOK: Duration = Duration::from_millis(100);

/// The same where one owner has all slots, and what is taken then: a cancellation among the next few needs no slot. The
/// rest stays in the queue, in its order.
const LOOK_ALONE: Duration = Duration::from_secs(1);
const AHEAD_ALONE: usize = 32;

/// Who has a slot here, and who came in vain.
#[derive(Debug)]
pub(crate) struct Seats {
    slots: usize,
    shares: PlaceShares,
    census: Arc<OwnerCensus>,
    table: Mutex<Table>,
    changed: Notify,
}

/// What waited at a worker that calls nobody any more.
#[derive(Default)]
pub(crate) struct GivenUp {
    pub(crate) sessions: Vec<(Owner, SessionKey)>,
    /// Unacknowledged.
    pub(crate) messages: Vec<Arc<dyn Settle>>,
}

/// Why a session comes to wait.
pub(crate) enum Waits<'a> {
    /// What this message brought is admitted to it.
    Admitted(&'a Arc<dyn Settle>),
    /// It is due in the store.
    Due,
    /// Somebody says so.
    Named,
}

/// A slot of an owner, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    /// Whose.
    pub(crate) owner: Owner,
}

/// What is asked of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Messages at most.
    pub(crate) most: usize,
    /// When there is none.
    pub(crate) when_empty: WhenEmpty,
}

impl Seats {
    /// Of a worker with so many slots.
    pub(crate) fn new(slots: usize, percent: u32, census: Arc<OwnerCensus>, clock: &Clock) -> Arc<Self> {
        let shares = PlaceShares::new(slots, percent);
        Arc::new(Self { slots, shares, census, table: Mutex::new(Table::new(clock.clone())), changed: Notify::new() })
    }

    /// More is known of the owners among whom slots are shared.
    pub(crate) fn note_census(&self) {
        self.changed.notify_one();
    }

    /// Notes who wants a slot: the second owner is seen with its first message.
    fn meet(&self, owner: &Owner) {
        if self.census.meet(owner) {
            self.note_census();
        }
    }

    /// Slots that are left to an owner.
    fn room(&self, table: &Table, owner: &Owner) -> usize {
        let taken = table.taken_beside(owner, &table.long_holds(self.slots));
        self.shares.room(taken, self.census.sharers(owner.tenant()))
    }

    /// Whose session is called next: of the tenants that have room the one with the fewest slots, and of its users that
    /// have room the one with the fewest; those that have as many take turns.
    fn next_turn(&self, table: &Table) -> Option<LinePlace> {
        let long = table.long_holds(self.slots);
        let tenants = table.turns.iter().map(|name| {
            let slots = table.tenants.get(name);
            (
                slots.map_or(0, |slots| slots.taken),
                slots.is_some_and(|slots| self.next_user(table, name, slots, &long).is_some()),
            )
        });
        let tenant = first_with_fewest(tenants)?;
        let name = table.turns.get(tenant)?;
        let user = self.next_user(table, name, table.tenants.get(name)?, &long)?;
        Some(LinePlace { tenant, user })
    }

    fn next_user(&self, table: &Table, name: &OwnerPart, slots: &TenantSlots, long: &LongHoldCounts) -> Option<usize> {
        let sharers = self.census.sharers(name);
        let long = long.seen_by(name);
        let taken = |user| TakenPlaces { all: table.taken, tenant: slots.taken, user, long };
        // Where one that holds none has no room, no user has.
        if self.shares.room(taken(0), sharers) == 0 {
            return None;
        }
        let users = slots.turns.iter().map(|user| slots.taken_by(user));
        first_with_fewest(users.map(|own| (own, self.shares.room(taken(own), sharers) > 0)))
    }

    /// Owners whose sessions wait although slots are free: others of theirs hold their share. At most `limit` of them.
    pub(crate) fn owners_at_share(&self, limit: usize) -> Vec<String> {
        let table = self.table.lock();
        if table.taken >= self.slots {
            return Vec::new();
        }
        let tenants = table.tenants.iter();
        let users =
            tenants.flat_map(|(tenant, slots)| slots.users.iter().map(move |(user, mine)| (tenant, user, mine)));
        let waiting = users.filter(|(.., mine)| !mine.waiting.is_empty() || mine.behind);
        let owners = waiting.map(|(tenant, user, _)| Owner::new(tenant.clone(), user.clone()));
        let mut found: Vec<_> =
            owners.filter(|owner| self.room(&table, owner) == 0).map(|owner| owner.to_string()).collect();
        found.sort_unstable();
        found.truncate(limit);
        found
    }

    /// What to ask of the queue, as soon as there is something to ask. As long as no slot is free that is what nobody
    /// else has taken: a message that comes now is for a worker that has one. `more`: there was something the last time.
    pub(crate) async fn ask(&self, more: bool) -> Ask {
        let mut look = std::pin::pin!(tokio::time::sleep(LOOK));
        let mut look_alone = std::pin::pin!(tokio::time::sleep(LOOK_ALONE));
        loop {
            let changed = self.changed.notified();
            let (free, shared) = {
                let table = self.table.lock();
                (self.slots.saturating_sub(table.taken), !self.census.is_alone())
            };
            if free > 0 {
                return Ask { most: if shared { AHEAD } else { free }, when_empty: WhenEmpty::Wait };
            }
            let (mut look, most) = if shared { (look.as_mut(), AHEAD) } else { (look_alone.as_mut(), AHEAD_ALONE) };
            if shared && more || look.is_elapsed() {
                return Ask { most, when_empty: WhenEmpty::Return };
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut look => {}
            }
        }
    }

    /// A slot for a session of this owner; none when all are taken, it has its share, or others of its sessions wait.
    pub(crate) fn take(self: &Arc<Self>, owner: &Owner) -> Option<Seat> {
        self.meet(owner);
        let mut table = self.table.lock();
        let others_wait = table.find(owner).is_some_and(|mine| !mine.waiting.is_empty());
        if others_wait || self.room(&table, owner) == 0 {
            return None;
        }
        Some(self.sit(&mut table, owner.clone()))
    }

    fn sit(self: &Arc<Self>, table: &mut Table, owner: Owner) -> Seat {
        table.taken += 1;
        table.tenant_mut(&owner).taken += 1;
        table.owner_mut(&owner).taken += 1;
        let number = table.numbered;
        table.numbered += 1;
        table.holds.begin(number, owner.clone());
        Seat { seats: Arc::clone(self), number, owner }
    }

    /// Remembers a session that came in vain. Returns whether its message is kept unacknowledged, until
    /// [`Seats::release`] says that nothing is to be seen in it any more.
    pub(crate) fn pass_over(&self, owner: &Owner, session: &SessionKey, why: &Waits<'_>) -> bool {
        self.meet(owner);
        let mut table = self.table.lock();
        let (is_full, may_hold) = (table.waiting >= REMEMBERED_IN_ALL, table.held < HELD);
        let mine = table.owner_mut(owner);
        if mine.waiting.contains(session) {
            return false;
        }
        let most = if matches!(why, Waits::Named) { NAMED } else { REMEMBERED };
        let is_first = mine.waiting.is_empty();
        let is_remembered = mine.waiting.len() < most && (is_first || !is_full);
        if is_remembered {
            mine.waiting.push_back(session.clone());
        } else {
            mine.note_more_due();
        }
        let is_held = match why {
            Waits::Admitted(message) if may_hold => {
                mine.held.push(Arc::clone(message));
                true
            }
            Waits::Admitted(_) | Waits::Due | Waits::Named => false,
        };
        table.waiting += usize::from(is_remembered);
        table.held += usize::from(is_held);
        if is_first && is_remembered {
            table.queue_owner(owner);
        }
        is_held
    }

    /// Whether other workers are to hear of a session that was passed over: the first few since none of its owner waited.
    pub(crate) fn is_to_be_told(&self, owner: &Owner) -> bool {
        let mut table = self.table.lock();
        let Some(mine) = table.find_mut(owner).filter(|mine| mine.told < TOLD) else { return false };
        mine.told += 1;
        true
    }

    /// Messages of an owner of whom no longer as many sessions wait: they are to be acknowledged.
    pub(crate) fn release(&self, owner: &Owner) -> Vec<Arc<dyn Settle>> {
        let mut table = self.table.lock();
        let Some(mine) = table.find_mut(owner) else { return Vec::new() };
        if mine.behind {
            return Vec::new();
        }
        let wait = mine.waiting.len().min(mine.held.len());
        let released = mine.held.split_off(wait);
        table.held = table.held.saturating_sub(released.len());
        table.forget_gone(owner);
        released
    }

    /// All messages that are kept unacknowledged.
    pub(crate) fn held(&self) -> Vec<Arc<dyn Settle>> {
        let table = self.table.lock();
        let users = table.tenants.values().flat_map(|tenant| tenant.users.values());
        users.flat_map(|mine| mine.held.iter().map(Arc::clone)).collect()
    }

    /// The session that is called next, with its slot: the one that has waited longest of the owner whose turn it is.
    pub(crate) fn next(self: &Arc<Self>) -> Option<(Seat, SessionKey)> {
        let mut table = self.table.lock();
        let turn = self.next_turn(&table)?;
        let (owner, session) = table.take_waiting(turn)?;
        Some((self.sit(&mut table, owner), session))
    }

    /// More sessions may be due in the store of this owner than were told.
    pub(crate) fn note_more_due(&self, owner: &Owner) {
        self.table.lock().owner_mut(owner).note_more_due();
    }

    /// How many sessions of an owner that has left a slot are to be asked of the store, until [`Seats::finish_lookup`]: it
    /// has room, none that is remembered waits, and more may be due. `None`: not now; where it has nothing here any more
    /// the sweep sees to it.
    pub(crate) fn missing(&self, owner: &Owner) -> Option<usize> {
        let mut table = self.table.lock();
        let room = self.room(&table, owner);
        let mine = table.find_mut(owner)?;
        if !mine.behind || mine.asked || !mine.waiting.is_empty() || room == 0 && mine.taken > 0 {
            return None;
        }
        if room > 0 {
            mine.asked = true;
            return Some(room.max(self.shares.most_of_tenant().min(REMEMBERED)));
        }
        mine.behind = false;
        table.forget_gone(owner);
        None
    }

    /// The store was asked, and has told as much as was asked for, or not.
    pub(crate) fn finish_lookup(&self, owner: &Owner, more: bool) {
        let mut table = self.table.lock();
        let Some(mine) = table.find_mut(owner) else { return };
        // Of an owner that has nothing here any more the sweep tells.
        let is_here = mine.taken > 0 || !mine.waiting.is_empty();
        mine.behind = more || mine.due_since_asked && is_here;
        (mine.asked, mine.due_since_asked) = (false, false);
        table.forget_gone(owner);
    }

    /// Whether another session of this owner would find no slot.
    pub(crate) fn is_full(&self, owner: &Owner) -> bool {
        let table = self.table.lock();
        table.find(owner).is_some_and(|mine| !mine.waiting.is_empty()) || self.room(&table, owner) == 0
    }

    /// All that wait, and their messages, as nobody is called any more.
    pub(crate) fn give_up(&self) -> GivenUp {
        let mut table = self.table.lock();
        (table.waiting, table.held) = (0, 0);
        let mut given = GivenUp::default();
        for (name, tenant) in &mut table.tenants {
            tenant.turns.clear();
            for (user, mine) in &mut tenant.users {
                let owner = Owner::new(name.clone(), user.clone());
                given.sessions.extend(mine.waiting.drain(..).map(|session| (owner.clone(), session)));
                given.messages.append(&mut mine.held);
            }
            tenant.users.retain(|_, mine| !mine.has_nothing());
        }
        table.turns.clear();
        table.tenants.retain(|_, tenant| !tenant.users.is_empty());
        given
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.seats.table.lock();
        table.taken = table.taken.saturating_sub(1);
        table.holds.end(&self.number);
        if let Some(tenant) = table.tenants.get_mut(self.owner.tenant()) {
            tenant.taken = tenant.taken.saturating_sub(1);
        }
        if let Some(mine) = table.find_mut(&self.owner) {
            mine.taken = mine.taken.saturating_sub(1);
        }
        table.forget_gone(&self.owner);
        drop(table);
        self.seats.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
