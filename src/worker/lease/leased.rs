//! A leased session, as its holder knows it.

use super::stop_signals::StopSignals;
use crate::domain::dead::Attempt;
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::limits::{GRANT_BYTES, GRANT_EVENTS};
use crate::domain::session::SessionState;
use crate::domain::time::Millis;
use crate::domain::turn::RecordedReply;
use crate::domain::turn::run::SessionRun;
use crate::store::{
    Commit, Continuation, Grant, LOST_CALLS, Lease, LeaseUse, MailboxEntry, ReleaseOutcome, StoreError, Versions,
    corrupt,
};
use crate::venue::context::{decode_inbox, decode_state, decode_stored};
use crate::worker::spans::TurnSpans;
use crate::worker::state::Worker;
use crate::worker::state::cache::sessions::{CachedSession, SessionHistory};
use crate::worker::state::relay::CommitMessages;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A session under its lease.
pub(crate) struct LeasedSession {
    pub(crate) lease: Lease,
    pub(crate) run: SessionRun,
    /// Number of events ever appended to the mailbox, as far as seen.
    pub(crate) arrivals: u64,
    /// Versions of the documents that the next turn depends on.
    pub(crate) versions: Versions,
    /// State of the session, as stored.
    pub(crate) state: Option<Bytes>,
    /// Epoch and turn of the last commit.
    pub(crate) last_commit: Option<(u64, u64)>,
    /// Workers that died while they served the session.
    pub(crate) attempts: Vec<Attempt>,
    /// Crashes of each event, by its key in the mailbox; a commit counts from zero.
    crashes: BTreeMap<String, u32>,
    /// The mailbox may have more events than the grant returned.
    pub(crate) has_more_events: bool,
    /// Reply of the next turn, recorded by an earlier holder.
    pub(crate) checkpoint: Option<RecordedReply>,
    pub(crate) recorded_calls: Vec<(u32, Bytes)>,
    /// Cached earlier turns.
    pub(crate) history: SessionHistory,
    /// The session was past its time to live: its state is empty, and so is the store after the commit.
    pub(crate) is_expired: bool,
    /// Backoff after a failure of the model.
    pub(crate) pause: Option<Duration>,
    pub(crate) stops: StopSignals,
    /// Cancelled when the task of the running turn is.
    pub(crate) cancelled: CancellationToken,
    /// Time at which the lease was asked for, on the steady clock; the first turn takes it for its trace.
    pub(crate) asked: Option<Duration>,
    /// Trace of the running turn.
    pub(crate) spans: Option<Arc<TurnSpans>>,
}

/// Reason why a run can't go on.
pub(crate) enum RunStop {
    /// The lease is fenced.
    Lost,
    /// The store failed, or returned a value that can't be read.
    Store(StoreError),
}

impl From<StoreError> for RunStop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl LeasedSession {
    /// Opens a grant that was requested at `asked`, on the steady clock, with the cached turns.
    pub(crate) fn open(grant: Grant, past: SessionHistory, asked: Duration) -> Result<Self, StoreError> {
        let state = decode_state(grant.state.as_ref())?;
        let checkpoint = match &grant.checkpoint {
            None => None,
            Some(bytes) => Some(decode_stored("checkpoint", bytes)?),
        };
        // A reply is recorded before its calls; calls that wait for approvals were committed with their reply.
        let is_reply_lost = checkpoint.is_none() && state.awaiting.is_none();
        if is_reply_lost && grant.calls.iter().any(|(index, _)| *index <= LOST_CALLS) {
            return Err(corrupt("checkpoint", &"calls are recorded, and the reply that made them is gone"));
        }
        let more = has_more(&grant.mailbox);
        let charged = grant.mailbox.iter().filter(|entry| entry.crashes > 0);
        Ok(Self {
            crashes: charged.map(|entry| (entry.key.clone(), entry.crashes)).collect(),
            lease: grant.lease,
            has_more_events: more,
            run: SessionRun::new(grant.version, state, decode_inbox(&grant.mailbox)?, more),
            arrivals: grant.arrivals,
            versions: grant.versions,
            state: grant.state,
            last_commit: grant.last_commit,
            attempts: grant.attempts,
            checkpoint,
            recorded_calls: grant.calls,
            history: past,
            is_expired: false,
            pause: None,
            stops: StopSignals::new_at(asked),
            cancelled: CancellationToken::new(),
            asked: Some(asked),
            spans: None,
        })
    }

    /// Returns the number of workers that the event at `key` had killed when the lease began.
    pub(crate) fn crashes(&self, key: &str) -> u32 {
        self.crashes.get(key).copied().unwrap_or_default()
    }

    /// Takes over a commit of this holder, whose new state is `state`.
    pub(crate) fn apply_commit(&mut self, state: &SessionState, commit: &Commit) {
        self.run = self.run.after_commit(state, &commit.consume);
        self.state = Some(commit.state.clone());
        self.last_commit = Some((self.lease.epoch, commit.turn));
    }

    /// Takes over the result of a commit or a release. Returns whether the lease is still held.
    pub(crate) fn take_over(&mut self, next: Continuation) -> Result<bool, StoreError> {
        match next {
            Continuation::Released { wakes: _ } => Ok(false),
            Continuation::Held { mailbox, arrivals, versions } => {
                self.has_more_events = has_more(&mailbox);
                self.run.refresh(decode_inbox(&mailbox)?, self.has_more_events);
                self.arrivals = arrivals;
                if versions.erasures != self.versions.erasures {
                    // The cache may have turns that are erased.
                    self.history = SessionHistory { leased_at: self.history.leased_at, ..SessionHistory::default() };
                }
                self.versions = versions;
                Ok(true)
            }
        }
    }

    /// Returns the released session as an entry of the cache. `generations`: number of generations of the store seen
    /// before.
    pub(crate) fn into_cached(self, generations: u64) -> (Owner, SessionKey, CachedSession) {
        let Self { lease, run, last_commit, state, versions, history, .. } = self;
        let cached = CachedSession {
            version: run.version,
            last_commit,
            state,
            erasures: versions.erasures,
            generations,
            session_history: history,
        };
        (lease.owner, lease.session, cached)
    }

    /// Releases the lease without a commit, and queues wakes for the sessions that waited for it.
    pub(crate) async fn release(&self, worker: &Worker, now: Millis, then: LeaseUse) -> Result<Continuation, RunStop> {
        let lease = &self.lease;
        let _alone = self.stops.lock_renewal().await;
        match worker.venue.store.release(now, lease, then).await? {
            ReleaseOutcome::Fenced => Err(RunStop::Lost),
            ReleaseOutcome::Done(next) => {
                let told = CommitMessages { entries: next.wakes().to_vec(), ..CommitMessages::default() };
                worker.relay.enqueue(&lease.owner, &lease.session, told).await;
                Ok(next)
            }
        }
    }
}

/// Whether the mailbox may have more events than a grant returns.
fn has_more(mailbox: &[MailboxEntry]) -> bool {
    let size: usize = mailbox.iter().map(|entry| entry.body.len()).sum();
    mailbox.len() >= GRANT_EVENTS as usize || size >= GRANT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::venue::context::Transcript;
    use crate::worker::state::cache::sessions::SessionCache;

    fn grant() -> Grant {
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        Grant {
            lease: Lease { owner: "t/u".parse().unwrap(), session, epoch: 1 },
            until: Millis(0),
            versions: Versions { gate: 1, policy: 1, erasures: 3 },
            version: 1,
            last_commit: Some((1, 1)),
            state: None,
            checkpoint: None,
            calls: Vec::new(),
            mailbox: Vec::new(),
            arrivals: 0,
            attempts: Vec::new(),
        }
    }

    fn opened() -> LeasedSession {
        let past = SessionHistory { transcript: Some(Transcript::default()), ..SessionHistory::default() };
        LeasedSession::open(grant(), past, Duration::ZERO).unwrap()
    }

    #[test]
    fn the_next_grant_finds_a_session_as_it_was_left() {
        let cache = SessionCache::default();
        let (owner, session, cached) = opened().into_cached(7);
        cache.insert(owner, session, cached);
        let mut next = grant();
        next.lease.epoch += 1;
        assert!(cache.take(&next, 7, Duration::ZERO).transcript.is_some());
    }

    #[test]
    fn reads_from_before_an_erasure_are_repeated() {
        let mut leased = opened();
        let held = |erasures| Continuation::Held {
            mailbox: Vec::new(),
            arrivals: 0,
            versions: Versions { gate: 2, policy: 2, erasures },
        };
        assert!(leased.take_over(held(3)).unwrap() && leased.history.transcript.is_some());
        assert!(leased.take_over(held(4)).unwrap() && leased.history.transcript.is_none());
        assert_eq!(leased.versions.erasures, 4);
    }
}
