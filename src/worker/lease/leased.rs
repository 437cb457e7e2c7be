//! A session with its lease: what its holder knows of it.

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

/// A session with its lease.
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    pub(crate) run: Run,
    /// Events ever appended, as far as seen.
    pub(crate) arrivals: u64,
    /// What the next turn stands on.
    pub(crate) ground: Versions,
    /// What the session remembers, as it is stored.
    pub(crate) state: Option<Bytes>,
    /// Epoch and turn of the last commit.
    pub(crate) last: Option<(u64, u64)>,
    /// Workers that died while they served it, before this one.
    pub(crate) attempts: Vec<Attempt>,
    /// How many of them each event has killed, by its key in the mailbox: a commit counts anew.
    crashes: BTreeMap<String, u32>,
    /// The mailbox may have more than was handed out.
    pub(crate) more: bool,
    /// What a predecessor left of the next turn.
    pub(crate) checkpoint: Option<Recorded>,
    pub(crate) calls: Vec<(u32, Bytes)>,
    /// The turns before.
    pub(crate) past: Past,
    /// Its time to live was over: what it remembers is new, and the commit makes it so.
    pub(crate) expired: bool,
    /// How long to wait after the failure of the model.
    pub(crate) pause: Option<std::time::Duration>,
    pub(crate) stops: Stops,
    /// The task of the running turn was cancelled.
    pub(crate) cancelled: CancellationToken,
}

/// Why a session's run can't go on.
pub(crate) enum Stop {
    /// Fenced.
    Lost,
    /// No answer, or nonsense.
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Leased {
    /// Of a grant that was asked for at `asked`, with what is remembered of the session.
    pub(crate) fn open(grant: Grant, past: Past, asked: Duration) -> Result<Self, StoreError> {
        let state = state(grant.state.as_ref())?;
        let checkpoint = match &grant.checkpoint {
            None => None,
            Some(bytes) => Some(stored("checkpoint", bytes)?),
        };
        // The reply is recorded before its calls; those that people were asked about have been committed with theirs.
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

    /// Workers that the event at `key` had killed when the lease began.
    pub(crate) fn crashes(&self, key: &str) -> u32 {
        self.crashes.get(key).copied().unwrap_or_default()
    }

    /// A commit of the holder was applied, after which the session remembers `state`.
    pub(crate) fn committed(&mut self, state: &SessionState, commit: &Commit) {
        self.run = self.run.after(state, &commit.consume);
        self.state = Some(commit.state.clone());
        self.last = Some((self.lease.epoch, commit.turn));
    }

    /// Takes over what a commit or a release said. Returns whether the lease is still held.
    pub(crate) fn take_over(&mut self, next: Continuation) -> Result<bool, StoreError> {
        match next {
            Continuation::Released { wakes: _ } => Ok(false),
            Continuation::Held { mailbox, arrivals, ground } => {
                self.more = has_more(&mailbox);
                self.run.refresh(inbox(&mailbox)?, self.more);
                self.arrivals = arrivals;
                if ground.erasures != self.ground.erasures {
                    // What was read before may be of turns that are erased now.
                    self.past = Past { since: self.past.since, ..Past::default() };
                }
                self.ground = ground;
                Ok(true)
            }
        }
    }

    /// Releases without a commit, and wakes those who waited for the slot.
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

/// Whether there may be more behind what a lease hands out.
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
