//! How many of a worker's slots one owner may hold, and how many are left for owners that hold none.

/// A worker keeps one of so many slots, and one at least, for owners that hold none.
const RESERVED: usize = 8;

/// Slots of a worker as several owners share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerShare {
    slots: usize,
    /// Most slots of one owner.
    pub(crate) most: usize,
    /// Slots that an owner takes only as its first: two owners whose tasks never end don't keep out a third.
    reserved: usize,
}

impl OwnerShare {
    /// So many percent of the slots for one owner. 100 shares nothing: an owner may hold all.
    pub(crate) fn new(slots: usize, percent: u32) -> Self {
        if percent >= 100 {
            return Self { slots, most: slots, reserved: 0 };
        }
        let reserved = if slots < 3 { 0 } else { (slots / RESERVED).max(1) };
        let part = slots.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX)) / 100;
        Self { slots, most: part.clamp(1, slots.saturating_sub(1 + reserved).max(1)), reserved }
    }

    /// Slots that are left to an owner that holds `own` of the `taken` ones.
    pub(crate) fn room(&self, taken: usize, own: usize) -> usize {
        let free = self.slots.saturating_sub(taken);
        let unreserved = free.saturating_sub(self.reserved);
        let open = if own == 0 { unreserved.max(free.min(1)) } else { unreserved };
        open.min(self.most.saturating_sub(own))
    }
}

/// The place of the one that takes the next slot: the first of those with room that hold the fewest. `waiting` says of
/// each, in turn, how many it holds and whether it has room.
pub(crate) fn first_with_fewest(waiting: impl Iterator<Item = (usize, bool)>) -> Option<usize> {
    let mut found: Option<(usize, usize)> = None;
    for (at, (held, has_room)) in waiting.enumerate() {
        if has_room && found.is_none_or(|(fewest, _)| held < fewest) {
            found = Some((held, at));
            if held == 0 {
                break;
            }
        }
    }
    found.map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_the_fewest_goes_first_and_then_who_has_waited_longest() {
        for (waiting, expected) in [
            (vec![], None),
            (vec![(1, false), (0, false)], None),
            (vec![(2, true), (1, true), (1, true)], Some(1)),
            (vec![(1, true), (0, false), (0, true), (0, true)], Some(2)),
        ] {
            assert_eq!(first_with_fewest(waiting.iter().copied()), expected, "{waiting:?}");
        }
    }

    #[test]
    fn a_share_is_never_nothing_and_leaves_slots_for_two_others() {
        for (slots, percent, expected) in [
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
            let share = OwnerShare::new(slots, percent);
            assert_eq!((share.most, share.reserved), expected, "{percent} % of {slots}");
        }
    }

    /// Owners take whatever they get, one after the other, and give nothing back.
    #[test]
    fn owners_whose_tasks_never_end_leave_a_slot_for_the_next() {
        for (slots, percent, expected) in [
            (16, 75, vec![12, 2, 1, 1, 0]),
            (16, 25, vec![4, 4, 4, 2, 1, 1, 0]),
            (8, 75, vec![6, 1, 1, 0]),
            (4, 75, vec![2, 1, 1, 0]),
            (3, 75, vec![1, 1, 1, 0]),
            (2, 75, vec![1, 1, 0]),
            (4, 100, vec![4, 0]),
        ] {
            let (share, mut taken, mut held) = (OwnerShare::new(slots, percent), 0, Vec::new());
            for _ in 0..expected.len() {
                let mut own = 0;
                while share.room(taken, own) > 0 {
                    (own, taken) = (own + 1, taken + 1);
                }
                held.push(own);
            }
            assert_eq!(held, expected, "{percent} % of {slots}");
        }
    }
}
