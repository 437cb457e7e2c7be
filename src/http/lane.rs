//! Lanes: large requests run apart from all others, on a part of the processors for each tenant, one after the other
//! within it. So large requests of one tenant don't delay the others.

use super::load::{MemoryCharge, MemoryCost, MemoryLimiter, Payer};
use crate::process::large::{HandledBytes, run_apart};
use crate::process::telemetry::Metrics;
use futures::future::BoxFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;
use std::time::Duration;

/// Cost of one lane.
const LANE: MemoryCost = MemoryCost { total: 1, body: 1 };

/// The lanes of a server: one per processor, half of them for one tenant.
pub(super) struct RequestLanes {
    lanes: Arc<MemoryLimiter>,
    metrics: Arc<Metrics>,
}

impl RequestLanes {
    /// Makes one lane per processor of this machine, at least two.
    pub(super) fn new(metrics: &Arc<Metrics>) -> Self {
        let processors = available_parallelism().map_or(2, |count| count.get().max(2));
        Self::with_count(processors as u64, metrics)
    }

    fn with_count(lanes: u64, metrics: &Arc<Metrics>) -> Self {
        Self { lanes: MemoryLimiter::new(lanes), metrics: Arc::clone(metrics) }
    }

    /// Runs a request with a body of `body` bytes: in a lane as soon as it is large.
    pub(super) fn run<F: Future + Send>(&self, payer: &Payer, body: usize, work: F) -> LaneFuture<F> {
        let handled = HandledBytes::new(body);
        let (lanes, metrics) = (Arc::clone(&self.lanes), Arc::clone(&self.metrics));
        let payer = payer.clone();
        LaneFuture { work: Box::pin(work), handled, lanes, metrics, payer, is_large: false, next: None }
    }
}

/// A running request, in a lane once it is large. It holds a lane only while it is polled, not while it waits for the
/// store.
pub(super) struct LaneFuture<F> {
    work: Pin<Box<F>>,
    handled: HandledBytes,
    lanes: Arc<MemoryLimiter>,
    metrics: Arc<Metrics>,
    payer: Payer,
    is_large: bool,
    next: Option<BoxFuture<'static, Option<Arc<MemoryCharge>>>>,
}

impl<F: Future + Send> Future for LaneFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { work, handled, lanes, metrics, payer, is_large, next } = self.get_mut();
        if !handled.is_large() {
            return handled.count(|| work.as_mut().poll(cx));
        }
        if !std::mem::replace(is_large, true) {
            metrics.http_large.inc();
        }
        let waiting = next.get_or_insert_with(|| {
            let (lanes, payer) = (Arc::clone(lanes), payer.clone());
            // The time limit of the request ends the wait.
            Box::pin(async move { lanes.load(&payer, LANE, Duration::MAX).await })
        });
        let lane = ready!(waiting.as_mut().poll(cx));
        *next = None;
        let polled = run_apart(|| handled.count(|| work.as_mut().poll(cx)));
        drop(lane);
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::share::Sharers;
    use crate::process::large::{LARGE_BYTES, note_large};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use tokio::task::JoinHandle;

    const PATIENCE: Duration = Duration::from_mins(1);

    fn spawn<F: Future + Send + 'static>(
        lanes: &RequestLanes,
        user: &str,
        body: usize,
        work: F,
    ) -> JoinHandle<F::Output>
    where
        F::Output: Send,
    {
        let owner = format!("t/{user}").parse().unwrap();
        tokio::spawn(lanes.run(&Payer::new(Some(owner), Sharers { tenants: false, users: true }), body, work))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn one_owner_has_half_of_the_lanes_and_small_requests_need_none() {
        let metrics = Arc::new(Metrics::new());
        let lanes = RequestLanes::with_count(4, &metrics);
        let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let large = |_| {
            let (at_work, most) = (Arc::clone(&at_work), Arc::clone(&most));
            spawn(&lanes, "loud", 0, async move {
                note_large(LARGE_BYTES).await;
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                at_work.fetch_sub(1, Ordering::SeqCst);
            })
        };
        for large in (0..16).map(large).collect::<Vec<_>>() {
            large.await.unwrap();
        }
        assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} of 4 lanes");
        assert_eq!(metrics.http_large.get(), 16);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn while_one_owners_large_requests_work_all_others_are_served() {
        let metrics = Arc::new(Metrics::new());
        let lanes = RequestLanes::with_count(2, &metrics);
        let (end, ends) = channel();
        let first = spawn(&lanes, "loud", LARGE_BYTES, async move { ends.recv_timeout(PATIENCE).is_ok() });
        let second = spawn(&lanes, "loud", LARGE_BYTES, async {});
        let small = spawn(&lanes, "other", 10, async { note_large(10).await });
        small.await.unwrap();
        spawn(&lanes, "other", LARGE_BYTES, async {}).await.unwrap();
        assert!(!second.is_finished(), "its owner's lane is taken");
        end.send(()).unwrap();
        assert!(first.await.unwrap());
        second.await.unwrap();
        assert_eq!(metrics.http_large.get(), 3);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_request_that_waits_for_something_holds_no_lane() {
        let lanes = RequestLanes::with_count(2, &Arc::new(Metrics::new()));
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        let first = spawn(&lanes, "loud", LARGE_BYTES, told);
        spawn(&lanes, "loud", LARGE_BYTES, async {}).await.unwrap();
        tell.send(()).unwrap();
        first.await.unwrap().unwrap();
    }
}
