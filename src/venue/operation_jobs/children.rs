//! Operations that turns start, as jobs whose results go to the sessions of these turns, and what is known of tasks that
//! they stand for.

use super::{
    LeasedOperation, OperationJob, count_outcome, deletion_writes, outcome_listing, read_operation, reload_if_leased,
    replacement_writes,
};
use crate::domain::a2a::task::RemoteTask;
use crate::domain::ids::{JobId, Owner};
use crate::domain::invocation::{self as rules, InvokedOperation};
use crate::domain::job::{ErrorCode, JobHead, JobResult, JobStatus};
use crate::domain::mcp::pending::PendingToolCall;
use crate::domain::time::Millis;
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::store::{DocWrite, Edit, FinishOutcome, StoreError, keys};
use crate::venue::{Venue, jobs, outcomes};
use std::time::Duration;

/// Tries to store what another server has answered.
const KEEP_TRIES: RetryPolicy = RetryPolicy::with_steady_waits(Duration::from_millis(500), Duration::from_secs(30));

/// Keeps the record of an operation whose job a turn opens, and has it looked at by `due`. It is called before the job is
/// opened, with a time by which it surely is, and after it, with the present: a record without a job is deleted when it
/// is due. Before the job is opened a second call replaces the record; after it, it changes nothing else.
pub async fn keep_child(
    venue: &Venue,
    owner: &Owner,
    invoked: &InvokedOperation,
    due: Millis,
) -> Result<(), StoreError> {
    let attempt = || async {
        if let Some(known) = read_operation(venue, owner, &invoked.job).await? {
            let OperationJob { invoked: known, version, head, .. } = known;
            // An earlier try of the turn has kept it, and has opened no job: what this one knows is true.
            if head.is_none() && known.taken.is_none() {
                let newer = invoked.clone().postpone(due);
                let writes = if known == newer { Vec::new() } else { replacement_writes(&known, version, &newer) };
                return Ok(Edit::write(writes, ()));
            }
            let is_later = known.taken.is_none() && known.remote.is_none() && known.due > due;
            let sooner = known.clone().postpone(due);
            let writes = if is_later { replacement_writes(&known, version, &sooner) } else { Vec::new() };
            return Ok(Edit::write(writes, ()));
        }
        let status = venue.store.doc(owner, &keys::job_status(&invoked.job)).await?.status();
        if status.is_some_and(|(status, _)| status.is_terminal()) {
            return Ok(Edit::without_writes(()));
        }
        let record = DocWrite::json(keys::invocation(&invoked.job), &invoked.clone().postpone(due)).at_version(0);
        let place = DocWrite::index_entry(keys::invoked_due(due, &invoked.job));
        Ok::<_, StoreError>(Edit::write([record, place], ()))
    };
    venue.store.edit(venue.now(), owner, "job", &invoked.job, attempt).await
}

/// Records what is known of a task elsewhere; `false` if the operation's lease is lost.
pub async fn record_remote(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    remote: &RemoteTask,
) -> Result<bool, StoreError> {
    let attempt = || async {
        let Some(held) = reload_if_leased(venue, owner, held).await? else { return Ok(Edit::without_writes(false)) };
        let changed = InvokedOperation { remote: Some(Box::new(remote.clone())), ..held.invoked.clone() };
        Ok::<_, StoreError>(Edit::write(replacement_writes(&held.invoked, held.version, &changed), true))
    };
    venue.store.edit(venue.now(), owner, "job", &held.invoked.job, attempt).await
}

/// Records a call of another server's tool as it stands now, with documents that belong to it; `false` if the operation's
/// lease is lost.
pub async fn record_tool_call(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    call: &PendingToolCall,
    beside: &[DocWrite],
) -> Result<bool, StoreError> {
    let attempt = || async {
        let Some(held) = reload_if_leased(venue, owner, held).await? else { return Ok(Edit::without_writes(false)) };
        if held.invoked.tool_call.as_deref() == Some(call) {
            // The write succeeded, and only its answer was lost.
            return Ok(Edit::without_writes(true));
        }
        let changed = InvokedOperation { tool_call: Some(Box::new(call.clone())), ..held.invoked.clone() };
        let writes =
            replacement_writes(&held.invoked, held.version, &changed).into_iter().chain(beside.iter().cloned());
        let edit = Edit::write(writes.collect::<Vec<_>>(), true);
        // What a server wants to be asked takes room of the owner.
        Ok::<_, StoreError>(if beside.is_empty() { edit } else { edit.with_quota(venue.quota().await) })
    };
    venue.store.edit(venue.now(), owner, "job", &held.invoked.job, attempt).await
}

/// Writes what only this worker knows, with retries for a while; `false` if the operation's lease is lost.
pub async fn keep_trying<F: Future<Output = Result<bool, StoreError>>>(
    record: impl Fn() -> F,
) -> Result<bool, StoreError> {
    let once = || async { record().await.map_err(AttemptFailure::from) };
    retry(KEEP_TRIES, "the store, for what another server has answered", once).await
}

/// Has an operation looked at now that waits for something which has come; `false` while a worker has it, who may not see
/// that it has come.
pub async fn bring_forward(venue: &Venue, owner: &Owner, job: &JobId) -> Result<bool, StoreError> {
    let attempt = || async {
        let Some(known) = read_operation(venue, owner, job).await? else { return Ok(Edit::without_writes(true)) };
        let now = venue.now();
        if known.invoked.taken.as_ref().is_some_and(|taken| now < taken.until) {
            return Ok(Edit::without_writes(false));
        }
        let OperationJob { invoked, version, .. } = known;
        let sooner = invoked.clone().postpone(now.min(invoked.due));
        Ok::<_, StoreError>(Edit::write(replacement_writes(&invoked, version, &sooner), true))
    };
    let is_due = venue.store.edit(venue.now(), owner, "job", job, attempt).await?;
    venue.wake(owner, &rules::session(job)).await;
    Ok(is_due)
}

/// Returns the call of another server's tool that a job stands for, if it does.
pub async fn find_tool_call(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Option<PendingToolCall>, StoreError> {
    let known: Option<InvokedOperation> = venue.store.get(owner, &keys::invocation(job)).await?;
    Ok(known.and_then(|known| known.tool_call).map(|call| *call))
}

impl LeasedOperation {
    /// Returns the call of another server's tool that it stands for.
    pub fn tool_call(&self) -> Option<&PendingToolCall> {
        self.invoked.tool_call.as_deref()
    }

    /// Returns the result with which it ends after what goes on elsewhere is stopped, if that alone is to be done.
    pub const fn given_up(&self) -> Option<&JobResult> {
        self.given_up.as_ref()
    }

    /// Returns what is known of the task elsewhere that it stands for.
    pub fn remote(&self) -> Option<&RemoteTask> {
        self.invoked.remote.as_deref()
    }
}

impl OperationJob {
    /// Whether a task elsewhere is still to be cancelled for it.
    pub(super) fn awaits_remote_cancel(&self) -> bool {
        let has_task = self.invoked.remote.as_ref().is_some_and(|remote| remote.task.is_some());
        (has_task || self.invoked.tool_call.is_some()) && self.head.is_some() && self.status == JobStatus::Cancelled
    }

    /// Returns the operation of a cancelled job whose message may have begun a task that nobody knows.
    pub(super) fn unknown_remote(&self) -> Option<&String> {
        let head = self
            .head
            .as_ref()
            .filter(|_| self.invoked.may_have_effect(false) && self.status == JobStatus::Cancelled)?;
        head.op.as_ref()
    }
}

/// A cancelled job with a task elsewhere that goes on.
#[derive(Debug, Clone)]
pub struct CancelledRemote {
    /// Head of the job.
    pub head: JobHead,
    /// The operation with what is known of the task.
    pub invoked: InvokedOperation,
    version: u64,
}

/// Returns a job that was cancelled while its task elsewhere went on; `None` for all others.
pub async fn find_cancelled(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Option<CancelledRemote>, StoreError> {
    let Some(known) = read_operation(venue, owner, job).await?.filter(OperationJob::awaits_remote_cancel) else {
        return Ok(None);
    };
    let OperationJob { invoked, version, head, .. } = known;
    Ok(head.map(|head| CancelledRemote { head, invoked, version }))
}

/// Deletes the record of a job that was cancelled; `is_cancelled`: its task elsewhere was, too. Without that its outcome is
/// listed as unknown, if it may have one.
pub async fn clear_cancelled(
    venue: &Venue,
    owner: &Owner,
    cancelled: &CancelledRemote,
    is_cancelled: bool,
) -> Result<(), StoreError> {
    let CancelledRemote { head, invoked, version } = cancelled;
    let mut writes = deletion_writes(invoked, *version).to_vec();
    if let Some(op) = head.op.as_deref().filter(|_| invoked.may_have_effect(is_cancelled)) {
        writes.extend(outcomes::job_listing_writes(venue, owner, &invoked.job, op, venue.now()));
    }
    // On a conflict another worker has looked at it, too.
    venue.store.write(venue.now(), owner, &writes).await.map(drop)
}

/// Ends an operation of a turn, and sends its result to the session that waits for it. The first end counts. After a crash
/// in the middle the record of an ended job is left, which the next look deletes.
pub(super) async fn end(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    result: &JobResult,
) -> Result<bool, StoreError> {
    match reload_if_leased(venue, owner, held).await? {
        Some(held) => finish(venue, owner, &held, result).await,
        None => Ok(false),
    }
}

/// Ends an operation of a turn like [`end`], as it was read.
pub(super) async fn finish(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    result: &JobResult,
) -> Result<bool, StoreError> {
    let Some(job) = jobs::get(venue, owner, &held.invoked.job).await? else { return Ok(false) };
    let bytes = serde_json::to_vec(result).map_or(0, |bytes| bytes.len());
    let result = match venue.check_end_room(owner, bytes).await {
        Err(StoreError::Over(over)) => JobResult::failure(ErrorCode::QuotaExceeded, over.to_string()),
        room => room.map(|()| result.clone())?,
    };
    let now = venue.now();
    // Before the end: an outcome that nobody knows must be listed whatever happens.
    let listing = outcome_listing(venue, owner, &held.head, &result, now);
    if !listing.is_empty() {
        venue.store.write(now, owner, &listing).await?;
    }
    if jobs::end(venue, owner, &job, &result, Vec::new()).await? != FinishOutcome::Done {
        return Ok(false);
    }
    count_outcome(venue, &result);
    venue.store.write(now, owner, &deletion_writes(&held.invoked, held.version)).await?;
    Ok(true)
}
