//! Since when each place of a worker is held, and how many are held long.

use crate::domain::ids::{Owner, OwnerPart};
use crate::domain::share::{LONG_HOLD, LongHolds};
use std::collections::HashMap;
use std::hash::Hash;
use tokio::time::Instant;

/// Places that are held, by the key that names each.
#[derive(Debug)]
pub(super) struct HoldTable<K> {
    begun: HashMap<K, (Instant, Owner)>,
}

impl<K> Default for HoldTable<K> {
    fn default() -> Self {
        Self { begun: HashMap::new() }
    }
}

impl<K: Eq + Hash> HoldTable<K> {
    /// Notes that an owner begins to hold a place.
    pub(super) fn begin(&mut self, key: K, owner: Owner) {
        self.begun.insert(key, (Instant::now(), owner));
    }

    /// Notes that a place is given back.
    pub(super) fn end(&mut self, key: &K) {
        self.begun.remove(key);
    }

    /// Places that are held long by now.
    pub(super) fn long(&self) -> LongHoldCounts {
        let now = Instant::now();
        let mut counts = LongHoldCounts::default();
        for (begun, owner) in self.begun.values() {
            if now.duration_since(*begun) > LONG_HOLD {
                counts.all += 1;
                *counts.tenants.entry(owner.tenant().clone()).or_default() += 1;
            }
        }
        counts
    }
}

/// Places that are held long, of all tenants and of each.
#[derive(Debug, Default)]
pub(super) struct LongHoldCounts {
    all: usize,
    tenants: HashMap<OwnerPart, usize>,
}

impl LongHoldCounts {
    /// As a tenant sees them.
    pub(super) fn beside(&self, tenant: &OwnerPart) -> LongHolds {
        LongHolds { all: self.all, tenant: self.tenants.get(tenant).copied().unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_place_counts_as_held_long_until_it_is_given_back() {
        let mut holds = HoldTable::default();
        let tenant = |name: &str| name.parse::<OwnerPart>().unwrap();
        holds.begin(1, "a/x".parse().unwrap());
        assert_eq!(holds.long().beside(&tenant("a")), LongHolds::default());
        tokio::time::advance(LONG_HOLD + Duration::from_millis(1)).await;
        holds.begin(2, "a/y".parse().unwrap());
        assert_eq!(holds.long().beside(&tenant("a")), LongHolds { all: 1, tenant: 1 });
        assert_eq!(holds.long().beside(&tenant("b")), LongHolds { all: 1, tenant: 0 });
        holds.end(&1);
        assert_eq!(holds.long().beside(&tenant("a")), LongHolds::default());
    }
}
