//! Conditions that stop a running turn, and what the renewals of its lease have found.

use crate::domain::ids::JobId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

/// Signs that the store is unavailable.
#[derive(Debug, Clone, Copy, Default)]
struct StoreOutage {
    /// The last renewal failed.
    is_last_failed: bool,
    /// Steady time at which a pending renewal began, or was pending when the lease was lost: during an outage the store
    /// reports no error.
    pending_since: Option<Duration>,
}

/// Conditions that stop a running turn.
#[derive(Debug, Clone)]
pub(crate) struct StopSignals {
    /// Another worker has the lease, or may have it: nothing more may be written.
    pub(crate) lost: CancellationToken,
    /// The task that the running turn serves, and the token that cancels that turn.
    served_task: Arc<Mutex<Option<(JobId, CancellationToken)>>>,
    /// Steady time of the last successful request for the lease. It is the time before the request, so that the lease
    /// is never thought longer than it is.
    last_success: Arc<Mutex<Duration>>,
    /// Locked by a renewal, and by writes that may release the lease.
    renewal_lock: Arc<tokio::sync::Mutex<()>>,
    /// Result of the last renewal.
    outage: Arc<Mutex<StoreOutage>>,
}

impl StopSignals {
    /// Makes the conditions of a lease requested at `asked`, on the steady clock.
    pub(crate) fn new_at(asked: Duration) -> Self {
        let asked = Arc::new(Mutex::new(asked));
        Self {
            lost: CancellationToken::new(),
            served_task: Arc::default(),
            last_success: asked,
            renewal_lock: Arc::default(),
            outage: Arc::default(),
        }
    }

    /// Begins a turn that serves `job`. Each turn has its own token, so that a cancellation doesn't stop the session's
    /// next task.
    pub(crate) fn serve(&self, job: Option<&JobId>) -> CancellationToken {
        let token = CancellationToken::new();
        let serving = job.map(|job| (job.clone(), token.clone()));
        *self.served_task.lock() = serving;
        token
    }

    /// Blocks renewals until the guard is dropped. A renewal after a write that releases the lease would find no lease
    /// and report it lost; the messages of that write would then wait for the sweep.
    pub(crate) async fn lock_renewal(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.renewal_lock).lock_owned().await
    }

    /// Whether the last request failed, or has had no answer within `patience`: a lease lost by `now` was lost for
    /// that.
    pub(crate) fn is_unreachable(&self, now: Duration, patience: Duration) -> bool {
        let away = *self.outage.lock();
        away.is_last_failed || away.pending_since.is_some_and(|asked| now.saturating_sub(asked) > patience)
    }

    /// Records the start of a renewal.
    pub(crate) fn note_request(&self, now: Duration) {
        self.outage.lock().pending_since = Some(now);
    }

    /// Records the end of a renewal. A lost lease is no failure of the store; the time that the answer took may be one.
    pub(crate) fn note_answer(&self, failed: bool) {
        *self.outage.lock() = StoreOutage { is_last_failed: failed, pending_since: None };
    }

    /// Returns the task that the running turn serves, and the token that cancels that turn.
    pub(crate) fn served_task(&self) -> Option<(JobId, CancellationToken)> {
        self.served_task.lock().clone()
    }

    /// Records a successful request for the lease, made at this steady time.
    pub(crate) fn note_renewal(&self, asked: Duration) {
        *self.last_success.lock() = asked;
    }

    /// Returns the time since the last successful request for the lease.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.last_success.lock())
    }
}
