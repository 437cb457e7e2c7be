//! Operations that callers have invoked, beside turns. They have slots of their own: an operation that waits for a turn
//! must not hold the slot that the turn needs.

use super::state::Worker;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::{ErrorCode, JobResult};
use crate::domain::share::LONG_HOLD;
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::a2a::{deliver, push};
use crate::venue::notifications::{self, deliver as webhooks};
use crate::venue::operation_jobs::{self, LeasedOperation, RunOutcome, RunTerms};
use crate::venue::{mcp, remote_tasks};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Delay before an operation runs again whose run ended with a store error.
const RERUN_PAUSE: Duration = Duration::from_secs(1);

/// Pause between two tries to write the end of an operation.
const END_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A slot for an operation; dropping it starts the operation that waits next.
struct OperationSlot {
    worker: Arc<Worker>,
    owner: Owner,
    job: JobId,
}

impl Drop for OperationSlot {
    fn drop(&mut self) {
        if let Some((owner, job)) = self.worker.operation_slots.release(&self.owner, &self.job) {
            start(&self.worker, owner, job);
        }
    }
}

/// Runs the operation here as soon as a slot is free, if it is due.
pub(super) fn offer(worker: &Arc<Worker>, owner: &Owner, job: &JobId) {
    if worker.takes_work() && worker.operation_slots.try_take(owner, job) {
        start(worker, owner.clone(), job.clone());
    }
}

/// Starts waiting operations every `LONG_HOLD`, as long-held slots make room for them.
pub(super) async fn start_waiting(worker: Arc<Worker>) {
    let (clock, stop) = (&worker.venue.clock, worker.shutdown.stop_token());
    while stop.run_until_cancelled(clock.wait_until(clock.steady() + LONG_HOLD)).await.is_some() {
        while let Some((owner, job)) = worker.operation_slots.start_next() {
            start(&worker, owner, job);
        }
    }
}

fn start(worker: &Arc<Worker>, owner: Owner, job: JobId) {
    let place = OperationSlot { worker: Arc::clone(worker), owner, job };
    worker.shutdown.spawn_turn("operation", async move {
        let OperationSlot { worker, owner, job } = &place;
        if !worker.takes_work() {
            return;
        }
        if let Err(error) = Box::pin(run_job(worker, owner, job)).await {
            tracing::warn!(%owner, %job, %error, "operation given up for now");
        }
    });
}

/// Offers the due operations of an owner.
pub(super) async fn sweep(worker: &Arc<Worker>, owner: &Owner) -> Result<(), StoreError> {
    for job in operation_jobs::list_due(&worker.venue, owner).await? {
        offer(worker, owner, &job);
    }
    Ok(())
}

/// Reason for the end of a run.
enum OperationEnd {
    Finished(RunOutcome),
    /// The operation was cancelled, or another worker has it.
    NotOurs,
    /// This worker is stopping.
    Stopped,
}

async fn run_job(worker: &Worker, owner: &Owner, job: &JobId) -> Result<(), StoreError> {
    let (venue, options) = (&worker.venue, &worker.options);
    let terms = RunTerms { worker: &options.name, lease: options.lease, crash_limit: options.crash_limit };
    let Some(mut held) = operation_jobs::acquire(venue, owner, job, terms).await? else {
        return Box::pin(stop_cancelled(venue, owner, job)).await;
    };
    let cancelled = CancellationToken::new();
    let _served = worker.tasks.serve(owner, job, &cancelled);
    let end = {
        let taken = held.clone();
        let run = run_operation(worker, owner, &taken);
        let run = std::pin::pin!(run);
        renew_until_end(worker, owner, &mut held, &cancelled, run).await
    };
    match end {
        Ok(OperationEnd::Finished(RunOutcome::Ended(result))) => {
            if record_end(worker, owner, &held, &result).await? {
                if result.error_code == Some(ErrorCode::OutcomeUnknown) {
                    notifications::send_soon(venue, owner).await;
                }
            } else {
                tracing::info!(%owner, %job, "operation had ended otherwise, or another worker has it; this end counts for nothing");
                return Box::pin(stop_cancelled(venue, owner, job)).await;
            }
            Ok(())
        }
        Ok(OperationEnd::NotOurs) => {
            tracing::info!(%owner, %job, "operation stopped: it was cancelled, or another worker has it");
            operation_jobs::clear_if_ended(venue, owner, &held).await?;
            Box::pin(stop_cancelled(venue, owner, job)).await
        }
        Ok(OperationEnd::Stopped) => operation_jobs::release(venue, owner, &held, Duration::ZERO).await,
        Ok(OperationEnd::Finished(RunOutcome::Retry)) => {
            operation_jobs::release(venue, owner, &held, RERUN_PAUSE).await
        }
        Ok(OperationEnd::Finished(RunOutcome::Later(pause))) => {
            operation_jobs::release(venue, owner, &held, pause).await
        }
        Err(error) => {
            operation_jobs::release(venue, owner, &held, RERUN_PAUSE).await?;
            Err(error)
        }
    }
}

/// Runs a step of an operation: of the catalogue, the venue's own delivery of a notification, or a task of an agent
/// elsewhere, or a call of another server's tool.
async fn run_operation(worker: &Worker, owner: &Owner, held: &LeasedOperation) -> Result<RunOutcome, StoreError> {
    let venue = &worker.venue;
    if push::is_delivery(held.head()) {
        return deliver::run(venue, owner, held).await;
    }
    if webhooks::is_webhook_delivery(held.head()) {
        return Box::pin(webhooks::run(venue, owner, held)).await;
    }
    if remote_tasks::is_remote(held.head()) {
        return Box::pin(remote_tasks::run(venue, owner, held)).await;
    }
    if mcp::is_pending_call(held.head()) {
        return Box::pin(mcp::run(venue, owner, held, worker.options.approval_time)).await;
    }
    operation_jobs::run(venue, owner, held).await
}

/// Stops what goes on elsewhere for a job that was cancelled, once; then nothing is left of the job but its record.
async fn stop_cancelled(venue: &Venue, owner: &Owner, job: &JobId) -> Result<(), StoreError> {
    let Some(cancelled) = operation_jobs::find_cancelled(venue, owner, job).await? else { return Ok(()) };
    let is_cancelled = remote_tasks::stop_cancelled(venue, owner, &cancelled).await
        || mcp::stop_cancelled(venue, owner, &cancelled).await?;
    operation_jobs::clear_cancelled(venue, owner, &cancelled, is_cancelled).await
}

/// Renews the lease until the run has ended or is stopped.
async fn renew_until_end(
    worker: &Worker,
    owner: &Owner,
    held: &mut LeasedOperation,
    cancelled: &CancellationToken,
    mut run: std::pin::Pin<&mut impl Future<Output = Result<RunOutcome, StoreError>>>,
) -> Result<OperationEnd, StoreError> {
    let lease = worker.options.lease;
    let pause = (lease / 3).max(Duration::from_millis(10));
    loop {
        tokio::select! {
            biased;
            ran = &mut run => return ran.map(OperationEnd::Finished),
            () = cancelled.cancelled() => return Ok(OperationEnd::NotOurs),
            () = worker.shutdown.cancel_token().cancelled() => return Ok(OperationEnd::Stopped),
            () = tokio::time::sleep(pause) => {}
        }
        match operation_jobs::renew(&worker.venue, owner, held, lease).await {
            Ok(Some(renewed)) => *held = renewed,
            Ok(None) => return Ok(OperationEnd::NotOurs),
            Err(error) => tracing::warn!(%owner, %error, "an operation's lease is not renewed yet"),
        }
    }
}

/// Writes the end of an operation, with retries for the time of a lease: only this worker knows the result.
async fn record_end(
    worker: &Worker,
    owner: &Owner,
    held: &LeasedOperation,
    result: &JobResult,
) -> Result<bool, StoreError> {
    let tries = RetryPolicy::with_steady_waits(END_RETRY_PAUSE, worker.options.lease);
    let once = || async { operation_jobs::end(&worker.venue, owner, held, result).await.map_err(AttemptFailure::from) };
    retry(tries, "the store, for the end of an operation", once).await
}
