//! The lease keeper: renews the lease while a session runs, and stops the run when the lease is lost or the task is
//! cancelled.

use super::stop_signals::StopSignals;
use super::{LeasedSession, RunStop};
use crate::bus::Acknowledge;
use crate::store::{Lease, LeaseCheck};
use crate::venue::jobs;
use crate::worker::state::Worker;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Pause after a failed renewal: the lease may expire during an outage, and must be renewed before another worker
/// acquires it.
const RENEWAL_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Cancels the running turn if its task is cancelled in the store.
async fn cancel(worker: &Worker, lease: &Lease, stops: &StopSignals) {
    let Some((job, token)) = stops.served_task() else { return };
    match jobs::has_ended(&worker.venue, &lease.owner, &job).await {
        Ok(true) => token.cancel(),
        Ok(false) => {}
        Err(error) => tracing::warn!(session = %lease.session, %error, "not known whether the task is cancelled"),
    }
}

/// Whether the lease can't have expired, so that no other worker acts for the session.
pub(crate) fn is_surely_held(worker: &Worker, leased: &LeasedSession) -> bool {
    leased.stops.age(worker.venue.clock.steady()) < worker.options.lease
}

/// Makes sure that the lease can't have expired, before a step that costs money. The process may have been suspended
/// for longer than the lease, and another worker may have the reply.
pub(crate) async fn ensure_lease(worker: &Worker, leased: &LeasedSession) -> Result<(), RunStop> {
    let (ttl, stops) = (worker.options.lease, &leased.stops);
    if is_surely_held(worker, leased) {
        return Ok(());
    }
    let asked = worker.venue.clock.steady();
    match worker.venue.store.renew(worker.venue.now(), &leased.lease, ttl).await? {
        LeaseCheck::Fenced => Err(RunStop::Lost),
        LeaseCheck::Held { cancelled, .. } => {
            stops.note_renewal(asked);
            if cancelled {
                cancel(worker, &leased.lease, stops).await;
            }
            Ok(())
        }
    }
}

/// Runs work that writes outside the commit only while the lease can't have expired. A process that was suspended for
/// longer renews the lease first, so that it overwrites nothing of a later holder.
pub(crate) async fn while_leased<T>(
    worker: &Worker,
    leased: &LeasedSession,
    work: impl Future<Output = T>,
) -> Result<T, RunStop> {
    run_guarded(|| is_surely_held(worker, leased), || ensure_lease(worker, leased), work).await
}

async fn run_guarded<T, E, A: Future<Output = Result<(), E>>>(
    is_sure: impl Fn() -> bool,
    assure: impl Fn() -> A,
    work: impl Future<Output = T>,
) -> Result<T, E> {
    let mut work = pin!(work);
    loop {
        let step = poll_fn(|cx| if is_sure() { work.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) });
        match step.await {
            Some(done) => return Ok(done),
            None => assure().await?,
        }
    }
}

/// Returns the time between two renewals; a store that takes longer to answer counts as unavailable.
pub(crate) fn patience(worker: &Worker) -> Duration {
    (worker.options.lease / 3).max(Duration::from_millis(10))
}

/// Renews the lease, and the delivery that runs under it, three times per lease, until dropped.
pub(crate) async fn renew_until_lost(worker: &Worker, lease: &Lease, settle: &dyn Acknowledge, stops: &StopSignals) {
    let ttl = worker.options.lease;
    let pause = patience(worker);
    let mut wait = pause;
    loop {
        tokio::time::sleep(wait).await;
        wait = pause;
        settle.progress().await;
        let alone = stops.lock_renewal().await;
        let asked = worker.venue.clock.steady();
        stops.note_request(asked);
        let renewed = worker.venue.store.renew(worker.venue.now(), lease, ttl).await;
        drop(alone);
        match renewed {
            Ok(LeaseCheck::Held { cancelled, .. }) => {
                stops.note_answer(false);
                stops.note_renewal(asked);
                if cancelled {
                    cancel(worker, lease, stops).await;
                }
            }
            Ok(LeaseCheck::Fenced) => {
                worker.venue.metrics.leases_lost.inc();
                tracing::warn!(session = %lease.session, epoch = lease.epoch, "lease lost");
                stops.lost.cancel();
                return;
            }
            // The commit is fenced, so going on without a renewal is safe.
            Err(error) => {
                stops.note_answer(true);
                tracing::warn!(session = %lease.session, %error, "lease not renewed");
                wait = pause.min(RENEWAL_RETRY_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run_guarded;
    use std::cell::Cell;

    #[tokio::test]
    async fn after_a_standstill_only_a_held_lease_lets_work_continue() {
        for (answer, expect, steps) in [(Ok(()), Ok("done"), 2), (Err("fenced"), Err("fenced"), 1)] {
            let (sure, made) = (Cell::new(true), Cell::new(0));
            let work = async {
                made.set(1);
                // The process stands still for longer than its lease.
                sure.set(false);
                tokio::task::yield_now().await;
                made.set(2);
                "done"
            };
            let assure = || {
                sure.set(answer.is_ok());
                std::future::ready(answer)
            };
            assert_eq!(run_guarded(|| sure.get(), assure, work).await, expect);
            assert_eq!(made.get(), steps);
        }
    }
}
