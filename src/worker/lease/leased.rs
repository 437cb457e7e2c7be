//! A leased session, as its holder knows it.

use super::keeper::Stops;
use super::memory::Past;
use crate::domain::dead::Attempt;
use crate::domain::limits::{GRANT_BYTES, GRANT_EVENTS};
use crate::domain::session::SessionState;
use crate::domain::time::Millis;
use crate::domain::turn::Recorded;
use crate::domain::turn::run::Run;
use crate::store::{
    After, Commit, Continuation, Grant, LOST_CALLS, Lease, MailboxEntry, Released, StoreError, Versions, corrupt,
};
use crate::venue::context::{inbox, state, stored};
use crate::worker::Worker;
use crate::worker::outbox::Told;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A session under its lease.
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    pub(crate) run: Run,
    /// Number of events ever appended to the mailbox, as far as seen.
    pub(crate) arrivals: u64,
    /// Versions of the documents that the next turn depends on.
    pub(crate) ground: Versions,
    /// State of the session, as stored.
    pub(crate) state: Option<Bytes>,
    /// Epoch and turn of the last commit.
    pub(crate) last: Option<(u64, u64)>,
    /// Workers that died while they served the session.
    pub(crate) attempts: Vec<Attempt>,
    /// Crashes of each event, by its key in the mailbox; a commit counts from zero.
    crashes: BTreeMap<String, u32>,
    /// The mailbox may have more events than the grant returned.
    pub(crate) more: bool,
    /// Reply of the next turn, recorded by an earlier holder.
    pub(crate) checkpoint: Option<Recorded>,
    pub(crate) calls: Vec<(u32, Bytes)>,
    /// Cached earlier turns.
    pub(crate) past: Past,
    /// The session was past its time to live: its state is empty, and so is the store after the commit.
    pub(crate) expired: bool,
    /// Backoff after a failure of the model.
    pub(crate) pause: Option<std::time::Duration>,
    pub(crate) stops: Stops,
    /// Cancelled when the task of the running turn is.
    pub(crate) cancelled: CancellationToken,
}

/// Reason why a run can't go on.
pub(crate) enum Stop {
    /// The lease is fenced.
    Lost,
    /// The store failed, or returned a value that can't be read.
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Leased {
    /// Opens a grant that was requested at `asked`, on the steady clock, with the cached turns.
    pub(crate) fn open(grant: Grant, past: Past, asked: Duration) -> Result<Self, StoreError> {
        let state = state(grant.state.as_ref())?;
        let checkpoint = match &grant.checkpoint {
            None => None,
            Some(bytes) => Some(stored("checkpoint", bytes)?),
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
            more,
            run: Run::new(grant.version, state, inbox(&grant.mailbox)?, more),
            arrivals: grant.arrivals,
            ground: grant.ground,
            state: grant.state,
            last: grant.last,
            attempts: grant.attempts,
            checkpoint,
            calls: grant.calls,
            past,
            expired: false,
            pause: None,
            stops: Stops::since(asked),
            cancelled: CancellationToken::new(),
        })
    }

    /// Returns the number of workers that the event at `key` had killed when the lease began.
    pub(crate) fn crashes(&self, key: &str) -> u32 {
        self.crashes.get(key).copied().unwrap_or_default()
    }

    /// Takes over a commit of this holder, whose new state is `state`.
    pub(crate) fn committed(&mut self, state: &SessionState, commit: &Commit) {
        self.run = self.run.after(state, &commit.consume);
        self.state = Some(commit.state.clone());
        self.last = Some((self.lease.epoch, commit.turn));
    }

    /// Takes over the result of a commit or a release. Returns whether the lease is still held.
    pub(crate) fn take_over(&mut self, next: Continuation) -> Result<bool, StoreError> {
        match next {
            Continuation::Released { wakes: _ } => Ok(false),
            Continuation::Held { mailbox, arrivals, ground } => {
                self.more = has_more(&mailbox);
                self.run.refresh(inbox(&mailbox)?, self.more);
                self.arrivals = arrivals;
                if ground.erasures != self.ground.erasures {
                    // The cache may have turns that are erased.
                    self.past = Past { since: self.past.since, ..Past::default() };
                }
                self.ground = ground;
                Ok(true)
            }
        }
    }

    /// Releases the lease without a commit, and queues wakes for the sessions that waited for it.
    pub(crate) async fn release(&self, worker: &Worker, now: Millis, then: After) -> Result<Continuation, Stop> {
        let lease = &self.lease;
        let _alone = self.stops.alone().await;
        match worker.venue.store.release(now, lease, then).await? {
            Released::Fenced => Err(Stop::Lost),
            Released::Done(next) => {
                let told = Told { entries: next.wakes().to_vec(), ..Told::default() };
                worker.relay.leave(&lease.owner, &lease.session, told).await;
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

    #[test]
    fn what_was_read_before_an_erasing_is_read_again() {
        let session = crate::domain::ids::SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let grant = Grant {
            lease: Lease { owner: "t/u".parse().unwrap(), session, epoch: 1 },
            until: Millis(0),
            ground: Versions { gate: 1, policy: 1, erasures: 3 },
            version: 1,
            last: None,
            state: None,
            checkpoint: None,
            calls: Vec::new(),
            mailbox: Vec::new(),
            arrivals: 0,
            attempts: Vec::new(),
        };
        let past = Past { transcript: Some(Transcript::default()), ..Past::default() };
        let mut leased = Leased::open(grant, past, Duration::ZERO).unwrap();
        let held = |erasures| Continuation::Held {
            mailbox: Vec::new(),
            arrivals: 0,
            ground: Versions { gate: 2, policy: 2, erasures },
        };
        assert!(leased.take_over(held(3)).unwrap() && leased.past.transcript.is_some());
        assert!(leased.take_over(held(4)).unwrap() && leased.past.transcript.is_none());
        assert_eq!(leased.ground.erasures, 4);
    }
}
