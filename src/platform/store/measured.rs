//! A store that measures its calls, and counts the jobs that they end.

use super::{
    Commit, CommitOutcome, FinishOutcome, JobFinish, Layer, Lease, NewJob, OutboxEntry, Repeat, Store, StoreError,
    StoreMethod,
};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::process::telemetry::Metrics;
use std::sync::Arc;

/// Measures the calls to a store. It is the outermost layer: repetitions are within the measured time, and a job that
/// a repeated call ends is counted once.
pub struct MeasuredStore {
    inner: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl MeasuredStore {
    /// Returns a store that records the calls to `inner`.
    pub fn new(inner: Arc<dyn Store>, metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self { inner, metrics, clock }
    }
}

/// Returns the label of a status with which a job ends.
const fn status_label(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Complete => "complete",
        JobStatus::Cancelled => "cancelled",
        JobStatus::Rejected => "rejected",
        JobStatus::Failed
        | JobStatus::Pending
        | JobStatus::Started
        | JobStatus::Paused
        | JobStatus::InputRequired
        | JobStatus::AuthRequired => "failed",
    }
}

impl Layer for MeasuredStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        let began = self.clock.steady();
        let answer = call().await;
        let took = self.clock.steady().saturating_sub(began);
        self.metrics.backends.record_store_call(method.name, took, answer.is_err());
        answer
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let method = StoreMethod { name: "commit", repeat: Repeat::Idempotent };
        let committed = self.around(method, || self.inner.commit(now, lease, commit)).await?;
        if matches!(committed, CommitOutcome::Done(_)) {
            for finish in &commit.finish {
                let status = status_label(finish.status);
                self.metrics.progress.count_job_end(status);
                self.metrics.agents.count_job_end(lease.session.agent.as_str(), status);
            }
        }
        Ok(committed)
    }

    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<FinishOutcome, StoreError> {
        let method = StoreMethod { name: "finish", repeat: Repeat::Idempotent };
        let finished = self.around(method, || self.inner.finish(now, owner, session, finish, open, outbox)).await?;
        if matches!(finished, FinishOutcome::Done) {
            let status = status_label(finish.status);
            self.metrics.progress.count_job_end(status);
            self.metrics.agents.count_job_end(session.agent.as_str(), status);
        }
        Ok(finished)
    }
}
