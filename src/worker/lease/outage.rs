//! A holder that its store has left alone, or that can't read what it was given (a newer build may have written it, and
//! goes on with it): it lives, and only dead workers count as crashes. As soon as the store answers the lease is given
//! back, lapsed or not; it counts as a crash only where another was faster.

use crate::domain::ids::{Owner, SessionKey};
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::store::{Admit, Admitted, After, Lease, LeaseOutcome, Released, StoreError};
use crate::venue::Venue;
use crate::worker::Worker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Sooner than a sweep finds the lease lapsed.
fn tries(worker: &Worker) -> RetryPolicy {
    RetryPolicy {
        first: Duration::from_millis(50),
        max: Duration::from_millis(500),
        total: None,
        ..worker.options.retry
    }
}

/// Until memory is freed.
const FULL: Duration = Duration::from_secs(10);

/// Until a store that is there again has what it needs.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// The longest that a session waits that fails again and again: each time its model may be asked, and paid, again.
const LONG: Duration = Duration::from_mins(1);

/// Sessions whose failures are remembered.
const REMEMBERED: usize = 10_000;

/// How often in a row the store has failed sessions here without a turn committed between.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<HashMap<(Owner, SessionKey), Failures>>);

#[derive(Debug, Clone, Copy)]
struct Failures {
    /// Turns that the session had.
    version: u64,
    /// The wait after the last.
    pause: Duration,
}

impl Failing {
    /// The session, of so many turns, has been failed again: how long it waits now, `first` after the first time.
    pub(crate) fn again(&self, lease: &Lease, version: u64, first: Duration) -> Duration {
        let mut failing = self.0.lock();
        if failing.len() >= REMEMBERED {
            failing.clear();
        }
        let key = (lease.owner.clone(), lease.session.clone());
        let before = failing.get(&key).filter(|before| before.version == version);
        let pause = before.map_or(first, |before| (before.pause * 2).clamp(first, LONG));
        failing.insert(key, Failures { version, pause });
        pause
    }

    /// The session went on to its end.
    pub(crate) fn is_well(&self, lease: &Lease) {
        let mut failing = self.0.lock();
        if !failing.is_empty() {
            failing.remove(&(lease.owner.clone(), lease.session.clone()));
        }
    }
}

/// How long an event or a session waits after an error of the store. Memory isn't freed in a moment.
pub(crate) const fn pause(error: &StoreError) -> Duration {
    if matches!(error, StoreError::Full { .. }) { FULL } else { SHORT }
}

/// Gives the lease back, beside what comes next; nothing but a cancellation reaches the session before `pause` is over.
///
/// A crash that was counted is taken back as long as it is the last. Of outages that overlap, each with another's grant
/// between, only the last is; and a task that a fifth crash has ended stays ended.
pub(crate) fn give_back(worker: &Worker, lease: &Lease, pause: Duration) {
    let (venue, lease, policy) = (Arc::clone(&worker.venue), lease.clone(), tries(worker));
    beside(worker, async move { release(&venue, policy, &lease, pause).await });
}

/// A request for a lease had no answer: if it was granted, it is given back. The request is made once more, with its
/// token, but without its event, which is delivered again.
pub(crate) fn return_grant(worker: &Worker, admit: &Admit) {
    if admit.lease.is_none() {
        return;
    }
    let (venue, policy) = (Arc::clone(&worker.venue), tries(worker));
    let admit = Admit { event: None, ..admit.clone() };
    beside(worker, async move {
        let what = format!("the store, for the lease of `{}` that it may have granted", admit.session);
        let ask = || async { venue.store.admit(venue.now(), &admit).await.map_err(AttemptFailure::from) };
        if let Ok(Admitted { lease: LeaseOutcome::Run(grant), .. }) = retry(policy, &what, ask).await {
            release(&venue, policy, &grant.lease, Duration::ZERO).await;
        }
    });
}

/// Until the process ends.
fn beside(worker: &Worker, work: impl Future<Output = ()> + Send + 'static) {
    let ending = worker.shutdown.cancelling().clone();
    worker.shutdown.spawn_turn("giving back", async move {
        ending.run_until_cancelled(work).await;
    });
}

async fn release(venue: &Venue, policy: RetryPolicy, lease: &Lease, pause: Duration) {
    let what = format!("the store, to give back the lease of `{}`", lease.session);
    let once = || async {
        let now = venue.now();
        let then = After::Release { arrivals: u64::MAX, due: Some(now.plus(pause)), backoff: !pause.is_zero() };
        venue.store.release(now, lease, then).await.map_err(AttemptFailure::from)
    };
    match retry(policy, &what, once).await {
        Ok(Released::Done(next)) => venue.relay(&lease.owner, next.wakes()).await,
        // Another has it.
        Ok(Released::Fenced) => {}
        Err(error) => tracing::warn!(session = %lease.session, %error, "the lease lapses"),
    }
}
