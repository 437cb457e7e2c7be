//! Cache of sessions that were served here, with the turns that their next turn needs.
//!
//! An entry is valid while no other worker has committed (each commit has the epoch of its lease), nothing was changed
//! between turns (the state is that of the last commit), and no turns were erased. Entries expire, because retention
//! deletes turns.

use crate::domain::context::record::manifest::BaseManifest;
use crate::domain::ids::{Owner, SessionKey};
use crate::store::Grant;
use crate::venue::context::Transcript;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::Duration;

/// Expected number of sessions.
const EXPECTED_SESSIONS: usize = 10_000;
/// Bytes of all entries, as they are stored.
const CACHE_BYTES_MAX: u64 = 128 << 20;
/// Bytes that an entry counts for beside its turns and its state, the record of its newest prompt included.
const ENTRY_BYTES: u64 = 8_192;
/// Age at which an entry is no longer used: retention may have deleted some of its turns.
const ENTRY_AGE_MAX: Duration = Duration::from_mins(5);

/// Cached earlier turns of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionHistory {
    /// Turn records of the session; read once, then kept up to date.
    pub(crate) transcript: Option<Transcript>,
    /// Record of the newest prompt, once it was looked for.
    #[expect(clippy::option_option, reason = "not looked for yet, looked for in vain, found")]
    pub(crate) base: Option<Option<Arc<BaseManifest>>>,
    /// Steady time at which the lease began under which it was read.
    pub(crate) leased_at: Duration,
}

/// A cached session, as it was when its lease was released.
#[derive(Debug)]
pub(crate) struct CachedSession {
    /// Number of its turns.
    pub(crate) version: u64,
    /// Epoch and turn of the last commit.
    pub(crate) last_commit: Option<(u64, u64)>,
    /// State of the session, as stored.
    pub(crate) state: Option<Bytes>,
    /// Version of the erasures of turns.
    pub(crate) erasures: u64,
    /// Number of generations of the store seen before.
    pub(crate) generations: u64,
    pub(crate) session_history: SessionHistory,
}

impl CachedSession {
    fn is_valid_for(&self, grant: &Grant, generations: u64, now: Duration) -> bool {
        self.version == grant.version
            && self.last_commit == grant.last_commit
            && self.state == grant.state
            && self.erasures == grant.versions.erasures
            && self.generations == generations
            && now.saturating_sub(self.session_history.leased_at) < ENTRY_AGE_MAX
    }
}

type SessionPlace = (Owner, SessionKey);

#[derive(Debug, Clone)]
struct SessionWeigher;

impl Weighter<SessionPlace, Arc<CachedSession>> for SessionWeigher {
    fn weight(&self, _: &SessionPlace, left: &Arc<CachedSession>) -> u64 {
        let turns = left.session_history.transcript.as_ref().map_or(0, Transcript::bytes);
        ENTRY_BYTES + (left.state.as_ref().map_or(0, Bytes::len) + turns) as u64
    }
}

/// Cache of sessions, by owner and session.
pub(crate) struct SessionCache(Cache<SessionPlace, Arc<CachedSession>, SessionWeigher>);

impl Default for SessionCache {
    fn default() -> Self {
        Self(Cache::with_weighter(EXPECTED_SESSIONS, CACHE_BYTES_MAX, SessionWeigher))
    }
}

impl SessionCache {
    /// Caches a session whose lease was released, if anything of it was read.
    pub(crate) fn insert(&self, owner: Owner, session: SessionKey, cached: CachedSession) {
        let SessionHistory { transcript, base, .. } = &cached.session_history;
        if transcript.is_some() || base.is_some() {
            self.0.insert((owner, session), Arc::new(cached));
        }
    }

    /// Removes and returns what is still valid of a session that was granted at `now`.
    pub(crate) fn take(&self, grant: &Grant, generations: u64, now: Duration) -> SessionHistory {
        let (_, left) = self.0.remove(&(grant.lease.owner.clone(), grant.lease.session.clone())).unzip();
        let left = left.and_then(Arc::into_inner).filter(|left| left.is_valid_for(grant, generations, now));
        left.map_or_else(|| SessionHistory { leased_at: now, ..SessionHistory::default() }, |left| left.session_history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Millis;
    use crate::store::{Lease, Versions};

    const MINUTE: Duration = Duration::from_mins(1);

    fn grant() -> Grant {
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        Grant {
            lease: Lease { owner: "t/u".parse().unwrap(), session, epoch: 5 },
            until: Millis(0),
            versions: Versions { gate: 1, policy: 2, erasures: 3 },
            version: 9,
            last_commit: Some((4, 9)),
            state: None,
            checkpoint: None,
            calls: Vec::new(),
            mailbox: Vec::new(),
            arrivals: 0,
            attempts: Vec::new(),
        }
    }

    #[test]
    fn a_cached_session_equals_the_stored_one() {
        let is_kept = |change: fn(&mut Grant), now: Duration| {
            let (memory, mut next) = (SessionCache::default(), grant());
            let past = SessionHistory { transcript: Some(Transcript::default()), base: None, leased_at: MINUTE };
            let released = CachedSession {
                version: next.version,
                last_commit: next.last_commit,
                state: next.state.clone(),
                erasures: next.versions.erasures,
                generations: 1,
                session_history: past,
            };
            memory.insert(next.lease.owner.clone(), next.lease.session.clone(), released);
            next.lease.epoch += 1;
            change(&mut next);
            let found = memory.take(&next, 1, now);
            assert_eq!(found.leased_at, if found.transcript.is_some() { MINUTE } else { now });
            assert!(memory.take(&next, 1, now).transcript.is_none(), "once");
            found.transcript.is_some()
        };
        assert!(is_kept(|_| (), MINUTE));
        assert!(is_kept(|next| next.lease.epoch += 7, MINUTE), "who commits nothing changes nothing");
        assert!(is_kept(|next| next.versions = Versions { gate: 7, policy: 8, ..next.versions }, MINUTE));
        assert!(!is_kept(|_| (), MINUTE + ENTRY_AGE_MAX), "too old");
        let changes: [fn(&mut Grant); 6] = [
            |next| next.last_commit = Some((5, 9)),
            |next| next.last_commit = None,
            |next| next.version += 1,
            |next| next.state = Some("another".into()),
            |next| next.versions.erasures += 1,
            |next| next.lease.owner = "t/v".parse().unwrap(),
        ];
        for change in changes {
            assert!(!is_kept(change, MINUTE));
        }
    }
}
