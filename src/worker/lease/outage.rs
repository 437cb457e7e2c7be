//! A holder that its store has left alone: it lives, and only dead workers count as crashes. As soon as the store answers
//! the lease is given back, lapsed or not; it counts as a crash only where another was faster.

use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::store::{After, Lease, Released, StoreError};
use crate::worker::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Sooner than a sweep finds the lease lapsed.
const TRIES: RetryPolicy =
    RetryPolicy { first: Duration::from_millis(50), max: Duration::from_millis(500), total: None };

/// Until memory is freed.
const FULL: Duration = Duration::from_secs(10);

/// Until a store that is there again has what it needs.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// How long an event or a session waits after an error of the store. Memory isn't freed in a moment.
pub(crate) const fn pause(error: &StoreError) -> Duration {
    if matches!(error, StoreError::Full { .. }) { FULL } else { SHORT }
}

/// Gives the lease back, beside what comes next; the session is due after `pause`.
pub(crate) fn give_back(worker: &Worker, lease: &Lease, pause: Duration) {
    let (venue, lease, ending) = (Arc::clone(&worker.venue), lease.clone(), worker.shutdown.cancelling().clone());
    worker.shutdown.spawn_turn("giving back", async move {
        let release = || async {
            let now = venue.now();
            let then = After::Release { arrivals: u64::MAX, due: Some(now.plus(pause)), backoff: false };
            venue.store.release(now, &lease, then).await.map_err(|error| match error {
                error if error.is_transient() => AttemptFailure::Transient(error),
                error => AttemptFailure::Permanent(error),
            })
        };
        let what = format!("the store, to give back the lease of `{}`", lease.session);
        let released: Option<Result<Released, StoreError>> =
            ending.run_until_cancelled(retry(TRIES, &what, release)).await;
        match released {
            Some(Ok(Released::Done(next))) => venue.relay(&lease.owner, next.wakes()).await,
            Some(Err(error)) => tracing::warn!(session = %lease.session, %error, "the lease lapses"),
            // Another has it, or the process ends before the store was back.
            Some(Ok(Released::Fenced)) | None => {}
        }
    });
}
