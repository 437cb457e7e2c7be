//! When owners are looked at of whom nothing is known to be done: each at its own place in a cycle, by the clock on the
//! wall, so that the looks are spread over all of it, and come when they would have come however often workers start.

use crate::ids::Owner;
use crate::shard::hash;
use crate::time::Millis;
use std::time::Duration;

/// How long it is until an owner's place comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle(u64);

impl Cycle {
    /// So long, a millisecond at least.
    pub fn of(length: Duration) -> Self {
        Self(u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1))
    }

    /// Whether an owner's place came after `since`, up to `now`.
    pub fn comes(self, owner: &Owner, since: Millis, now: Millis) -> bool {
        let place = hash(&[b"cycle", owner.token().as_bytes()]) % self.0;
        // In the how many-eth cycle of the owner, each of which begins at its place.
        let cycle = |at: Millis| (u128::from(at.0) + u128::from(self.0 - place)) / u128::from(self.0);
        cycle(since) < cycle(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u32) -> Owner {
        Owner::from_token(&format!("acme/u{n}")).unwrap()
    }

    #[test]
    fn each_owner_comes_once_in_a_cycle_and_no_look_has_many_more_than_its_part() {
        let (cycle, start, step) = (Cycle::of(Duration::from_secs(600)), 1_767_225_600_000, 20_000);
        let looks: Vec<Vec<u32>> = (0..30)
            .map(|look| {
                let (since, now) = (Millis(start + look * step), Millis(start + (look + 1) * step));
                (0..3_000).filter(|n| cycle.comes(&owner(*n), since, now)).collect()
            })
            .collect();
        let mut all: Vec<_> = looks.concat();
        all.sort_unstable();
        assert_eq!(all, (0..3_000).collect::<Vec<_>>());
        assert!(looks.iter().all(|look| (50..160).contains(&look.len())), "{:?}", looks.iter().map(Vec::len));
    }

    #[test]
    fn a_gap_leaves_nobody_out_and_a_clock_that_was_set_back_calls_nobody() {
        let cycle = Cycle::of(Duration::from_secs(60));
        for (since, now, expected) in [(0, 60_000, 100), (5_000, 900_000, 100), (7_000, 7_000, 0), (90_000, 10_000, 0)]
        {
            let come = (0..100).filter(|n| cycle.comes(&owner(*n), Millis(since), Millis(now))).count();
            assert_eq!(come, expected, "{since} {now}");
        }
        assert!(Cycle::of(Duration::ZERO).comes(&owner(1), Millis(0), Millis(1)));
        assert!(!Cycle::of(Duration::MAX).comes(&owner(1), Millis(0), Millis(u64::MAX / 8)));
    }
}
