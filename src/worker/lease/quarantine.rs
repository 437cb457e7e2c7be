//! Events that may have killed workers run one at a time here. Whoever waits for that holds nothing meanwhile:
//! no slot of a worker, of its agent or of its owner.

use crate::domain::ids::{Owner, SessionKey};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A session that found the place taken is due again after so long: another worker may have room for it sooner.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);

/// Sessions that are remembered; those beyond come again when they are due.
const REMEMBERED: usize = 1_000;

/// One place, and who came in vain.
#[derive(Debug)]
pub(crate) struct Quarantine {
    place: Semaphore,
    waiting: Mutex<VecDeque<(Owner, SessionKey)>>,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { place: Semaphore::new(1), waiting: Mutex::default() }
    }
}

impl Quarantine {
    /// The place, until it is dropped; who finds it taken is remembered.
    pub(crate) fn enter(&self, owner: &Owner, session: &SessionKey) -> Option<SemaphorePermit<'_>> {
        let mut waiting = self.waiting.lock();
        let is_it = |(of, known): &(Owner, SessionKey)| of == owner && known == session;
        if let Ok(place) = self.place.try_acquire() {
            waiting.retain(|known| !is_it(known));
            return Some(place);
        }
        if waiting.len() < REMEMBERED && !waiting.iter().any(is_it) {
            waiting.push_back((owner.clone(), session.clone()));
        }
        None
    }

    /// Who has waited longest, when the place is free.
    pub(crate) fn next(&self) -> Option<(Owner, SessionKey)> {
        let mut waiting = self.waiting.lock();
        if self.place.available_permits() == 0 { None } else { waiting.pop_front() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_in_and_the_others_are_called_in_their_order_each_once() {
        let quarantine = Quarantine::default();
        let owner: Owner = "x/a".parse().unwrap();
        let [a, b, c] =
            ["a", "b", "c"].map(|name| SessionKey { agent: "poison".parse().unwrap(), session: name.parse().unwrap() });
        let place = quarantine.enter(&owner, &a).unwrap();
        for session in [&b, &c, &b] {
            assert!(quarantine.enter(&owner, session).is_none());
        }
        assert_eq!(quarantine.next(), None, "it is taken");
        drop(place);
        assert_eq!(quarantine.next(), Some((owner.clone(), b.clone())));
        // One that is due comes by itself, and isn't called any more.
        let place = quarantine.enter(&owner, &c).unwrap();
        drop(place);
        assert_eq!(quarantine.next(), None);
    }
}
