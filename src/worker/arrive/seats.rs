//! An owner's share of a worker: where a venue has several owners, none can hold all slots of it.
//!
//! A session that comes while its owner has its share isn't leased; it stays due in the store, where any worker
//! finds it, and is called again as soon as one of the owner's leaves.

use crate::domain::ids::{Owner, SessionKey};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sessions of one owner that are remembered; the sweep calls those beyond.
const REMEMBERED: usize = 1_000;

/// Who has a slot here, and who came in vain.
#[derive(Debug)]
pub(crate) struct Seats {
    share: usize,
    /// The venue has several owners.
    shared: AtomicBool,
    owners: Mutex<HashMap<Owner, Sitting>>,
}

#[derive(Debug, Default)]
struct Sitting {
    taken: usize,
    waiting: VecDeque<SessionKey>,
}

/// A slot of an owner, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    owner: Owner,
}

/// Slots that one of several owners may hold: so many percent, at least one, and never all of several.
pub(crate) fn share(slots: usize, percent: u32) -> usize {
    let part = slots.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX)) / 100;
    if percent >= 100 { slots } else { part.clamp(1, slots.saturating_sub(1).max(1)) }
}

impl Seats {
    /// Of a worker with so many slots.
    pub(crate) fn new(slots: usize, percent: u32) -> Arc<Self> {
        Arc::new(Self { share: share(slots, percent), shared: AtomicBool::new(false), owners: Mutex::default() })
    }

    /// Whether the venue has several owners: alone, one may hold all slots.
    pub(crate) fn share_among(&self, several: bool) {
        self.shared.store(several, Ordering::Relaxed);
    }

    fn has_room(&self, taken: usize) -> bool {
        taken < self.share || !self.shared.load(Ordering::Relaxed)
    }

    /// A slot for a session of this owner; none when it has its share.
    pub(crate) fn take(self: &Arc<Self>, owner: &Owner) -> Option<Seat> {
        let mut owners = self.owners.lock();
        let sitting = owners.entry(owner.clone()).or_default();
        if !self.has_room(sitting.taken) {
            return None;
        }
        sitting.taken += 1;
        Some(Seat { seats: Arc::clone(self), owner: owner.clone() })
    }

    /// The same for one that comes straight to the worker: none as long as another session of this owner waits.
    pub(crate) fn take_behind(self: &Arc<Self>, owner: &Owner) -> Option<Seat> {
        let others_wait = self.owners.lock().get(owner).is_some_and(|sitting| !sitting.waiting.is_empty());
        if others_wait { None } else { self.take(owner) }
    }

    /// Remembers a session that came while its owner had its share.
    pub(crate) fn pass_over(&self, owner: &Owner, session: &SessionKey) {
        let mut owners = self.owners.lock();
        let waiting = &mut owners.entry(owner.clone()).or_default().waiting;
        if waiting.len() < REMEMBERED && !waiting.contains(session) {
            waiting.push_back(session.clone());
        }
    }

    /// The session that has waited longest, when its owner has room again.
    pub(crate) fn next(&self, owner: &Owner) -> Option<SessionKey> {
        let mut owners = self.owners.lock();
        let sitting = owners.get_mut(owner)?;
        let next = if self.has_room(sitting.taken) { sitting.waiting.pop_front() } else { None };
        if sitting.taken == 0 && sitting.waiting.is_empty() {
            owners.remove(owner);
        }
        next
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(sitting) = self.seats.owners.lock().get_mut(&self.owner) {
            sitting.taken = sitting.taken.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        name.parse().unwrap()
    }

    fn session(name: &str) -> SessionKey {
        SessionKey { agent: "a".parse().unwrap(), session: name.parse().unwrap() }
    }

    #[test]
    fn a_share_is_never_nothing_and_never_all_of_several_slots() {
        for (slots, percent, expected) in
            [(16, 75, 12), (16, 100, 16), (16, 1, 1), (16, 99, 15), (4, 75, 3), (2, 75, 1), (2, 99, 1), (1, 75, 1)]
        {
            assert_eq!(share(slots, percent), expected, "{percent} % of {slots}");
        }
    }

    #[test]
    fn one_of_several_owners_leaves_room_and_an_owner_alone_leaves_none() {
        let (seats, [a, b]) = (Seats::new(4, 50), ["x/a", "x/b"].map(owner));
        let alone: Vec<_> = (0..4).map(|_| seats.take(&a).unwrap()).collect();
        seats.share_among(true);
        assert!(seats.take(&a).is_none(), "what runs goes on, nothing more begins");
        let other = seats.take(&b).unwrap();
        seats.pass_over(&a, &session("s1"));
        seats.pass_over(&a, &session("s2"));
        seats.pass_over(&a, &session("s1"));
        assert_eq!(seats.next(&a), None);
        drop(alone);
        assert!(seats.take_behind(&a).is_none(), "others wait");
        assert!(seats.take_behind(&b).is_some());
        assert_eq!(seats.next(&a), Some(session("s1")), "first come, first called, and called once");
        let taken = [seats.take(&a), seats.take(&a)];
        assert!(taken.iter().all(Option::is_some) && seats.take(&a).is_none());
        assert_eq!(seats.next(&a), None);
        drop(taken);
        assert_eq!((seats.next(&a), seats.next(&a), seats.next(&b)), (Some(session("s2")), None, None));
        drop(other);
        assert_eq!(seats.next(&b), None);
        assert!(seats.owners.lock().is_empty(), "nobody is remembered for ever");
    }
}
