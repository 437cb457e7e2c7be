//! Fair shares of places, first among tenants and then among the users of one tenant: slots, operations, connections.
//!
//! A tenant can make any number of users, so that a share per user alone limits nobody.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::ops::SubAssign;
use std::time::Duration;

/// Divisor of the places that are reserved for holders without a place: an eighth, and one at least.
const RESERVED_DIVISOR: usize = 8;

/// Time after which a held place mostly waits for a model or a remote server: it makes room for others.
pub const LONG_HOLD: Duration = Duration::from_secs(1);

/// Number of owners without a place that begin for each place that is held long.
const BEGIN_PER_LONG_HOLD: usize = 2;

/// Places beyond the shared ones at most, as a multiple of those: the bound on simultaneous work.
const MAX_EXTRA: usize = 10;

/// Places beyond the shared ones for users of a tenant that holds places already, as a multiple of those; the rest is
/// for tenants that hold none.
const MAX_EXTRA_OF_TENANT: usize = 5;

/// Holders that share the places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sharers {
    /// Whether there are several tenants.
    pub tenants: bool,
    /// Whether the tenant has several users.
    pub users: bool,
}

/// Places that are taken by all, by one tenant and by one user of it: they decide on that user's next place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakenPlaces {
    /// Places of all tenants.
    pub all: usize,
    /// Places of the tenant.
    pub tenant: usize,
    /// Places of the user.
    pub user: usize,
    /// Places that are held long.
    pub long: LongHolds,
}

/// Places that are held longer than [`LONG_HOLD`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LongHolds {
    /// Places of all tenants.
    pub all: usize,
    /// Places of the tenant.
    pub tenant: usize,
}

/// Places, of which each tenant, and each user of a tenant, may hold a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceShares {
    places: usize,
    percent: u32,
}

impl PlaceShares {
    /// Makes shares of `percent` per holder. At 100 one holder may take all places.
    pub const fn new(places: usize, percent: u32) -> Self {
        Self { places, percent }
    }

    /// Returns how many places one of several tenants may hold.
    pub fn most_of_tenant(&self) -> usize {
        SharePart::new(self.places, self.percent).most
    }

    /// Returns how many places a user may take now.
    pub fn room(&self, taken: TakenPlaces, sharers: Sharers) -> usize {
        match self.shared_room(taken, sharers) {
            0 => usize::from(self.has_first_place(taken, sharers)),
            room => room,
        }
    }

    /// Whether a user without a place begins beyond the places, because many of them are held long.
    fn has_first_place(&self, taken: TakenPlaces, sharers: Sharers) -> bool {
        let (long, beyond) = match (sharers.tenants, sharers.users) {
            (true, _) if taken.tenant == 0 => (taken.long.all, MAX_EXTRA),
            (true, true) => (taken.long.tenant, MAX_EXTRA_OF_TENANT),
            (false, true) => (taken.long.all, MAX_EXTRA),
            (_, false) => return false,
        };
        let beyond = (long * BEGIN_PER_LONG_HOLD).min(self.places.saturating_mul(beyond));
        self.percent < 100 && taken.user == 0 && beyond > 0 && taken.all < self.places.saturating_add(beyond)
    }

    /// Returns how many shared places a user may take now, without those beyond them.
    fn shared_room(&self, taken: TakenPlaces, sharers: Sharers) -> usize {
        let of_tenant = if sharers.tenants {
            SharePart::new(self.places, self.percent).room(taken.all, taken.tenant)
        } else {
            self.places.saturating_sub(taken.all)
        };
        if !sharers.users {
            return of_tenant;
        }
        // The tenant can have as many, as long as others release nothing.
        SharePart::new(taken.tenant + of_tenant, self.percent).room(taken.tenant, taken.user)
    }
}

/// Limits of one holder in a set of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SharePart {
    places: usize,
    most: usize,
    /// Places that a holder takes only as its first: two holders whose tasks never end don't keep out a third.
    reserved: usize,
}

impl SharePart {
    fn new(places: usize, percent: u32) -> Self {
        if percent >= 100 {
            return Self { places, most: places, reserved: 0 };
        }
        let reserved = if places < 3 { 0 } else { (places / RESERVED_DIVISOR).max(1) };
        let part = places.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX)) / 100;
        Self { places, most: part.clamp(1, places.saturating_sub(1 + reserved).max(1)), reserved }
    }

    /// Returns how many places are left to a holder of `own` of the `taken` ones.
    fn room(&self, taken: usize, own: usize) -> usize {
        let free = self.places.saturating_sub(taken);
        let unreserved = free.saturating_sub(self.reserved);
        let open = if own == 0 { unreserved.max(free.min(1)) } else { unreserved };
        open.min(self.most.saturating_sub(own))
    }
}

/// Whether a user may take one more of these places and keep it for any time. No tenant gets more places than are free,
/// that is half of them alone and a third beside another that does the same; and no user of several gets more than are
/// free for its tenant.
pub fn has_free_place(places: usize, taken: TakenPlaces, sharers: Sharers) -> bool {
    let free = places.saturating_sub(taken.all);
    if !sharers.tenants {
        return taken.user < free;
    }
    // The tenant takes no more than are free beside its own.
    let of_tenant = free.saturating_sub(taken.tenant).div_ceil(2);
    of_tenant > 0 && (!sharers.users || taken.user < of_tenant)
}

/// Subtracts from the count of a holder, and removes a holder that holds nothing.
pub fn subtract_count<K: Hash + Eq, N: SubAssign + PartialEq + Default, S: BuildHasher>(
    counts: &mut HashMap<K, N, S>,
    holder: &K,
    by: N,
) {
    if let Some(count) = counts.get_mut(holder) {
        *count -= by;
        if *count == N::default() {
            counts.remove(holder);
        }
    }
}

/// Returns the index of the first holder with room that holds the fewest. `waiting` yields for each how many it holds
/// and whether it has room.
pub fn first_with_fewest<N: Ord + Default>(waiting: impl Iterator<Item = (N, bool)>) -> Option<usize> {
    let mut found: Option<(N, usize)> = None;
    for (at, (held, has_room)) in waiting.enumerate() {
        if has_room && found.as_ref().is_none_or(|(fewest, _)| held < *fewest) {
            let is_none = held == N::default();
            found = Some((held, at));
            if is_none {
                break;
            }
        }
    }
    found.map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ALL: Sharers = Sharers { tenants: true, users: true };
    const TENANTS: Sharers = Sharers { tenants: true, users: false };
    const USERS: Sharers = Sharers { tenants: false, users: true };
    const NOBODY: Sharers = Sharers { tenants: false, users: false };

    #[test]
    fn the_fewest_slots_go_first_then_the_longest_wait() {
        for (waiting, expected) in [
            (vec![], None),
            (vec![((0, 1), false), ((0, 0), false)], None),
            (vec![((0, 2), true), ((0, 1), true), ((0, 1), true)], Some(1)),
            (vec![((0, 1), true), ((0, 0), false), ((0, 0), true), ((0, 0), true)], Some(2)),
            (vec![((4, 0), true), ((3, 3), true), ((3, 1), true)], Some(2)),
        ] {
            assert_eq!(first_with_fewest(waiting.iter().copied()), expected, "{waiting:?}");
        }
    }

    #[test]
    fn a_share_is_never_nothing_and_leaves_places_for_two_others() {
        for (places, percent, expected) in [
            (16, 75, (12, 2)),
            (16, 100, (16, 0)),
            (16, 1, (1, 2)),
            (16, 99, (13, 2)),
            (8, 50, (4, 1)),
            (4, 75, (2, 1)),
            (3, 75, (1, 1)),
            (2, 75, (1, 0)),
            (1, 75, (1, 0)),
            (1, 100, (1, 0)),
        ] {
            let part = SharePart::new(places, percent);
            assert_eq!((part.most, part.reserved), expected, "{percent} % of {places}");
        }
    }

    /// Takes all that `user` gets, one after the other, and gives nothing back.
    fn take_all(
        taken: &mut BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
        (tenant, user): (&'static str, &'static str),
        mut may: impl FnMut(TakenPlaces) -> bool,
    ) -> usize {
        let mut count = 0;
        loop {
            let of_tenant = taken.get(tenant);
            let now = TakenPlaces {
                all: taken.values().flat_map(BTreeMap::values).sum(),
                tenant: of_tenant.map_or(0, |users| users.values().sum()),
                user: of_tenant.and_then(|users| users.get(user).copied()).unwrap_or(0),
                long: LongHolds::default(),
            };
            if !may(now) {
                return count;
            }
            count += 1;
            *taken.entry(tenant).or_default().entry(user).or_default() += 1;
        }
    }

    const FIVE: [(&str, &str); 5] = [("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("a", "5")];

    #[test]
    fn those_whose_tasks_never_end_leave_a_place_for_the_next() {
        let tenants = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")];
        let mixed = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"), ("d", "1")];
        for (places, percent, sharers, those, expected) in [
            // One level alone: among users of one tenant, and among tenants of one user each.
            (16, 75, USERS, &FIVE[..], vec![12, 2, 1, 1, 0]),
            (16, 75, TENANTS, &tenants[..], vec![12, 2, 1, 1, 0]),
            (16, 25, USERS, &FIVE[..], vec![4, 4, 4, 2, 1]),
            (8, 75, USERS, &FIVE[..], vec![6, 1, 1, 0, 0]),
            (4, 75, TENANTS, &tenants[..], vec![2, 1, 1, 0, 0]),
            (3, 75, USERS, &FIVE[..], vec![1, 1, 1, 0, 0]),
            (2, 75, USERS, &FIVE[..], vec![1, 1, 0, 0, 0]),
            (4, 100, ALL, &FIVE[..], vec![4, 0, 0, 0, 0]),
            (4, 75, NOBODY, &FIVE[..], vec![4, 0, 0, 0, 0]),
            // Both: however many users a tenant has, they have together what one user alone would have.
            (16, 75, ALL, &FIVE[..], vec![9, 2, 1, 0, 0]),
            (16, 75, ALL, &mixed[..], vec![9, 2, 1, 1, 1, 1]),
            (8, 75, ALL, &mixed[..], vec![4, 1, 1, 1, 1, 0]),
            (4, 75, ALL, &mixed[..], vec![1, 1, 0, 1, 1, 0]),
            (3, 75, ALL, &mixed[..], vec![1, 0, 0, 1, 1, 0]),
            (1, 75, ALL, &mixed[..], vec![1, 0, 0, 0, 0, 0]),
        ] {
            let (shares, mut taken) = (PlaceShares::new(places, percent), BTreeMap::new());
            let held: Vec<_> =
                those.iter().map(|who| take_all(&mut taken, *who, |taken| shares.room(taken, sharers) > 0)).collect();
            assert_eq!(held, expected, "{percent} % of {places}, {sharers:?}");
        }
    }

    /// Owners come one after the other, each with tasks that never end; those before have held their places long.
    #[test]
    fn places_held_long_make_room_for_an_owner_that_holds_none() {
        let long = |all, tenant| LongHolds { all, tenant };
        for (percent, sharers, (all, tenant, user), long, expected) in [
            // Full of places that are held long, or of others.
            (75, USERS, (16, 16, 0), long(16, 16), 1),
            (75, USERS, (16, 16, 0), long(0, 0), 0),
            // A tenant has its share, and nothing of it is held long, or some.
            (75, ALL, (12, 12, 0), long(0, 0), 0),
            (75, ALL, (12, 12, 0), long(1, 1), 1),
            (75, USERS, (18, 18, 0), long(1, 1), 0),
            (75, USERS, (17, 17, 0), long(1, 1), 1),
            (75, TENANTS, (16, 0, 0), long(16, 0), 1),
            (75, ALL, (16, 0, 0), long(16, 0), 1),
            // Who holds one waits, and who is alone has all there are.
            (75, USERS, (16, 16, 1), long(16, 16), 0),
            (75, TENANTS, (16, 1, 0), long(16, 1), 0),
            (75, NOBODY, (16, 16, 0), long(16, 16), 0),
            (100, ALL, (16, 0, 0), long(16, 0), 0),
            // A tenant's users begin for what their own tenant holds long.
            (75, ALL, (16, 4, 0), long(12, 0), 0),
            (75, ALL, (16, 4, 0), long(16, 4), 1),
            (75, ALL, (95, 95, 0), long(95, 95), 1),
            (75, ALL, (96, 96, 0), long(96, 96), 0),
            (75, ALL, (96, 0, 0), long(96, 0), 1),
            // The bound.
            (75, USERS, (175, 175, 0), long(175, 175), 1),
            (75, USERS, (176, 176, 0), long(176, 176), 0),
            (75, ALL, (176, 0, 0), long(176, 0), 0),
        ] {
            let taken = TakenPlaces { all, tenant, user, long };
            let room = PlaceShares::new(16, percent).room(taken, sharers);
            assert_eq!(room, expected, "{percent} %, {sharers:?}, {taken:?}");
        }
    }

    /// Ten times as many owners as places, all at once: within a few times [`LONG_HOLD`] each of them has a place, and so
    /// has the next.
    #[test]
    fn a_crowd_of_owners_that_hang_keeps_nobody_out_for_long() {
        for places in [1, 2, 3, 8, 16, 64] {
            for sharers in [USERS, TENANTS, ALL] {
                let shares = PlaceShares::new(places, 75);
                let (mut all, mut long, mut rounds) = (0, 0, 0);
                while all <= 10 * places {
                    let tenant = if sharers.tenants { 0 } else { all };
                    let taken = TakenPlaces { all, tenant, user: 0, long: LongHolds { all: long, tenant } };
                    if shares.room(taken, sharers) == 0 {
                        (long, rounds) = (all, rounds + 1);
                        assert!(rounds <= 4, "{all} of {places}, {sharers:?}");
                    } else {
                        all += 1;
                    }
                }
            }
        }
    }

    /// Whatever its users do, a tenant has no more than one user of a tenant of its own would have; and the next two
    /// tenants find a place.
    #[test]
    fn no_number_of_users_gives_a_tenant_more() {
        for places in 1..40 {
            for percent in [1, 10, 50, 75, 99] {
                let (shares, mut taken) = (PlaceShares::new(places, percent), BTreeMap::new());
                let may = |taken| shares.room(taken, ALL) > 0;
                let users = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
                let held: usize = users.iter().map(|user| take_all(&mut taken, ("a", user), may)).sum();
                assert!(held <= shares.most_of_tenant(), "{held}: {percent} % of {places}");
                for other in ["b", "c"].iter().take(places.saturating_sub(1)) {
                    assert!(take_all(&mut taken, (other, "1"), may) > 0, "{other}: {percent} % of {places}");
                }
            }
        }
    }

    #[test]
    fn a_user_has_no_more_requests_than_are_free_for_its_tenant() {
        let mixed = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1")];
        for (sharers, those, expected) in [
            (USERS, &FIVE[..], vec![32, 16, 8, 4, 2]),
            (NOBODY, &FIVE[..1], vec![32]),
            (TENANTS, &mixed[..1], vec![32]),
            (ALL, &FIVE[..], vec![16, 8, 4, 2, 1]),
            (ALL, &mixed[..], vec![16, 8, 4, 9, 7]),
        ] {
            let mut taken = BTreeMap::new();
            let may = |taken| has_free_place(64, taken, sharers);
            let held: Vec<_> = those.iter().map(|who| take_all(&mut taken, *who, may)).collect();
            assert_eq!(held, expected, "{sharers:?}");
        }
        let mut taken = BTreeMap::new();
        let users = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let may = |taken| has_free_place(64, taken, ALL);
        let held: usize = users.iter().map(|user| take_all(&mut taken, ("a", user), may)).sum();
        assert_eq!(held, 32, "what one user of it alone would have");
    }
}
