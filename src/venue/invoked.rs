//! Operations that callers invoke, as jobs that workers run: admitted, leased, run, ended.
//!
//! Each job has a document, and an entry in an index by the time at which it is checked; jobs of external workers are
//! watched the same way ([`crate::venue::external`]). Each change is one write that holds only on the versions that
//! were read; a wake makes it prompt, the sweep makes it certain. A worker that has lost its lease can't end the
//! operation.

use crate::domain::ids::{EventId, JobId, Owner};
use crate::domain::invoked::{self as rules, Asker, Invoked, InvokedLook};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus};
use crate::domain::lattice::layout::Scope;
use crate::domain::limits::{END_BYTES, INVOKED_GRACE, INVOKED_OPEN, INVOKED_ROOM};
use crate::domain::quota::QuotaUsage;
use crate::domain::time::Millis;
use crate::domain::visible::told;
use crate::store::{Change, DocWrite, Edit, OutsideWrite, StoreError, Window, keys};
use crate::venue::Venue;
use crate::venue::auth::caller::Recognised;
use crate::venue::operation::NOTHING;
use crate::venue::operation::dispatch::{self, Settled};
use crate::venue::operation::{Caller, Effect, Invocation, OpError, Output, Reads, Site};
use crate::venue::outcomes;
use crate::venue::policy;
use serde_json::Value;
use std::time::Duration;

/// Operations of one owner that one step checks.
const PAGE: usize = 64;

/// Runs an operation for a caller outside turns. `key` is the idempotency key of the run.
pub async fn operate(
    venue: &Venue,
    caller: &Caller,
    key: Option<EventId>,
    path: &str,
    input: Value,
) -> Result<Output, OpError> {
    let workspace = venue.workspace(&caller.owner, Scope::default()).await;
    let call = Invocation {
        named: path,
        venue,
        caller,
        workspace: &workspace,
        scoped: &NOTHING,
        site: Site::Api { key },
        reads: &Reads::default(),
    };
    dispatch::invoke(&call, path, input).await
}

fn line(job: &JobId, status: JobStatus, now: Millis) -> DocWrite {
    DocWrite::put(keys::job_status(job), keys::encode_status(status, now))
}

/// Returns the writes that create a job in this status; they fail if it exists.
fn opened(head: &JobHead, status: JobStatus, at: Millis) -> Vec<DocWrite> {
    vec![
        DocWrite::json(keys::job_head(&head.id), head).at(0),
        line(&head.id, status, at),
        DocWrite::mark(keys::job_list_entry(head.created, &head.id)),
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

/// Creates the job of an operation, for a worker to run it. Once it is written the operation runs, whatever process
/// dies; after a crash before the write there is nothing.
pub async fn admit(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    invoked: &Invoked,
) -> Result<InvokedAdmission, StoreError> {
    let count = Window { reverse: false, skip: 0, limit: 0, values: false };
    if venue.store.page(owner, keys::INVOKED_DUE, count).await?.total >= INVOKED_OPEN {
        return Ok(InvokedAdmission::Full);
    }
    let mut writes = opened(head, JobStatus::Pending, head.created);
    writes.push(DocWrite::json(keys::invoked(&head.id), invoked));
    writes.push(DocWrite::mark(keys::invoked_due(invoked.due, &head.id)));
    if venue.keep(owner, &writes).await? != OutsideWrite::Done {
        return Ok(InvokedAdmission::Known);
    }
    venue.wake(owner, &rules::session(&head.id)).await;
    Ok(InvokedAdmission::Done)
}

/// Returns the write that lists an operation whose outcome is unknown; `None` if it is known.
fn outcome_listing(head: &JobHead, result: &JobResult, now: Millis) -> Option<DocWrite> {
    let is_unknown = result.error_code == Some(ErrorCode::OutcomeUnknown);
    is_unknown.then(|| outcomes::listing_of_job(&head.id, head.op.as_deref().unwrap_or_default(), now))
}

fn count_outcome(venue: &Venue, result: &JobResult) {
    if result.error_code == Some(ErrorCode::OutcomeUnknown) {
        venue.metrics.outcome_unknown("operation");
    }
}

/// Returns the least that the record of a job takes: its head, its status, its entry in the list and its result.
pub fn least_record(head: &JobHead) -> QuotaUsage {
    let size = |write: &DocWrite| match &write.change {
        Change::Put(value) => (write.key.len() + value.len()) as u64,
        Change::Delete | Change::Check => 0,
    };
    let writes = opened(head, JobStatus::Pending, head.created);
    QuotaUsage { documents: 4, jobs: 1, bytes: writes.iter().map(size).sum(), ..QuotaUsage::default() }
}

/// Records a job that has ended already; `false` if a job of that id exists or existed. A job that may have changed
/// something is recorded whatever the quota; the output of one that only reads can be had again, and needs room within
/// the quota.
pub async fn record(venue: &Venue, owner: &Owner, job: &Job) -> Result<bool, StoreError> {
    let mut writes = opened(&job.head, job.status, job.updated);
    writes.extend(job.result.as_ref().map(|result| DocWrite::json(keys::job_result(&job.head.id), result)));
    writes.extend(job.result.as_ref().and_then(|result| outcome_listing(&job.head, result, job.updated)));
    let written = match effect(venue, &job.head) {
        Some(Effect::Read) => venue.keep(owner, &writes).await?,
        Some(Effect::Idempotent | Effect::Buffered | Effect::Once) | None => {
            venue.store.write(venue.now(), owner, &writes).await?
        }
    };
    let is_new = written == OutsideWrite::Done;
    if let Some(result) = job.result.as_ref().filter(|_| is_new) {
        count_outcome(venue, result);
    }
    Ok(is_new)
}

/// The documents of a job, with the versions that a change must find.
struct Known {
    invoked: Invoked,
    version: u64,
    head: Option<JobHead>,
    status: JobStatus,
    status_version: u64,
}

async fn known(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Option<Known>, StoreError> {
    let wanted = [keys::invoked(job), keys::job_head(job), keys::job_status(job)];
    let docs = venue.store.read(owner, &wanted).await?;
    let [record, head, status] = &docs[..] else { return Ok(None) };
    let Some(invoked) = record.decode(&wanted[0])? else { return Ok(None) };
    Ok(Some(Known {
        invoked,
        version: record.version,
        head: head.decode(&wanted[1])?,
        status: status.status().map_or(JobStatus::Pending, |(status, _)| status),
        status_version: status.version,
    }))
}

/// Returns the writes that replace a record of this version, with its entry in the index.
fn moved(before: &Invoked, version: u64, after: &Invoked) -> Vec<DocWrite> {
    let mut writes = vec![DocWrite::json(keys::invoked(&after.job), after).at(version)];
    if before.due != after.due {
        writes.push(DocWrite::delete(keys::invoked_due(before.due, &after.job)));
        writes.push(DocWrite::mark(keys::invoked_due(after.due, &after.job)));
    }
    writes
}

/// Returns the writes that delete a record and its entry.
fn left(invoked: &Invoked, version: u64) -> [DocWrite; 2] {
    [
        DocWrite::delete(keys::invoked(&invoked.job)).at(version),
        DocWrite::delete(keys::invoked_due(invoked.due, &invoked.job)),
    ]
}

impl Known {
    /// Whether the job has ended or was deleted.
    const fn has_ended(&self) -> bool {
        self.head.is_none() || self.status.is_terminal()
    }
}

/// Deletes the record of an operation whose job was ended by others or deleted: an end by its worker deletes the
/// record, too. An operation that was running then and must not be repeated may have happened, so it is listed as
/// unknown.
async fn clear(venue: &Venue, owner: &Owner, known: &Known) -> Result<(), StoreError> {
    let Known { invoked, version, head, .. } = known;
    let mut writes = left(invoked, *version).to_vec();
    // For an operation that an older build has begun, only the head names it.
    let by_head = || head.as_ref().filter(|head| !may_be_repeated(venue, head))?.op.clone();
    let begun = invoked.once_operation.clone().or_else(by_head).filter(|_| invoked.taken.is_some());
    writes.extend(begun.as_ref().map(|op| outcomes::listing_of_job(&invoked.job, op, venue.now())));
    let written = venue.store.write(venue.now(), owner, &writes).await?;
    if begun.is_some() && written == OutsideWrite::Done {
        venue.metrics.outcome_unknown("operation");
    }
    Ok(())
}

/// How a worker runs operations.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Name of the worker.
    pub worker: &'a str,
    /// Lease of an operation: the worker renews it three times within it, or another worker continues.
    pub lease: Duration,
    /// Number of worker crashes after which an operation is given up.
    pub crash_limit: u32,
}

/// An operation whose lease this worker holds.
#[derive(Debug, Clone)]
pub struct HeldOperation {
    invoked: Invoked,
    version: u64,
    head: JobHead,
    status_version: u64,
    token: String,
}

/// Resolves what a job runs; `None` if it can't be run.
fn settle<'c>(venue: &'c Venue, head: &JobHead) -> Option<Settled<'c>> {
    let op = head.op.as_deref().unwrap_or_default();
    dispatch::settle(&venue.catalog, op, head.input.clone(), true).ok()
}

/// Returns the effect of the operation of a job; `None` if it can't be run.
fn effect(venue: &Venue, head: &JobHead) -> Option<Effect> {
    settle(venue, head).map(|settled| settled.found.spec.effect)
}

/// Whether running the operation again does no more than running it once.
fn may_be_repeated(venue: &Venue, head: &JobHead) -> bool {
    match effect(venue, head) {
        // An operation that can't be run does nothing.
        Some(Effect::Read | Effect::Idempotent) | None => true,
        // Outside a turn, writes aren't buffered until a commit.
        Some(Effect::Buffered | Effect::Once) => false,
    }
}

/// Whether an operation waits until its owner has room: one that must not be repeated and calls another server, because
/// its answer may be large and must be kept.
async fn awaits_room(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<bool, StoreError> {
    let settled = settle(venue, head);
    if !settled.is_some_and(|settled| settled.found.spec.effect == Effect::Once && settled.goes_outside()) {
        return Ok(false);
    }
    match venue.room_to_end(owner, END_BYTES + 1).await {
        Err(StoreError::Over(_)) => Ok(true),
        room => room.map(|()| false),
    }
}

/// Acquires the lease of an operation to run it; `None` if it has ended, ends here, or another worker holds it. The
/// lease records that the operation has begun.
pub async fn take(
    venue: &Venue,
    owner: &Owner,
    job: &JobId,
    by: Terms<'_>,
) -> Result<Option<HeldOperation>, StoreError> {
    let mark = uuid::Uuid::new_v4().simple().to_string();
    let attempt = || async {
        let Some(known) = known(venue, owner, job).await? else { return Ok(Edit::nothing(None)) };
        if known.has_ended() {
            clear(venue, owner, &known).await?;
            return Ok(Edit::nothing(None));
        }
        let Known { invoked, version, head: Some(head), status_version, .. } = known else {
            return Ok(Edit::nothing(None));
        };
        let now = venue.now();
        let op = head.op.clone().unwrap_or_default();
        if invoked.is_held(&mark) {
            // The write succeeded, and only its answer was lost.
            return Ok(Edit::nothing(Some(HeldOperation {
                invoked,
                version,
                head,
                status_version,
                token: mark.clone(),
            })));
        }
        let repeatable = may_be_repeated(venue, &head);
        let looked = invoked.look(now, &op, repeatable, by.crash_limit);
        if looked == InvokedLook::Take && awaits_room(venue, owner, &head).await? {
            let later = invoked.clone().postponed(now.plus(INVOKED_ROOM));
            return Ok(Edit::write(moved(&invoked, version, &later), None));
        }
        let right = |invoked| HeldOperation { invoked, version, head, status_version, token: mark.clone() };
        Ok(match looked {
            InvokedLook::Later(_) => Edit::nothing(None),
            InvokedLook::Over(result) => {
                count_outcome(venue, &result);
                tracing::warn!(%owner, %job, op, error = result.error.as_deref(), "an operation that was begun is given up");
                Edit::write(ending(&right(invoked), &result, now), None)
            }
            InvokedLook::Take => {
                let once_operation = (!repeatable).then_some(op);
                let taken = invoked.clone().take(now, by.worker, &mark, by.lease + INVOKED_GRACE);
                let taken = Invoked { once_operation, ..taken };
                let mut writes = moved(&invoked, version, &taken);
                writes.push(line(job, JobStatus::Started, now).at(status_version));
                let right = right(taken);
                Edit::write(
                    writes,
                    Some(HeldOperation { version: version + 1, status_version: status_version + 1, ..right }),
                )
            }
        })
    };
    venue.store.edit(venue.now(), owner, ("job", job), attempt).await
}

/// Re-reads the operation; `None` if its lease is lost.
async fn still(venue: &Venue, owner: &Owner, held: &HeldOperation) -> Result<Option<HeldOperation>, StoreError> {
    let Some(known) = known(venue, owner, &held.invoked.job).await? else { return Ok(None) };
    if known.has_ended() {
        clear(venue, owner, &known).await?;
        return Ok(None);
    }
    let Known { invoked, version, status_version, .. } = known;
    Ok(invoked.is_held(&held.token).then(|| HeldOperation { invoked, version, status_version, ..held.clone() }))
}

/// Deletes the record of an operation that others have ended while it ran here.
pub async fn clear_if_ended(venue: &Venue, owner: &Owner, held: &HeldOperation) -> Result<(), StoreError> {
    still(venue, owner, held).await.map(drop)
}

/// Renews the lease; `None` if the operation was cancelled or another worker holds it.
pub async fn renew(
    venue: &Venue,
    owner: &Owner,
    held: &HeldOperation,
    lease: Duration,
) -> Result<Option<HeldOperation>, StoreError> {
    let Some(held) = still(venue, owner, held).await? else { return Ok(None) };
    let now = venue.now();
    let renewed = held.invoked.clone().renewed(now, lease + INVOKED_GRACE);
    let done = venue.store.write(now, owner, &moved(&held.invoked, held.version, &renewed)).await?;
    if done == OutsideWrite::Done {
        return Ok(Some(HeldOperation { invoked: renewed, version: held.version + 1, ..held }));
    }
    still(venue, owner, &held).await
}

/// Returns the writes that end an operation with this result.
fn ending(held: &HeldOperation, result: &JobResult, now: Millis) -> Vec<DocWrite> {
    let job = &held.invoked.job;
    let mut writes = left(&held.invoked, held.version).to_vec();
    writes.push(line(job, result.status, now).at(held.status_version));
    writes.push(DocWrite::json(keys::job_result(job), result));
    writes.extend(outcome_listing(&held.head, result, now));
    writes
}

/// Ends an operation with this result; `false` if it had ended or another worker holds it, and then this end doesn't
/// count.
pub async fn end(venue: &Venue, owner: &Owner, held: &HeldOperation, result: &JobResult) -> Result<bool, StoreError> {
    match try_end(venue, owner, held, result).await {
        Err(StoreError::Over(over)) => {
            let failed = JobResult::failed(ErrorCode::QuotaExceeded, over.to_string());
            try_end(venue, owner, held, &failed).await
        }
        ended => ended,
    }
}

async fn try_end(venue: &Venue, owner: &Owner, held: &HeldOperation, result: &JobResult) -> Result<bool, StoreError> {
    let (now, writes) = (venue.now(), ending(held, result, venue.now()));
    // An operation that only reads fails if there is no room for its output.
    let is_read = effect(venue, &held.head) == Some(Effect::Read);
    let bytes = if is_read { serde_json::to_vec(result).map_or(0, |bytes| bytes.len()) } else { 0 };
    let quota = venue.quota_to_end(bytes).await;
    let written = venue.store.write_under(now, owner, &writes, quota.as_ref()).await?;
    let attempt = || async {
        let held = still(venue, owner, held).await?;
        Ok(held.map_or(Edit::nothing(false), |held| Edit::write(ending(&held, result, now), true).within(quota)))
    };
    // Mostly nothing has changed, and the first write succeeds.
    let has_ended =
        written == OutsideWrite::Done || venue.store.edit(now, owner, ("job", &held.invoked.job), attempt).await?;
    if has_ended {
        count_outcome(venue, result);
    }
    Ok(has_ended)
}

/// Releases the lease before the end, to be tried again after `pause`. An operation that must not be repeated ends
/// instead, with an unknown outcome.
pub async fn give_back(venue: &Venue, owner: &Owner, held: &HeldOperation, pause: Duration) -> Result<(), StoreError> {
    if !may_be_repeated(venue, &held.head) {
        let worker = held.invoked.taken.as_ref().map_or("", |taken| taken.worker.as_str());
        let result = rules::unknown(held.head.op.as_deref().unwrap_or_default(), worker);
        end(venue, owner, held, &result).await?;
        return Ok(());
    }
    let Some(held) = still(venue, owner, held).await? else { return Ok(()) };
    let now = venue.now();
    let back = held.invoked.clone().given_back(now.plus(pause));
    // On a conflict the lease expires by itself.
    venue.store.write(now, owner, &moved(&held.invoked, held.version, &back)).await?;
    Ok(())
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Ran {
    /// The job ends with this result.
    Ended(JobResult),
    /// The store didn't answer: the operation is run again later, if it may be repeated.
    Again,
}

/// Runs the operation for the caller who invoked it, with what is left of his authority.
pub async fn run(venue: &Venue, owner: &Owner, held: &HeldOperation) -> Result<Ran, StoreError> {
    let Asker { name, operator, authority, envelope, principal, token_owner } = held.invoked.asker.clone();
    let caller = Caller { owner: owner.clone(), name, authority, operator, envelope, principal };
    let known = Recognised { caller, may_override: false, token_owner };
    let mut caller = match policy::held(&*venue.store, known).await? {
        Ok(known) => known.caller,
        Err(refused) => return Ok(Ran::Ended(JobResult::failed(ErrorCode::CapDenied, refused.to_string()))),
    };
    let (policy, _) = policy::load_in_force(&*venue.store, owner).await?;
    let mut trail = held.head.under.clone();
    trail.grants.push(held.invoked.job.to_string());
    for revocation in policy.revocations.iter().filter(|revocation| revocation.follows(&trail)) {
        let Some(path) = &revocation.path else {
            return Ok(Ran::Ended(JobResult::failed(ErrorCode::CapDenied, revocation.refusal())));
        };
        caller.authority = caller.authority.without(path);
    }
    let op = held.head.op.as_deref().unwrap_or_default();
    let ran = operate(venue, &caller, Some(held.invoked.key.clone()), op, held.head.input.clone()).await;
    Ok(match ran {
        Err(OpError::Store(error)) if error.is_transient() => Ran::Again,
        Err(OpError::Fenced) => Ran::Again,
        ran => Ran::Ended(ended(ran)),
    })
}

/// Returns the end of a job from the result of its operation.
pub fn ended(ran: Result<Output, OpError>) -> JobResult {
    let coded = |code, text| JobResult::failed(code, told(text));
    let failed = |text| JobResult { error_code: None, ..coded(ErrorCode::Internal, text) };
    match ran {
        Ok(output) => JobResult::complete(output.value),
        Err(OpError::Failed(text) | OpError::Upstream(text) | OpError::NotFound(text) | OpError::Conflict(text)) => {
            failed(text)
        }
        Err(OpError::Timeout(text) | OpError::Limit(text)) => coded(ErrorCode::LimitReached, text),
        Err(OpError::Denied(text)) => coded(ErrorCode::CapDenied, text),
        Err(OpError::Invalid(text)) => coded(ErrorCode::Refused, text),
        Err(error @ OpError::OutcomeUnknown(_)) => coded(ErrorCode::OutcomeUnknown, error.to_string()),
        Err(error @ (OpError::Arguments { .. } | OpError::Store(StoreError::Oversized(_)))) => {
            coded(ErrorCode::Refused, error.to_string())
        }
        Err(OpError::Store(StoreError::Over(over))) => coded(ErrorCode::QuotaExceeded, over.to_string()),
        Err(error @ (OpError::Fenced | OpError::Store(_))) => coded(ErrorCode::Internal, error.to_string()),
    }
}

/// Returns the operations of an owner that are due, at most one page. Deletes entries without a record.
pub async fn due(venue: &Venue, owner: &Owner) -> Result<Vec<JobId>, StoreError> {
    let now = venue.now();
    let found = venue.store.scan(owner, keys::INVOKED_DUE, None, false, PAGE).await?;
    let places = found.iter().filter_map(|(key, _)| keys::job_of_due(keys::INVOKED_DUE, key));
    let due: Vec<_> = places.take_while(|(at, _)| *at <= now).collect();
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let records: Vec<_> = due.iter().map(|(_, job)| keys::invoked(job)).collect();
    let docs = venue.store.read(owner, &records).await?;
    let mut jobs = Vec::with_capacity(due.len());
    for ((at, job), doc) in due.into_iter().zip(docs) {
        let record: Option<Invoked> = match doc.decode(&keys::invoked(&job)) {
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
            let check = DocWrite::check(keys::invoked(&job), doc.version);
            venue.store.write(now, owner, &[check, DocWrite::delete(keys::invoked_due(at, &job))]).await?;
        }
    }
    Ok(jobs)
}
