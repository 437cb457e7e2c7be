//! Slots taken by each owner, and the lines of owners whose sessions wait.

use crate::bus::Acknowledge;
use crate::domain::ids::{Owner, OwnerPart, SessionKey};
use crate::domain::share::TakenPlaces;
use crate::process::clock::Clock;
use crate::worker::state::holds::{HoldTable, LongHoldCounts};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Slots that are taken, and sessions that wait for one.
#[derive(Debug)]
pub(crate) struct SlotLines {
    pub(crate) taken: usize,
    /// Waiting sessions of all owners.
    pub(crate) waiting: usize,
    pub(crate) unacknowledged_count: usize,
    pub(crate) tenants: HashMap<OwnerPart, TenantSlots>,
    /// Tenants with waiting sessions, in the order of their turns.
    pub(crate) tenant_order: VecDeque<OwnerPart>,
    pub(crate) holds: HoldTable<u64>,
    /// Number of the next slot that is taken.
    pub(crate) next_number: u64,
}

/// Slots of one tenant and its users.
#[derive(Debug, Default)]
pub(crate) struct TenantSlots {
    pub(crate) taken: usize,
    pub(crate) users: HashMap<OwnerPart, OwnerSlots>,
    /// Users with waiting sessions, in the order of their turns.
    pub(crate) turns: VecDeque<OwnerPart>,
}

impl TenantSlots {
    pub(crate) fn count_taken_by(&self, user: &OwnerPart) -> usize {
        self.users.get(user).map_or(0, |slots| slots.taken)
    }
}

impl SlotLines {
    /// Makes an empty table.
    pub(crate) fn new(clock: Clock) -> Self {
        let (tenants, turns) = (HashMap::new(), VecDeque::new());
        Self {
            taken: 0,
            waiting: 0,
            unacknowledged_count: 0,
            tenants,
            tenant_order: turns,
            holds: HoldTable::new(clock),
            next_number: 0,
        }
    }

    pub(crate) fn find(&self, owner: &Owner) -> Option<&OwnerSlots> {
        self.tenants.get(owner.tenant())?.users.get(owner.user())
    }

    pub(crate) fn find_mut(&mut self, owner: &Owner) -> Option<&mut OwnerSlots> {
        self.tenants.get_mut(owner.tenant())?.users.get_mut(owner.user())
    }

    pub(crate) fn tenant_mut(&mut self, owner: &Owner) -> &mut TenantSlots {
        self.tenants.entry(owner.tenant().clone()).or_default()
    }

    pub(crate) fn owner_mut(&mut self, owner: &Owner) -> &mut OwnerSlots {
        self.tenant_mut(owner).users.entry(owner.user().clone()).or_default()
    }

    pub(crate) fn count_taken(&self, owner: &Owner, long: &LongHoldCounts) -> TakenPlaces {
        let tenant = self.tenants.get(owner.tenant());
        let user = tenant.map_or(0, |tenant| tenant.count_taken_by(owner.user()));
        let of_tenant = tenant.map_or(0, |tenant| tenant.taken);
        TakenPlaces { all: self.taken, tenant: of_tenant, user, long: long.counts_for(owner.tenant()) }
    }

    /// Counts long-held slots; only where none of `slots` is free, else zero.
    pub(crate) fn long_holds(&self, slots: usize) -> LongHoldCounts {
        if self.taken < slots { LongHoldCounts::default() } else { self.holds.count_long() }
    }

    /// Puts an owner at the end of the line when its first session begins to wait.
    pub(crate) fn queue_owner(&mut self, owner: &Owner) {
        let tenant = self.tenant_mut(owner);
        tenant.turns.push_back(owner.user().clone());
        if tenant.turns.len() == 1 {
            self.tenant_order.push_back(owner.tenant().clone());
        }
    }

    /// Takes the oldest waiting session of a user; a user and a tenant with more go to the end of their lines.
    pub(crate) fn take_waiting(&mut self, LinePlace { tenant, user }: LinePlace) -> Option<(Owner, SessionKey)> {
        let of_tenant = self.tenant_order.remove(tenant)?;
        let slots = self.tenants.get_mut(&of_tenant)?;
        let of_user = slots.turns.remove(user)?;
        let of_owner = slots.users.get_mut(&of_user)?;
        let session = of_owner.waiting.pop_front()?;
        if of_owner.waiting.is_empty() {
            of_owner.wakes_sent = 0;
        } else {
            slots.turns.push_back(of_user.clone());
        }
        if !slots.turns.is_empty() {
            self.tenant_order.push_back(of_tenant.clone());
        }
        self.waiting = self.waiting.saturating_sub(1);
        Some((Owner::new(of_tenant, of_user), session))
    }

    /// Removes the entry of an owner without slots and without waiting sessions.
    pub(crate) fn remove_if_empty(&mut self, owner: &Owner) {
        let Some(tenant) = self.tenants.get_mut(owner.tenant()) else { return };
        if tenant.users.get(owner.user()).is_some_and(OwnerSlots::is_unused) {
            tenant.users.remove(owner.user());
        }
        if tenant.users.is_empty() {
            self.tenants.remove(owner.tenant());
        }
    }
}

/// Position in the line of tenants, and in the line of that tenant's users.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinePlace {
    pub(crate) tenant: usize,
    pub(crate) user: usize,
}

/// Slots and waiting sessions of one owner.
#[derive(Default)]
pub(crate) struct OwnerSlots {
    pub(crate) taken: usize,
    pub(crate) waiting: VecDeque<SessionKey>,
    /// More sessions than these may be due in the store.
    pub(crate) has_more_due: bool,
    /// A lookup in the store is under way.
    pub(crate) is_lookup_running: bool,
    /// More became due since the lookup began.
    pub(crate) due_during_lookup: bool,
    /// Wakes sent to other workers since no session waited.
    pub(crate) wakes_sent: usize,
    /// Unacknowledged messages of sessions that wait or waited here.
    pub(crate) unacknowledged: Vec<Arc<dyn Acknowledge>>,
}

impl OwnerSlots {
    /// Records that more sessions may be due in the store than wait here.
    pub(crate) fn note_more_due(&mut self) {
        (self.has_more_due, self.due_during_lookup) = (true, self.is_lookup_running);
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.taken == 0
            && self.waiting.is_empty()
            && !self.has_more_due
            && !self.is_lookup_running
            && self.unacknowledged.is_empty()
    }
}

impl std::fmt::Debug for OwnerSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            taken,
            waiting,
            has_more_due: behind,
            is_lookup_running: asked,
            due_during_lookup: due_since_asked,
            wakes_sent: told,
            unacknowledged: held,
        } = self;
        let (waiting, held) = (waiting.len(), held.len());
        let asked = (asked, due_since_asked);
        write!(f, "{taken} run, {waiting} wait, {held} held, behind {behind}, asked {asked:?}, told {told}")
    }
}
