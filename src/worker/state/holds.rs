//! How long each slot of a worker has been held.

use crate::domain::ids::{Owner, OwnerPart};
use crate::domain::share::{LONG_HOLD, LongHolds};
use crate::process::clock::Clock;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Slots that are held, under the key that names each.
#[derive(Debug)]
pub(crate) struct HoldTable<K> {
    clock: Clock,
    /// Owner of each slot and its start, on [`Clock::steady`].
    begun: HashMap<K, (Duration, Owner)>,
}

impl<K: Eq + Hash> HoldTable<K> {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, begun: HashMap::new() }
    }

    /// Records that an owner begins to hold a slot.
    pub(crate) fn begin(&mut self, key: K, owner: Owner) {
        self.begun.insert(key, (self.clock.steady(), owner));
    }

    /// Records that a slot is released.
    pub(crate) fn end(&mut self, key: &K) {
        self.begun.remove(key);
    }

    /// Counts the slots held longer than `LONG_HOLD`.
    pub(crate) fn count_long(&self) -> LongHoldCounts {
        let now = self.clock.steady();
        let mut counts = LongHoldCounts::default();
        for (begun, owner) in self.begun.values() {
            if now.saturating_sub(*begun) > LONG_HOLD {
                counts.all += 1;
                *counts.tenants.entry(owner.tenant().clone()).or_default() += 1;
            }
        }
        counts
    }
}

/// Slots held longer than `LONG_HOLD`: of all tenants together and of each.
#[derive(Debug, Default)]
pub(crate) struct LongHoldCounts {
    all: usize,
    tenants: HashMap<OwnerPart, usize>,
}

impl LongHoldCounts {
    /// Returns the counts of all tenants and of this one.
    pub(crate) fn counts_for(&self, tenant: &OwnerPart) -> LongHolds {
        LongHolds { all: self.all, tenant: self.tenants.get(tenant).copied().unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Millis;

    #[test]
    fn a_place_counts_as_held_long_until_it_is_given_back() {
        let clock = Clock::manual(Millis(1));
        let mut holds = HoldTable::new(clock.clone());
        let tenant = |name: &str| name.parse::<OwnerPart>().unwrap();
        holds.begin(1, "a/x".parse().unwrap());
        assert_eq!(holds.count_long().counts_for(&tenant("a")), LongHolds::default());
        clock.advance(LONG_HOLD + Duration::from_millis(1));
        holds.begin(2, "a/y".parse().unwrap());
        assert_eq!(holds.count_long().counts_for(&tenant("a")), LongHolds { all: 1, tenant: 1 });
        assert_eq!(holds.count_long().counts_for(&tenant("b")), LongHolds { all: 1, tenant: 0 });
        holds.end(&1);
        assert_eq!(holds.count_long().counts_for(&tenant("a")), LongHolds::default());
    }
}
