//! Slots for operations that callers have invoked, and the operations that wait for one.

use super::holds::{HoldTable, LongHoldCounts};
use crate::domain::ids::{JobId, Owner, OwnerPart};
use crate::domain::share::{PlaceShares, TakenPlaces, first_with_fewest, subtract_count};
use crate::process::clock::Clock;
use crate::venue::census::OwnerCensus;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Operations remembered while all slots are taken; the sweep finds the others. None has all of them: one of a tenant or
/// user with fewer takes the place of one of those with the most.
const WAITING_MAX: usize = 1_000;

/// Slots for operations. No tenant may take all of them, and some are reserved for tenants that hold none; users of one
/// tenant share its slots in the same way.
#[derive(Debug)]
pub(crate) struct OperationSlots {
    shares: PlaceShares,
    census: Arc<OwnerCensus>,
    taken: Mutex<OperationCounts>,
}

#[derive(Debug)]
struct OperationCounts {
    tenants: HashMap<OwnerPart, usize>,
    owners: HashMap<Owner, usize>,
    /// Operations that run or wait here.
    known: HashSet<JobId>,
    waiting: VecDeque<(Owner, JobId)>,
    /// Numbers of operations in `waiting`.
    waiting_owners: HashMap<Owner, usize>,
    holds: HoldTable<JobId>,
}

impl OperationCounts {
    fn new(clock: Clock) -> Self {
        Self {
            tenants: HashMap::new(),
            owners: HashMap::new(),
            known: HashSet::new(),
            waiting: VecDeque::new(),
            waiting_owners: HashMap::new(),
            holds: HoldTable::new(clock),
        }
    }

    /// Remembers an operation that waits, if there is room for it.
    fn enqueue(&mut self, owner: &Owner, job: &JobId) {
        if self.waiting.len() >= WAITING_MAX {
            let Some(place) = self.place_to_free(owner) else { return };
            if let Some((_, forgotten)) = self.remove_waiting(place) {
                self.known.remove(&forgotten);
            }
        }
        self.known.insert(job.clone());
        self.waiting.push_back((owner.clone(), job.clone()));
        *self.waiting_owners.entry(owner.clone()).or_default() += 1;
    }

    fn remove_waiting(&mut self, place: usize) -> Option<(Owner, JobId)> {
        let (owner, job) = self.waiting.remove(place)?;
        subtract_count(&mut self.waiting_owners, &owner, 1);
        Some((owner, job))
    }

    /// Returns the place of the newest operation of the tenant that has the most, and of its users the one with the most;
    /// `None` if `owner`, or its tenant, doesn't have fewer.
    fn place_to_free(&self, owner: &Owner) -> Option<usize> {
        let mut tenants: HashMap<&OwnerPart, usize> = HashMap::new();
        for (waiting, count) in &self.waiting_owners {
            *tenants.entry(waiting.tenant()).or_default() += count;
        }
        let tenant_count = |owner: &Owner| tenants.get(owner.tenant()).copied().unwrap_or_default();
        let (most, user_count) =
            self.waiting_owners.iter().max_by_key(|(waiting, count)| (tenant_count(waiting), **count))?;
        let has_fewer = if most.tenant() == owner.tenant() {
            self.waiting_owners.get(owner).copied().unwrap_or_default() + 1 < *user_count
        } else {
            tenant_count(owner) + 1 < tenant_count(most)
        };
        has_fewer.then(|| self.waiting.iter().rposition(|(waiting, _)| waiting == most)).flatten()
    }

    fn count_taken(&self, owner: &Owner, long: &LongHoldCounts) -> TakenPlaces {
        let of = |counts: Option<&usize>| counts.copied().unwrap_or(0);
        let (tenant, user) = (of(self.tenants.get(owner.tenant())), of(self.owners.get(owner)));
        TakenPlaces { all: self.tenants.values().sum(), tenant, user, long: long.counts_for(owner.tenant()) }
    }

    fn add(&mut self, owner: &Owner, job: &JobId) {
        self.holds.begin(job.clone(), owner.clone());
        *self.tenants.entry(owner.tenant().clone()).or_default() += 1;
        *self.owners.entry(owner.clone()).or_default() += 1;
    }

    fn remove(&mut self, owner: &Owner, job: &JobId) {
        self.holds.end(job);
        subtract_count(&mut self.tenants, owner.tenant(), 1);
        subtract_count(&mut self.owners, owner, 1);
    }
}

impl OperationSlots {
    /// Makes `count` slots, of which one tenant, or one user of a tenant, may take `percent`.
    pub(crate) fn new(count: usize, percent: u32, census: Arc<OwnerCensus>, clock: &Clock) -> Self {
        let taken = Mutex::new(OperationCounts::new(clock.clone()));
        Self { shares: PlaceShares::new(count, percent), census, taken }
    }

    fn has_room(&self, taken: TakenPlaces, owner: &Owner) -> bool {
        self.shares.room(taken, self.census.sharers_always(owner.tenant())) > 0
    }

    /// Takes a slot for the operation. Returns `false` if none is free, then it is remembered, or if it is known here.
    pub(crate) fn try_take(&self, owner: &Owner, job: &JobId) -> bool {
        self.census.meet(owner);
        let mut taken = self.taken.lock();
        if taken.known.contains(job) {
            return false;
        }
        let long = taken.holds.count_long();
        if self.has_room(taken.count_taken(owner, &long), owner) {
            taken.known.insert(job.clone());
            taken.add(owner, job);
            return true;
        }
        taken.enqueue(owner, job);
        false
    }

    /// Releases a slot and gives it to the operation that waits next: of the tenants that have room the one with the
    /// fewest slots, of its users the one with the fewest, of its operations the oldest.
    pub(crate) fn release(&self, owner: &Owner, job: &JobId) -> Option<(Owner, JobId)> {
        let mut taken = self.taken.lock();
        taken.known.remove(job);
        taken.remove(owner, job);
        self.take_next(&mut taken)
    }

    /// Takes a slot for the operation that waits next, if long-held slots make room for it.
    pub(crate) fn start_next(&self) -> Option<(Owner, JobId)> {
        self.take_next(&mut self.taken.lock())
    }

    fn take_next(&self, taken: &mut OperationCounts) -> Option<(Owner, JobId)> {
        let long = taken.holds.count_long();
        let waiting = taken.waiting.iter().map(|(owner, _)| {
            let now = taken.count_taken(owner, &long);
            ((now.tenant, now.user), self.has_room(now, owner))
        });
        let next = first_with_fewest(waiting)?;
        let (owner, job) = taken.remove_waiting(next)?;
        taken.add(&owner, &job);
        Some((owner, job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::share::LONG_HOLD;
    use crate::domain::time::Millis;
    use crate::venue::census::OwnerSpread;

    fn owner(name: &str) -> Owner {
        format!("t/{name}").parse().unwrap()
    }

    fn job(n: u8) -> JobId {
        JobId::new(&format!("{n:032x}")).unwrap()
    }

    /// Places that are shared so.
    fn places(count: usize, percent: u32, spread: OwnerSpread) -> OperationSlots {
        places_by(&Clock::system(), count, percent, spread)
    }

    fn places_by(clock: &Clock, count: usize, percent: u32, spread: OwnerSpread) -> OperationSlots {
        let census = OwnerCensus::default();
        census.set_spread(spread);
        OperationSlots::new(count, percent, Arc::new(census), clock)
    }

    #[test]
    fn an_owner_has_its_share_and_what_waits_goes_in_turn() {
        let (places, [a, b, c, d]) = (places(4, 50, OwnerSpread::Users), ["a", "b", "c", "d"].map(owner));
        assert!(places.try_take(&a, &job(1)) && places.try_take(&a, &job(2)));
        assert!(!places.try_take(&a, &job(3)), "it has its share, also alone");
        assert!(!places.try_take(&a, &job(1)) && !places.try_take(&a, &job(3)), "known");
        assert!(
            places.try_take(&b, &job(4)) && !places.try_take(&b, &job(5)),
            "one is left for an owner that has none"
        );
        assert!(places.try_take(&c, &job(7)));
        assert!(!places.try_take(&b, &job(6)) && !places.try_take(&d, &job(8)), "full");
        assert_eq!(places.release(&b, &job(4)), Some((b.clone(), job(5))), "the first of those that have none");
        assert_eq!(places.release(&a, &job(1)), Some((d.clone(), job(8))), "the owner with the fewest");
        assert_eq!(places.release(&a, &job(2)), Some((a.clone(), job(3))));
        assert_eq!(places.release(&a, &job(3)), None, "it is left for others");
        assert_eq!(places.release(&c, &job(7)), Some((b.clone(), job(6))));
        for (owner, n) in [(&b, 5), (&b, 6), (&d, 8)] {
            assert_eq!(places.release(owner, &job(n)), None);
        }
        let taken = places.taken.lock();
        assert!(taken.owners.is_empty() && taken.known.is_empty() && taken.waiting.is_empty());
        assert!(taken.waiting_owners.is_empty());
    }

    #[test]
    fn long_held_slots_make_room_for_an_owner_without_one() {
        let clock = Clock::manual(Millis(1));
        let (places, [a, b, c]) = (places_by(&clock, 1, 75, OwnerSpread::Users), ["a", "b", "c"].map(owner));
        assert!(places.try_take(&a, &job(1)) && !places.try_take(&a, &job(2)) && !places.try_take(&b, &job(3)));
        assert_eq!(places.start_next(), None);
        clock.advance(LONG_HOLD * 2);
        assert_eq!(places.start_next(), Some((b.clone(), job(3))));
        assert!(places.try_take(&c, &job(4)));
        assert_eq!(places.start_next(), None, "it has one");
        for (owner, n) in [(&b, 3), (&c, 4)] {
            assert_eq!(places.release(owner, &job(n)), None);
        }
        assert_eq!(places.release(&a, &job(1)), Some((a.clone(), job(2))));
    }

    #[test]
    fn operations_of_one_owner_do_not_fill_the_list_of_those_that_wait() {
        let numbered = |n: usize| JobId::new(&format!("{n:032x}")).unwrap();
        for (spread, loud, quiet) in [(OwnerSpread::Users, "t/a", "t/b"), (OwnerSpread::Tenants, "t/a", "u/b")] {
            let [loud, quiet] = [loud, quiet].map(|name| name.parse::<Owner>().unwrap());
            let places = places(1, 75, spread);
            (0..=WAITING_MAX).for_each(|n| assert_eq!(places.try_take(&loud, &numbered(n)), n == 0));
            assert!(!places.try_take(&quiet, &numbered(5_000)) && !places.try_take(&loud, &numbered(5_001)));
            let taken = places.taken.lock();
            assert_eq!(taken.waiting.back(), Some(&(quiet.clone(), numbered(5_000))));
            assert!(!taken.known.contains(&numbered(WAITING_MAX)), "the newest, which the sweep finds");
            assert!(!taken.known.contains(&numbered(5_001)), "its owner has the most");
            assert_eq!((taken.waiting.len(), taken.waiting_owners[&quiet]), (WAITING_MAX, 1));
            assert_eq!(taken.waiting_owners[&loud], WAITING_MAX - 1);
        }
    }

    #[test]
    fn a_single_slot_is_open_to_every_owner() {
        let (places, a) = (places(1, 75, OwnerSpread::Users), owner("a"));
        assert!(places.try_take(&a, &job(1)));
        assert!(!places.try_take(&owner("b"), &job(2)));
        assert_eq!(places.release(&a, &job(1)), Some((owner("b"), job(2))));
    }

    #[test]
    fn the_users_of_a_tenant_have_together_what_one_tenant_has() {
        let places = places(16, 75, OwnerSpread::Tenants);
        let mut number = 0;
        let mut fill = |name: &str| {
            let owner: Owner = name.parse().unwrap();
            let mut enters = || {
                number += 1;
                places.try_take(&owner, &job(number))
            };
            (0..16).filter(|_| enters()).count()
        };
        assert_eq!(["a/1", "a/2", "a/3", "a/4", "b/1", "c/1"].map(&mut fill), [9, 2, 1, 0, 1, 1]);
        let next = places.release(&"a/1".parse().unwrap(), &job(1)).expect("one waits");
        assert_eq!(next.0, "a/4".parse().unwrap(), "no other tenant has room, and no other user of this one fewer");
    }
}
