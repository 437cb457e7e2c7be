//! The lease keeper: renews while a session runs, and says when the lease is lost or the task
//! is cancelled.

use super::{Leased, Stop};
use crate::bus::Settle;
use crate::domain::ids::JobId;
use crate::store::{Lease, LeaseCheck};
use crate::venue::jobs;
use crate::worker::Worker;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

/// Pause after a renewal that failed: the lease may have lapsed by the time that the store is back, and nobody else
/// should have taken it by then.
const AGAIN: Duration = Duration::from_millis(500);

/// Whether the store leaves the holder alone.
#[derive(Debug, Clone, Copy, Default)]
struct Away {
    /// The last renewal failed.
    last: bool,
    /// Since when on the steady clock one is on its way, or was when the lease was lost: a store that waits out an outage says nothing of it.
    asking: Option<Duration>,
}

/// What stops a running turn.
#[derive(Debug, Clone)]
pub(crate) struct Stops {
    /// Another has the lease, or may have: write nothing more.
    pub(crate) lost: CancellationToken,
    /// The task that the running turn serves, and what stops that turn when it is cancelled.
    serving: Arc<Mutex<Option<(JobId, CancellationToken)>>>,
    /// When on the steady clock the store was last asked for the lease and gave it: before its
    /// answer, so that no delay of ours makes the lease look longer than it is.
    asked: Arc<Mutex<Duration>>,
    /// Held by a renewal, and by what may give the lease back.
    alone: Arc<tokio::sync::Mutex<()>>,
    /// What is known of the store by the renewals.
    away: Arc<Mutex<Away>>,
}

impl Stops {
    /// Of a lease that was asked for then.
    pub(crate) fn since(asked: Duration) -> Self {
        let asked = Arc::new(Mutex::new(asked));
        Self {
            lost: CancellationToken::new(),
            serving: Arc::default(),
            asked,
            alone: Arc::default(),
            away: Arc::default(),
        }
    }

    /// A turn begins that serves `job`: its own token, for a cancellation must not reach the next
    /// task of the session.
    pub(crate) fn serve(&self, job: Option<&JobId>) -> CancellationToken {
        let token = CancellationToken::new();
        let serving = job.map(|job| (job.clone(), token.clone()));
        *self.serving.lock() = serving;
        token
    }

    /// Keeps the renewal away until the answer is dropped. Behind a write that gives the lease back
    /// it would find none and take it for lost, and nobody would be left to publish what the write
    /// decided before the sweep.
    pub(crate) async fn alone(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.alone).lock_owned().await
    }

    /// When the store was asked last it gave no answer, or none within `patience`: a lease that is lost by `now` was
    /// lost for that.
    pub(crate) fn is_away(&self, now: Duration, patience: Duration) -> bool {
        let away = *self.away.lock();
        away.last || away.asking.is_some_and(|asked| now.saturating_sub(asked) > patience)
    }

    /// The store is asked.
    fn asking(&self, now: Duration) {
        self.away.lock().asking = Some(now);
    }

    /// What it was asked for it has given, or it couldn't. That another has the lease says nothing of the store:
    /// how long that answer took does.
    fn answered(&self, failed: bool) {
        *self.away.lock() = Away { last: failed, asking: None };
    }

    fn serving(&self) -> Option<(JobId, CancellationToken)> {
        self.serving.lock().clone()
    }

    fn renewed(&self, asked: Duration) {
        *self.asked.lock() = asked;
    }

    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.asked.lock())
    }
}

/// The lease says that a task was cancelled: stops the running turn if it is its own.
async fn cancel(worker: &Worker, lease: &Lease, stops: &Stops) {
    let Some((job, token)) = stops.serving() else { return };
    match jobs::is_cancelled(&worker.venue, &lease.owner, &job).await {
        Ok(true) => token.cancel(),
        Ok(false) => {}
        Err(error) => tracing::warn!(session = %lease.session, %error, "not known whether the task is cancelled"),
    }
}

/// The lease can't have lapsed: nobody else does anything in its name.
pub(crate) fn is_sure(worker: &Worker, leased: &Leased) -> bool {
    leased.stops.age(worker.venue.clock.steady()) < worker.options.lease
}

/// Makes sure that the lease can't have lapsed, before something that is paid for. A process may
/// have stood still for longer than its lease: another may have the reply by now.
pub(crate) async fn assure(worker: &Worker, leased: &Leased) -> Result<(), Stop> {
    let (ttl, stops) = (worker.options.lease, &leased.stops);
    if is_sure(worker, leased) {
        return Ok(());
    }
    let asked = worker.venue.clock.steady();
    match worker.venue.store.renew(worker.venue.now(), &leased.lease, ttl).await? {
        LeaseCheck::Fenced => Err(Stop::Lost),
        LeaseCheck::Yes { cancelled, .. } => {
            stops.renewed(asked);
            if cancelled {
                cancel(worker, &leased.lease, stops).await;
            }
            Ok(())
        }
    }
}

/// Goes on with what writes outside the commit only while the lease can't have lapsed. A process that has stood still
/// for longer asks for it first, so that it writes nothing over what the next holder, or anybody after that, did.
pub(crate) async fn held<T>(worker: &Worker, leased: &Leased, work: impl Future<Output = T>) -> Result<T, Stop> {
    guarded(|| is_sure(worker, leased), || assure(worker, leased), work).await
}

async fn guarded<T, E, A: Future<Output = Result<(), E>>>(
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

/// Between two renewals; a store whose answer takes longer is away.
pub(crate) fn patience(worker: &Worker) -> Duration {
    (worker.options.lease / 3).max(Duration::from_millis(10))
}

/// Renews the lease, and the delivery that runs under it, three times per lease, until dropped.
pub(crate) async fn keep(worker: &Worker, lease: &Lease, settle: &dyn Settle, stops: &Stops) {
    let ttl = worker.options.lease;
    let pause = patience(worker);
    let mut wait = pause;
    loop {
        tokio::time::sleep(wait).await;
        wait = pause;
        settle.progress().await;
        let alone = stops.alone().await;
        let asked = worker.venue.clock.steady();
        stops.asking(asked);
        let renewed = worker.venue.store.renew(worker.venue.now(), lease, ttl).await;
        drop(alone);
        match renewed {
            Ok(LeaseCheck::Yes { cancelled, .. }) => {
                stops.answered(false);
                stops.renewed(asked);
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
            // The commit is fenced: going on without a renewal is safe, only perhaps in vain.
            Err(error) => {
                stops.answered(true);
                tracing::warn!(session = %lease.session, %error, "lease not renewed");
                wait = pause.min(AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::guarded;
    use std::cell::Cell;

    #[tokio::test]
    async fn what_has_begun_goes_on_after_a_standstill_only_when_the_lease_is_still_held() {
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
            assert_eq!(guarded(|| sure.get(), assure, work).await, expect);
            assert_eq!(made.get(), steps);
        }
    }
}
