//! Waits of this process for the end of jobs.

use crate::domain::ids::{JobId, Owner};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

type EndWaiters = Mutex<HashMap<(Owner, JobId), (usize, Arc<Notify>)>>;

/// Jobs whose end is waited for, with the number of waiters.
#[derive(Debug, Default)]
pub(super) struct JobEnds(Arc<EndWaiters>);

/// One waiter; dropping it ends the wait.
struct EndWaiter {
    waiting: Arc<EndWaiters>,
    of: (Owner, JobId),
}

impl Drop for EndWaiter {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        if let Some((waiters, _)) = waiting.get_mut(&self.of) {
            *waiters -= 1;
            if *waiters == 0 {
                waiting.remove(&self.of);
            }
        }
    }
}

impl JobEnds {
    /// Returns a future that ends with the job, if the end is announced after this call.
    pub(super) fn wait(&self, owner: &Owner, job: &JobId) -> BoxFuture<'static, ()> {
        let of = (owner.clone(), job.clone());
        let told = {
            let mut waiting = self.0.lock();
            let (waiters, notify) = waiting.entry(of.clone()).or_default();
            *waiters += 1;
            Arc::clone(notify).notified_owned()
        };
        let waiter = EndWaiter { waiting: Arc::clone(&self.0), of };
        Box::pin(async move {
            told.await;
            drop(waiter);
        })
    }

    /// Announces the end of a job.
    pub(super) fn announce(&self, owner: &Owner, job: &JobId) {
        if let Some((_, notify)) = self.0.lock().get(&(owner.clone(), job.clone())) {
            notify.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn every_waiter_is_woken_and_then_removed() {
        let (ends, owner, other): (_, Owner, Owner) =
            (JobEnds::default(), "t/u".parse().unwrap(), "t/v".parse().unwrap());
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        let (first, second) = (ends.wait(&owner, &job), ends.wait(&owner, &job));
        let stranger = ends.wait(&other, &job);
        let given_up = ends.wait(&owner, &job);
        drop(given_up);
        ends.announce(&owner, &job);
        assert_eq!((first.now_or_never(), second.now_or_never()), (Some(()), Some(())));
        assert_eq!(stranger.now_or_never(), None, "another owner's job of that id");
        assert!(ends.0.lock().is_empty());
        ends.announce(&owner, &job);
        assert_eq!(ends.wait(&owner, &job).now_or_never(), None, "told before it waited");
    }
}
