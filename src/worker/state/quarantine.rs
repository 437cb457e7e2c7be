//! Quarantine: events that may have killed workers run one at a time here. A session that waits for it holds no slot of
//! a worker, of its agent or of its owner.

use crate::domain::ids::{Owner, SessionKey};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Delay after which a session that found the quarantine taken is due again: another worker may be free sooner.
pub(crate) const QUARANTINE_DELAY: Duration = Duration::from_secs(5);

/// Waiting sessions that are remembered; the others come again when they are due.
const WAITING_MAX: usize = 1_000;

/// One slot, and the sessions that wait for it.
#[derive(Debug)]
pub(crate) struct Quarantine {
    slot: Semaphore,
    waiting: Mutex<VecDeque<(Owner, SessionKey)>>,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { slot: Semaphore::new(1), waiting: Mutex::default() }
    }
}

impl Quarantine {
    /// Takes the slot until the permit is dropped; `None` if it is taken, then the session is remembered.
    pub(crate) fn enter(&self, owner: &Owner, session: &SessionKey) -> Option<SemaphorePermit<'_>> {
        let mut waiting = self.waiting.lock();
        let is_it = |(of, known): &(Owner, SessionKey)| of == owner && known == session;
        if let Ok(place) = self.slot.try_acquire() {
            waiting.retain(|known| !is_it(known));
            return Some(place);
        }
        if waiting.len() < WAITING_MAX && !waiting.iter().any(is_it) {
            waiting.push_back((owner.clone(), session.clone()));
        }
        None
    }

    /// Removes and returns the session that has waited longest, if the slot is free.
    pub(crate) fn take_next(&self) -> Option<(Owner, SessionKey)> {
        let mut waiting = self.waiting.lock();
        if self.slot.available_permits() == 0 { None } else { waiting.pop_front() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_suspect_runs_and_the_others_follow_in_order() {
        let quarantine = Quarantine::default();
        let owner: Owner = "x/a".parse().unwrap();
        let [a, b, c] =
            ["a", "b", "c"].map(|name| SessionKey { agent: "poison".parse().unwrap(), session: name.parse().unwrap() });
        let place = quarantine.enter(&owner, &a).unwrap();
        for session in [&b, &c, &b] {
            assert!(quarantine.enter(&owner, session).is_none());
        }
        assert_eq!(quarantine.take_next(), None, "it is taken");
        drop(place);
        assert_eq!(quarantine.take_next(), Some((owner.clone(), b.clone())));
        // One that is due comes by itself, and isn't called any more.
        let place = quarantine.enter(&owner, &c).unwrap();
        drop(place);
        assert_eq!(quarantine.take_next(), None);
    }
}
