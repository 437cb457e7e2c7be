//! Sessions whose runs ended with a store error: each failure doubles the pause before the next run.

use crate::domain::ids::{Owner, SessionKey};
use crate::store::Lease;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Longest pause of a session that fails again and again: each run may pay for its model again.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Sessions whose failures are remembered.
const FAILING_SESSIONS_MAX: usize = 10_000;

/// Pauses of sessions that ended with a store error and have not committed a turn since.
#[derive(Debug, Default)]
pub(crate) struct StoreFailures(Mutex<HashMap<(Owner, SessionKey), FailureBackoff>>);

#[derive(Debug, Clone, Copy)]
struct FailureBackoff {
    /// Number of the session's turns.
    version: u64,
    /// Pause after the last failure.
    pause: Duration,
}

impl StoreFailures {
    /// Records a failure of a session with `version` turns. Returns its pause: `first`, doubled with each failure.
    pub(crate) fn record_failure(&self, lease: &Lease, version: u64, first: Duration) -> Duration {
        let mut failing = self.0.lock();
        if failing.len() >= FAILING_SESSIONS_MAX {
            failing.clear();
        }
        let key = (lease.owner.clone(), lease.session.clone());
        let before = failing.get(&key).filter(|before| before.version == version);
        let pause = before.map_or(first, |before| (before.pause * 2).clamp(first, LONGEST_PAUSE));
        failing.insert(key, FailureBackoff { version, pause });
        pause
    }

    /// Removes a session whose run ended well.
    pub(crate) fn clear(&self, lease: &Lease) {
        let mut failing = self.0.lock();
        if !failing.is_empty() {
            failing.remove(&(lease.owner.clone(), lease.session.clone()));
        }
    }
}
