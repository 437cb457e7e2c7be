//! Cache of sessions that were served here, with the turns that their next turn needs.
//!
//! An entry is valid while no other worker has committed (each commit has the epoch of its lease), nothing was changed
//! between turns (the state is that of the last commit), and no turns were erased. Entries expire, because retention
//! deletes turns.

use super::leased::Leased;
use crate::domain::context::record::manifest::Base;
use crate::domain::ids::{Owner, SessionKey};
use crate::store::Grant;
use crate::venue::context::Transcript;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::Duration;

/// Expected number of sessions.
const SESSIONS: usize = 10_000;
/// Bytes of all entries, as they are stored.
const BYTES: u64 = 128 << 20;
/// Bytes that an entry counts for beside its turns and its state, the record of its newest prompt included.
const FIXED: u64 = 8_192;
/// Age at which an entry is no longer used: retention may have deleted some of its turns.
const AGE: Duration = Duration::from_mins(5);

/// Cached earlier turns of a session.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Turn records of the session; read once, then kept up to date.
    pub(crate) transcript: Option<Transcript>,
    /// Record of the newest prompt, once it was looked for.
    #[expect(clippy::option_option, reason = "not looked for yet, looked for in vain, found")]
    pub(crate) base: Option<Option<Arc<Base>>>,
    /// Steady time at which the lease began under which it was read.
    pub(crate) since: Duration,
}

/// A cached session, as it was when its lease was released.
#[derive(Debug)]
struct Left {
    version: u64,
    last: Option<(u64, u64)>,
    state: Option<Bytes>,
    erasures: u64,
    /// Number of generations of the store seen before.
    history: u64,
    past: Past,
}

impl Left {
    fn is_of(&self, grant: &Grant, history: u64, now: Duration) -> bool {
        self.version == grant.version
            && self.last == grant.last
            && self.state == grant.state
            && self.erasures == grant.ground.erasures
            && self.history == history
            && now.saturating_sub(self.past.since) < AGE
    }
}

type Place = (Owner, SessionKey);

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Place, Arc<Left>> for Weight {
    fn weight(&self, _: &Place, left: &Arc<Left>) -> u64 {
        let turns = left.past.transcript.as_ref().map_or(0, Transcript::bytes);
        FIXED + (left.state.as_ref().map_or(0, Bytes::len) + turns) as u64
    }
}

/// Cache of sessions, by owner and session.
pub(crate) struct Memory(Cache<Place, Arc<Left>, Weight>);

impl Default for Memory {
    fn default() -> Self {
        Self(Cache::with_weighter(SESSIONS, BYTES, Weight))
    }
}

impl Memory {
    /// Caches a session whose lease was released.
    pub(crate) fn keep(&self, leased: Leased, history: u64) {
        let Leased { lease, run, last, state, ground, past, .. } = leased;
        if past.transcript.is_none() && past.base.is_none() {
            return;
        }
        let left = Left { version: run.version, last, state, erasures: ground.erasures, history, past };
        self.0.insert((lease.owner, lease.session), Arc::new(left));
    }

    /// Removes and returns what is still valid of a session that was granted at `now`.
    pub(crate) fn take(&self, grant: &Grant, history: u64, now: Duration) -> Past {
        let (_, left) = self.0.remove(&(grant.lease.owner.clone(), grant.lease.session.clone())).unzip();
        let left = left.and_then(Arc::into_inner).filter(|left| left.is_of(grant, history, now));
        left.map_or_else(|| Past { since: now, ..Past::default() }, |left| left.past)
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
            ground: Versions { gate: 1, policy: 2, erasures: 3 },
            version: 9,
            last: Some((4, 9)),
            state: None,
            checkpoint: None,
            calls: Vec::new(),
            mailbox: Vec::new(),
            arrivals: 0,
            attempts: Vec::new(),
        }
    }

    #[test]
    fn it_is_what_the_store_has_or_nothing() {
        let is_kept = |change: fn(&mut Grant), now: Duration| {
            let (memory, mut next) = (Memory::default(), grant());
            let past = Past { transcript: Some(Transcript::default()), base: None, since: MINUTE };
            memory.keep(Leased::open(next.clone(), past, now).unwrap(), 1);
            next.lease.epoch += 1;
            change(&mut next);
            let found = memory.take(&next, 1, now);
            assert_eq!(found.since, if found.transcript.is_some() { MINUTE } else { now });
            assert!(memory.take(&next, 1, now).transcript.is_none(), "once");
            found.transcript.is_some()
        };
        assert!(is_kept(|_| (), MINUTE));
        assert!(is_kept(|next| next.lease.epoch += 7, MINUTE), "who commits nothing changes nothing");
        assert!(is_kept(|next| next.ground = Versions { gate: 7, policy: 8, ..next.ground }, MINUTE));
        assert!(!is_kept(|_| (), MINUTE + AGE), "too old");
        let changes: [fn(&mut Grant); 6] = [
            |next| next.last = Some((5, 9)),
            |next| next.last = None,
            |next| next.version += 1,
            |next| next.state = Some("another".into()),
            |next| next.ground.erasures += 1,
            |next| next.lease.owner = "t/v".parse().unwrap(),
        ];
        for change in changes {
            assert!(!is_kept(change, MINUTE));
        }
    }
}
