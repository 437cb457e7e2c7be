//! How long due sessions have waited, as far as sweeps of this worker know.

use crate::domain::ids::{Owner, SessionKey};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Sessions whose wait is remembered; of more the age is unknown.
const SESSIONS_MAX: usize = 4096;

/// Steady times at which sweeps named a due session.
#[derive(Debug, Clone, Copy)]
struct NamedTimes {
    first: Duration,
    last: Duration,
}

/// Due sessions that sweeps named, until they are named no more.
#[derive(Debug, Default)]
pub(crate) struct DueAges(Mutex<HashMap<(Owner, SessionKey), NamedTimes>>);

impl DueAges {
    /// Notes that a sweep named these sessions at `now`.
    pub(crate) fn note_named(&self, owner: &Owner, sessions: &[SessionKey], now: Duration) {
        let mut ages = self.0.lock();
        for session in sessions {
            let key = (owner.clone(), session.clone());
            if let Some(times) = ages.get_mut(&key) {
                times.last = now;
            } else if ages.len() < SESSIONS_MAX {
                ages.insert(key, NamedTimes { first: now, last: now });
            }
        }
    }

    /// Returns the longest wait at `now`, after forgetting sessions that weren't named for longer than `silence`: they
    /// run. A session is named twice before it counts.
    pub(crate) fn forget_served(&self, now: Duration, silence: Duration) -> Duration {
        let mut ages = self.0.lock();
        ages.retain(|_, times| now.saturating_sub(times.last) <= silence);
        let waiting = ages.values().filter(|times| times.last > times.first);
        waiting.map(|times| now.saturating_sub(times.first)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AgentId, SessionId};

    const SECOND: Duration = Duration::from_secs(1);

    fn session(name: &str) -> SessionKey {
        SessionKey { agent: AgentId::new("a").unwrap(), session: SessionId::new(name).unwrap() }
    }

    #[test]
    fn the_longest_wait_is_that_of_a_session_named_again() {
        let (ages, owner): (_, Owner) = (DueAges::default(), "t/u".parse().unwrap());
        ages.note_named(&owner, &[session("served")], SECOND);
        ages.note_named(&owner, &[session("waits")], SECOND * 3);
        assert_eq!(ages.forget_served(SECOND * 4, SECOND * 15), Duration::ZERO, "both were named once");
        ages.note_named(&owner, &[session("waits")], SECOND * 10);
        assert_eq!(ages.forget_served(SECOND * 12, SECOND * 15), SECOND * 9);
        assert_eq!(ages.forget_served(SECOND * 26, SECOND * 15), Duration::ZERO, "it is named no more");
        assert!(ages.0.lock().is_empty());
    }

    #[test]
    fn remembered_sessions_are_bounded() {
        let (ages, owner): (_, Owner) = (DueAges::default(), "t/u".parse().unwrap());
        let many: Vec<_> = (0..2 * SESSIONS_MAX).map(|n| session(&n.to_string())).collect();
        ages.note_named(&owner, &many, SECOND);
        assert_eq!(ages.0.lock().len(), SESSIONS_MAX);
    }
}
