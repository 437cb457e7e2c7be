//! Operations that callers invoke, as jobs that workers run: admitted, leased, run, ended.
//!
//! Each job has a document, and an entry in an index by the time at which it is checked, as jobs of external workers
//! ([`crate::venue::external`]). Each change is one write that holds only on the versions that were read; a wake makes
//! it prompt, the sweep makes it certain. A worker that has lost its lease can't end the operation.

mod children;
mod runner;

pub use children::{
    CancelledRemote, bring_forward, clear_cancelled, find_cancelled, find_tool_call, keep_child, keep_trying,
    record_remote, record_tool_call,
};
pub use runner::{RunCaller, RunOutcome, operate, read_caller, result_of, run};

use crate::domain::call::innermost_operation;
use crate::domain::ids::{JobId, Owner};
use crate::domain::invocation::{self as rules, InvokedOperation, InvokedStep};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus};
use crate::domain::lattice::catalog::catalog_path;
use crate::domain::limits::{END_BYTES, INVOKED_GRACE, INVOKED_OPEN, INVOKED_ROOM};
use crate::domain::quota::QuotaUsage;
use crate::domain::time::Millis;
use crate::store::{DocEffect, DocWrite, Edit, StoreError, Window, WriteOutcome, keys};
use crate::venue::operation::dispatch::{self, ResolvedOperation};
use crate::venue::operation::{CatalogView, Effect};
use crate::venue::{Venue, declared, notices, outcomes, outside_tools};
use std::time::Duration;

/// Operations of one owner that one step checks.
const PAGE: usize = 64;

fn status_write(job: &JobId, status: JobStatus, now: Millis) -> DocWrite {
    DocWrite::put(keys::job_status(job), keys::encode_status(status, now))
}

/// Returns the writes that create a job in this status; they fail if it exists.
fn creation_writes(head: &JobHead, status: JobStatus, at: Millis) -> Vec<DocWrite> {
    vec![
        DocWrite::json(keys::job_head(&head.id), head).at_version(0),
        status_write(&head.id, status, at),
        DocWrite::index_entry(keys::job_list_entry(head.created, &head.id)),
    ]
}

/// Result of invoking an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvokedAdmission {
    /// The operation became a job.
    Done,
    /// A job of that id exists or existed.
    Known,
    /// Too many operations of the owner have not ended; nothing was written.
    Full,
}

/// Returns how many operations of an owner have not ended.
pub async fn count_open(venue: &Venue, owner: &Owner) -> Result<usize, StoreError> {
    let count = Window { reverse: false, skip: 0, limit: 0, values: false };
    Ok(venue.store.page(owner, keys::INVOKED_DUE, count).await?.total)
}

/// Creates the job of an operation, for a worker to run it. Once it is written the operation runs, whatever process
/// dies; after a crash before the write there is nothing.
pub async fn admit(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    invoked: &InvokedOperation,
) -> Result<InvokedAdmission, StoreError> {
    admit_with(venue, owner, head, invoked, Vec::new()).await
}

/// Like [`admit`], with documents that belong to the job.
pub async fn admit_with(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    invoked: &InvokedOperation,
    documents: Vec<DocWrite>,
) -> Result<InvokedAdmission, StoreError> {
    if count_open(venue, owner).await? >= INVOKED_OPEN {
        return Ok(InvokedAdmission::Full);
    }
    let mut writes = creation_writes(head, JobStatus::Pending, head.created);
    writes.push(DocWrite::json(keys::invocation(&head.id), invoked));
    writes.push(DocWrite::index_entry(keys::invoked_due(invoked.due, &head.id)));
    writes.extend(documents);
    if venue.write_within_quota(owner, &writes).await? != WriteOutcome::Done {
        return Ok(InvokedAdmission::Known);
    }
    venue.wake(owner, &rules::session(&head.id)).await;
    Ok(InvokedAdmission::Done)
}

/// Returns the writes that list an operation whose outcome is unknown, and those that tell of it or of its death.
fn outcome_listing(venue: &Venue, owner: &Owner, head: &JobHead, result: &JobResult, now: Millis) -> Vec<DocWrite> {
    if result.error_code == Some(ErrorCode::OutcomeUnknown) {
        let op = head.op.as_deref().unwrap_or_default();
        return outcomes::job_listing_writes(venue, owner, &head.id, op, now).into();
    }
    notices::dead_operation_write(venue, owner, head, result, now).into_iter().collect()
}

fn count_outcome(venue: &Venue, result: &JobResult) {
    if result.error_code == Some(ErrorCode::OutcomeUnknown) {
        venue.metrics.count_unknown_outcome("operation");
    }
}

/// Returns the least that the record of a job takes: its head, its status, its entry in the list and its result.
pub fn least_record(head: &JobHead) -> QuotaUsage {
    let size = |write: &DocWrite| match &write.change {
        DocEffect::Put(value) => (write.key.len() + value.len()) as u64,
        DocEffect::Delete | DocEffect::Check => 0,
    };
    let writes = creation_writes(head, JobStatus::Pending, head.created);
    QuotaUsage { documents: 4, jobs: 1, bytes: writes.iter().map(size).sum(), ..QuotaUsage::default() }
}

/// Records a job that has ended already; `false` if a job of that id exists or existed. A job that may have changed
/// something is recorded whatever the quota; the output of one that only reads can be had again, and needs room within
/// the quota.
pub async fn record(venue: &Venue, owner: &Owner, job: &Job) -> Result<bool, StoreError> {
    let mut writes = creation_writes(&job.head, job.status, job.updated);
    writes.extend(job.result.as_ref().map(|result| DocWrite::json(keys::job_result(&job.head.id), result)));
    writes.extend(job.result.iter().flat_map(|result| outcome_listing(venue, owner, &job.head, result, job.updated)));
    let written = match effect_of(venue, owner, &job.head).await? {
        Some(Effect::Read) => venue.write_within_quota(owner, &writes).await?,
        Some(Effect::Idempotent | Effect::Buffered | Effect::Once) | None => {
            venue.store.write(venue.now(), owner, &writes).await?
        }
    };
    let is_new = written == WriteOutcome::Done;
    if let Some(result) = job.result.as_ref().filter(|_| is_new) {
        count_outcome(venue, result);
    }
    Ok(is_new)
}

/// The documents of a job, with the versions that a change must find.
struct OperationJob {
    invoked: InvokedOperation,
    version: u64,
    head: Option<JobHead>,
    status: JobStatus,
    status_version: u64,
}

async fn read_operation(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Option<OperationJob>, StoreError> {
    let wanted = [keys::invocation(job), keys::job_head(job), keys::job_status(job)];
    let docs = venue.store.read(owner, &wanted).await?;
    let [record, head, status] = &docs[..] else { return Ok(None) };
    let Some(invoked) = record.decode(&wanted[0])? else { return Ok(None) };
    Ok(Some(OperationJob {
        invoked,
        version: record.version,
        head: head.decode(&wanted[1])?,
        status: status.status().map_or(JobStatus::Pending, |(status, _)| status),
        status_version: status.version,
    }))
}

/// Returns the writes that replace a record of this version, with its entry in the index.
fn replacement_writes(before: &InvokedOperation, version: u64, after: &InvokedOperation) -> Vec<DocWrite> {
    let mut writes = vec![DocWrite::json(keys::invocation(&after.job), after).at_version(version)];
    if before.due != after.due {
        writes.push(DocWrite::delete(keys::invoked_due(before.due, &after.job)));
        writes.push(DocWrite::index_entry(keys::invoked_due(after.due, &after.job)));
    }
    writes
}

/// Returns the writes that delete a record and its entry.
fn deletion_writes(invoked: &InvokedOperation, version: u64) -> [DocWrite; 2] {
    [
        DocWrite::delete(keys::invocation(&invoked.job)).at_version(version),
        DocWrite::delete(keys::invoked_due(invoked.due, &invoked.job)),
    ]
}

impl OperationJob {
    /// Whether the job has ended or was deleted.
    const fn has_ended(&self) -> bool {
        self.head.is_none() || self.status.is_terminal()
    }
}

/// Deletes the record of an operation whose job was ended by others or deleted: an end by its worker deletes the
/// record, too. An operation that was running then and must not be repeated may have happened, so it is listed as
/// unknown.
async fn clear_record(venue: &Venue, owner: &Owner, known: &OperationJob) -> Result<(), StoreError> {
    // The task elsewhere is cancelled first: until then the record says where it is.
    if known.awaits_remote_cancel() {
        return Ok(());
    }
    let OperationJob { invoked, version, head, .. } = known;
    let mut writes = deletion_writes(invoked, *version).to_vec();
    let mut begun = invoked.once_operation.clone().filter(|_| invoked.taken.is_some());
    if invoked.once_operation.is_none()
        && invoked.taken.is_some()
        && let Some(head) = head
        && !may_be_repeated(venue, owner, invoked, head).await?
    {
        // For an operation that an older build has begun, only the head names it.
        begun.clone_from(&head.op);
    }
    let begun = begun.or_else(|| known.unknown_remote().cloned());
    writes
        .extend(begun.iter().flat_map(|op| outcomes::job_listing_writes(venue, owner, &invoked.job, op, venue.now())));
    let written = venue.store.write(venue.now(), owner, &writes).await?;
    if begun.is_some() && written == WriteOutcome::Done {
        venue.metrics.count_unknown_outcome("operation");
    }
    Ok(())
}

/// How a worker runs operations.
#[derive(Debug, Clone, Copy)]
pub struct RunTerms<'a> {
    /// Name of the worker.
    pub worker: &'a str,
    /// Lease of an operation: the worker renews it three times within it, or another worker continues.
    pub lease: Duration,
    /// Number of worker crashes after which an operation is given up.
    pub crash_limit: u32,
}

/// An operation whose lease this worker holds.
#[derive(Debug, Clone)]
pub struct LeasedOperation {
    invoked: InvokedOperation,
    version: u64,
    head: JobHead,
    status_version: u64,
    token: String,
    given_up: Option<JobResult>,
}

impl LeasedOperation {
    /// Returns the head of its job.
    pub const fn head(&self) -> &JobHead {
        &self.head
    }
}

/// Returns the operations that a job may run: those of its owner, and the tool that a record below `o/` declares.
async fn job_catalog(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<CatalogView, StoreError> {
    let (view, op) = (venue.catalog_view(owner), head.op.as_deref().unwrap_or_default());
    declared::view_for_call(venue, owner, view, op, &head.input).await
}

/// Resolves what a job runs; `None` if it can't be run.
fn resolve_operation(catalog: &CatalogView, head: &JobHead) -> Option<ResolvedOperation> {
    let op = head.op.as_deref().unwrap_or_default();
    dispatch::resolve_call(catalog, op, head.input.clone(), true).ok()
}

/// Returns the effect of the operation of a job; `None` if it can't be run.
async fn effect_of(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<Option<Effect>, StoreError> {
    let catalog = job_catalog(venue, owner, head).await?;
    Ok(resolve_operation(&catalog, head).map(|settled| settled.found.spec.effect))
}

/// Whether running the operation again does no more than running it once.
async fn may_be_repeated(
    venue: &Venue,
    owner: &Owner,
    invoked: &InvokedOperation,
    head: &JobHead,
) -> Result<bool, StoreError> {
    let catalog = job_catalog(venue, owner, head).await?;
    // A published operation may be withdrawn or changed after a worker has begun it.
    let is_same = invoked.published.as_ref().is_none_or(|shown| catalog.check_version(shown).is_ok());
    let effect = resolve_operation(&catalog, head).map(|settled| settled.found.spec.effect);
    // Outside a turn, writes aren't buffered until a commit. An operation that can't be run does nothing.
    let is_harmless = !matches!(effect, Some(Effect::Buffered | Effect::Once));
    Ok(invoked.once_operation.is_none() && is_same && is_harmless)
}

/// Whether an operation waits until its owner has room: one that must not be repeated and calls another server, because
/// its answer may be large and must be kept.
async fn awaits_room(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<bool, StoreError> {
    let settled = resolve_operation(&job_catalog(venue, owner, head).await?, head);
    if !settled.is_some_and(|settled| settled.found.spec.effect == Effect::Once && settled.goes_outside()) {
        return Ok(false);
    }
    match venue.check_end_room(owner, END_BYTES + 1).await {
        Err(StoreError::Over(_)) => Ok(true),
        room => room.map(|()| false),
    }
}

/// Acquires the lease of an operation to run it; `None` if it has ended, ends here, or another worker holds it. The
/// lease records that the operation has begun.
pub async fn acquire(
    venue: &Venue,
    owner: &Owner,
    job: &JobId,
    by: RunTerms<'_>,
) -> Result<Option<LeasedOperation>, StoreError> {
    let mark = uuid::Uuid::new_v4().simple().to_string();
    let attempt = || async {
        let Some(known) = read_operation(venue, owner, job).await? else { return Ok(Edit::without_writes(None)) };
        if known.has_ended() {
            clear_record(venue, owner, &known).await?;
            return Ok(Edit::without_writes(None));
        }
        let OperationJob { invoked, version, head: Some(head), status_version, .. } = known else {
            return Ok(Edit::without_writes(None));
        };
        let op = head.op.clone().unwrap_or_default();
        // A server may take its time: the lease counts from then on.
        let prepared = innermost_operation(&catalog_path(&op), &head.input);
        outside_tools::prepare_path(venue, owner, &prepared).await?;
        let (now, token) = (venue.now(), mark.clone());
        if invoked.is_claimed_by(&mark) {
            // The write succeeded, and only its answer was lost.
            let given_up = invoked.end_if_only_stopped(&op, by.crash_limit);
            let claimed = LeasedOperation { invoked, version, head, status_version, token, given_up };
            return Ok(Edit::without_writes(Some(claimed)));
        }
        let repeatable = may_be_repeated(venue, owner, &invoked, &head).await?;
        let looked = invoked.next_step(now, &op, repeatable, by.crash_limit);
        if looked == InvokedStep::Take && awaits_room(venue, owner, &head).await? {
            let later = invoked.clone().postpone(now.plus(INVOKED_ROOM));
            return Ok(Edit::write(replacement_writes(&invoked, version, &later), None));
        }
        let is_child = head.parent.is_some();
        let right = |invoked| LeasedOperation { invoked, version, head, status_version, token, given_up: None };
        Ok(match looked {
            InvokedStep::Later(_) => Edit::without_writes(None),
            InvokedStep::Over(result) if is_child => {
                Box::pin(children::finish(venue, owner, &right(invoked), &result)).await?;
                Edit::without_writes(None)
            }
            InvokedStep::Over(result) => {
                count_outcome(venue, &result);
                tracing::warn!(%owner, %job, op, error = result.error.as_deref(), "an operation that was begun is given up");
                Edit::write(end_writes(venue, owner, &right(invoked), &result, now), None)
            }
            InvokedStep::Take => {
                let once_operation = (!repeatable).then(|| op.clone());
                let claimed = invoked.clone().take(now, by.worker, &mark, by.lease + INVOKED_GRACE);
                let claimed = InvokedOperation { once_operation, ..claimed };
                let given_up = claimed.end_if_only_stopped(&op, by.crash_limit);
                let mut writes = replacement_writes(&invoked, version, &claimed);
                writes.push(status_write(job, JobStatus::Started, now).at_version(status_version));
                let next = LeasedOperation {
                    version: version + 1,
                    status_version: status_version + 1,
                    given_up,
                    ..right(claimed)
                };
                Edit::write(writes, Some(next))
            }
        })
    };
    venue.store.edit(venue.now(), owner, "job", job, attempt).await
}

/// Re-reads the operation; `None` if its lease is lost.
async fn reload_if_leased(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
) -> Result<Option<LeasedOperation>, StoreError> {
    let Some(known) = read_operation(venue, owner, &held.invoked.job).await? else { return Ok(None) };
    if known.has_ended() {
        clear_record(venue, owner, &known).await?;
        return Ok(None);
    }
    let OperationJob { invoked, version, status_version, .. } = known;
    Ok(invoked.is_claimed_by(&held.token).then(|| LeasedOperation { invoked, version, status_version, ..held.clone() }))
}

/// Deletes the record of an operation that others have ended while it ran here.
pub async fn clear_if_ended(venue: &Venue, owner: &Owner, held: &LeasedOperation) -> Result<(), StoreError> {
    reload_if_leased(venue, owner, held).await.map(drop)
}

/// Renews the lease; `None` if the operation was cancelled or another worker holds it.
pub async fn renew(
    venue: &Venue,
    owner: &Owner,
    held: &LeasedOperation,
    lease: Duration,
) -> Result<Option<LeasedOperation>, StoreError> {
    let Some(held) = reload_if_leased(venue, owner, held).await? else { return Ok(None) };
    let now = venue.now();
    let renewed = held.invoked.clone().renew(now, lease + INVOKED_GRACE);
    let done = venue.store.write(now, owner, &replacement_writes(&held.invoked, held.version, &renewed)).await?;
    if done == WriteOutcome::Done {
        return Ok(Some(LeasedOperation { invoked: renewed, version: held.version + 1, ..held }));
    }
    reload_if_leased(venue, owner, &held).await
}

/// Returns the writes that end an operation with this result.
fn end_writes(venue: &Venue, owner: &Owner, held: &LeasedOperation, result: &JobResult, now: Millis) -> Vec<DocWrite> {
    let job = &held.invoked.job;
    let mut writes = deletion_writes(&held.invoked, held.version).to_vec();
    writes.push(status_write(job, result.status, now).at_version(held.status_version));
    writes.push(DocWrite::json(keys::job_result(job), result));
    writes.extend(outcome_listing(venue, owner, &held.head, result, now));
    writes
}

/// Ends an operation with this result; `false` if it had ended or another worker holds it, and then this end doesn't
/// count.
pub async fn end(venue: &Venue, owner: &Owner, held: &LeasedOperation, result: &JobResult) -> Result<bool, StoreError> {
    match try_end(venue, owner, held, result).await {
        Err(StoreError::Over(over)) => {
            let failed = JobResult::failure(ErrorCode::QuotaExceeded, over.to_string());
            try_end(venue, owner, held, &failed).await
        }
        ended => ended,
    }
}

async fn try_end(venue: &Venue, owner: &Owner, held: &LeasedOperation, result: &JobResult) -> Result<bool, StoreError> {
    if held.head.parent.is_some() {
        return children::end(venue, owner, held, result).await;
    }
    let (now, writes) = (venue.now(), end_writes(venue, owner, held, result, venue.now()));
    // An operation that only reads fails if there is no room for its output.
    let is_read = effect_of(venue, owner, &held.head).await? == Some(Effect::Read);
    let bytes = if is_read { serde_json::to_vec(result).map_or(0, |bytes| bytes.len()) } else { 0 };
    let quota = venue.quota_to_end(bytes).await;
    let written = venue.store.write_with_quota(now, owner, &writes, quota.as_ref()).await?;
    let attempt = || async {
        let held = reload_if_leased(venue, owner, held).await?;
        Ok(held.map_or(Edit::without_writes(false), |held| {
            Edit::write(end_writes(venue, owner, &held, result, now), true).with_quota(quota)
        }))
    };
    // Mostly nothing has changed, and the first write succeeds.
    let has_ended =
        written == WriteOutcome::Done || venue.store.edit(now, owner, "job", &held.invoked.job, attempt).await?;
    if has_ended {
        count_outcome(venue, result);
    }
    Ok(has_ended)
}

/// Releases the lease before the end, to be tried again after `pause`. An operation that must not be repeated ends
/// instead, with an unknown outcome.
pub async fn release(venue: &Venue, owner: &Owner, held: &LeasedOperation, pause: Duration) -> Result<(), StoreError> {
    if !may_be_repeated(venue, owner, &held.invoked, &held.head).await? {
        let worker = held.invoked.taken.as_ref().map_or("", |taken| taken.worker.as_str());
        let result = rules::unknown_outcome(held.head.op.as_deref().unwrap_or_default(), worker);
        end(venue, owner, held, &result).await?;
        return Ok(());
    }
    let Some(held) = reload_if_leased(venue, owner, held).await? else { return Ok(()) };
    let now = venue.now();
    let back = held.invoked.clone().release(now.plus(pause));
    // On a conflict the lease expires by itself.
    venue.store.write(now, owner, &replacement_writes(&held.invoked, held.version, &back)).await?;
    Ok(())
}

/// Returns the operations of an owner that are due, at most one page. Deletes entries without a record.
pub async fn list_due(venue: &Venue, owner: &Owner) -> Result<Vec<JobId>, StoreError> {
    let now = venue.now();
    let found = venue.store.scan(owner, keys::INVOKED_DUE, None, false, PAGE).await?;
    let places = found.iter().filter_map(|(key, _)| keys::job_of_due(keys::INVOKED_DUE, key));
    let due: Vec<_> = places.take_while(|(at, _)| *at <= now).collect();
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let records: Vec<_> = due.iter().map(|(_, job)| keys::invocation(job)).collect();
    let docs = venue.store.read(owner, &records).await?;
    let mut jobs = Vec::with_capacity(due.len());
    for ((at, job), doc) in due.into_iter().zip(docs) {
        let record: Option<InvokedOperation> = match doc.decode(&keys::invocation(&job)) {
            Ok(record) => record,
            // A damaged record must not keep others from being run.
            Err(error) => {
                tracing::warn!(%owner, %job, %error, "operation not looked at");
                continue;
            }
        };
        if record.is_some_and(|record| record.due == at) {
            jobs.push(job);
        } else {
            let check = DocWrite::check(keys::invocation(&job), doc.version);
            venue.store.write(now, owner, &[check, DocWrite::delete(keys::invoked_due(at, &job))]).await?;
        }
    }
    Ok(jobs)
}
