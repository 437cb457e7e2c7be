//! Releases after store errors. A holder whose store doesn't answer, or that can't read what it was given (a newer
//! build may have written it), is alive, and only dead workers count as crashes. So the lease is released as soon as
//! the store answers, expired or not; it counts as a crash only if another worker acquired it first.

use crate::domain::job::WaitNote;
use crate::domain::time::Millis;
use crate::domain::visible::cut_error;
use crate::domain::wait::WaitCause;
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::store::{
    AdmissionOutcome, Admit, DocWrite, Lease, LeaseOutcome, LeaseUse, ReleaseOutcome, StoreError, keys,
};
use crate::venue::Venue;
use crate::worker::state::Worker;
use std::sync::Arc;
use std::time::Duration;

/// Returns the retries of a release: faster than a sweep finds the expired lease.
fn release_retries(worker: &Worker) -> RetryPolicy {
    RetryPolicy {
        first: Duration::from_millis(50),
        max: Duration::from_millis(500),
        total: None,
        ..worker.options.retry
    }
}

/// Pause while the store has no memory left.
const FULL_STORE_PAUSE: Duration = Duration::from_secs(10);

/// Pause after an outage.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Returns the pause of an event or a session after a store error; memory takes longer to be freed.
pub(crate) const fn pause(error: &StoreError) -> Duration {
    if matches!(error, StoreError::Full { .. }) { FULL_STORE_PAUSE } else { FIRST_PAUSE }
}

/// Releases the lease in the background; only a cancellation wakes the session before `pause` is over. If `error` is a
/// damaged record, it is noted as the reason why the session waits.
///
/// The release takes back a counted crash if it is the last. If outages overlap, with another's grant between, only the
/// last crash is taken back; a task that a fifth crash has ended stays ended.
pub(crate) fn release_in_background(worker: &Worker, lease: &Lease, pause: Duration, error: Option<&StoreError>) {
    let (venue, lease, policy) = (Arc::clone(&worker.venue), lease.clone(), release_retries(worker));
    let damaged = error.and_then(StoreError::damaged_record);
    spawn_detached(worker, async move { release(&venue, policy, &lease, pause, damaged).await });
}

/// Releases a lease that an unanswered request may have acquired. The request is repeated with its token, but without
/// its event, which is delivered again.
pub(crate) fn return_grant(worker: &Worker, admit: &Admit) {
    if admit.lease.is_none() {
        return;
    }
    let (venue, policy) = (Arc::clone(&worker.venue), release_retries(worker));
    let admit = Admit { event: None, ..admit.clone() };
    spawn_detached(worker, async move {
        let what = format!("the store, for the lease of `{}` that it may have granted", admit.session);
        let ask = || async { venue.store.admit(venue.now(), &admit).await.map_err(AttemptFailure::from) };
        if let Ok(AdmissionOutcome { lease: LeaseOutcome::Run(grant), .. }) = retry(policy, &what, ask).await {
            release(&venue, policy, &grant.lease, Duration::ZERO, None).await;
        }
    });
}

/// Runs work in the background until the process ends.
fn spawn_detached(worker: &Worker, work: impl Future<Output = ()> + Send + 'static) {
    let ending = worker.shutdown.cancel_token().clone();
    worker.shutdown.spawn_turn("giving back", async move {
        ending.run_until_cancelled(work).await;
    });
}

async fn release(venue: &Venue, policy: RetryPolicy, lease: &Lease, pause: Duration, damaged: Option<String>) {
    let what = format!("the store, to give back the lease of `{}`", lease.session);
    let once = || async {
        let now = venue.now();
        let due = now.plus(pause);
        if let Some(record) = &damaged {
            note_damage(venue, lease, record, due).await;
        }
        let then = LeaseUse::Release { arrivals: u64::MAX, due: Some(due), backoff: !pause.is_zero() };
        venue.store.release(now, lease, then).await.map_err(AttemptFailure::from)
    };
    match retry(policy, &what, once).await {
        Ok(ReleaseOutcome::Done(next)) => venue.relay(&lease.owner, next.wakes()).await,
        // Another worker has the lease.
        Ok(ReleaseOutcome::Fenced) => {}
        Err(error) => tracing::warn!(session = %lease.session, %error, "the lease lapses"),
    }
}

/// Notes until `due` that the session waits because a record is damaged. Without the note the session waits all the same.
async fn note_damage(venue: &Venue, lease: &Lease, record: &str, due: Millis) {
    let note = WaitNote { reason: cut_error(record.to_owned()), until: Some(due), cause: WaitCause::Damaged };
    let write = DocWrite::json(keys::session_wait(&lease.session), &note);
    if let Err(error) = venue.store.write(venue.now(), &lease.owner, &[write]).await {
        tracing::debug!(session = %lease.session, %error, "why it waits is not noted");
    }
}
