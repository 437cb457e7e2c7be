//! Jobs as callers see them: read, list, wait, cancel.

pub mod pausing;
pub mod list;
pub mod waiting_message;
pub mod spend;

use self::list::JobListFilter;
use crate::bus::LiveSubject;
use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::decode;
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus};
use crate::domain::limits::{LIST_BYTES, LISTED_VALUE_BYTES};
use crate::domain::time::Millis;
use crate::domain::visible::cut_error;
use crate::domain::wait::WaitReason;
use crate::store::{
    Doc, DocKey, FinishOutcome, JobFinish, OutboxEntry, StoreError, Window, corrupt, decode, keys, steps,
};
use crate::venue::Venue;
use crate::venue::outbox;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// First and longest pause between two reads of a job that is waited for.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Milliseconds that the clocks of a queue and a venue may differ.
const CLOCKS_APART: u64 = 60_000;

/// Returns one job.
pub async fn get(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<Job>, StoreError> {
    Ok(get_many(venue, owner, std::slice::from_ref(id)).await?.pop())
}

/// Returns the head of one job, without its status.
pub async fn head(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<JobHead>, StoreError> {
    venue.store.get(owner, &keys::job_head(id)).await
}

/// Returns one job for people: with why it waits if its agent is suspended, and with what the jobs under it have used.
/// For other reasons to wait see [`crate::venue::waits::explain`].
pub async fn read_for_people(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<Job>, StoreError> {
    let mut found = get_many(venue, owner, std::slice::from_ref(id)).await?;
    add_related(venue, owner, &mut found).await?;
    Ok(found.pop())
}

/// Returns the key of a job's entry in the list. The key has the time of admission, which for a request that waited in
/// the queue is long after its creation.
pub async fn list_entry(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<Option<DocKey>, StoreError> {
    let earliest = Millis(head.created.0.saturating_sub(CLOCKS_APART));
    let (after, suffix) = (keys::job_list_entry(earliest, &head.id), format!("-{}", head.id));
    let mut entries = venue.store.entries(owner, keys::JOB_LIST).start_after(Some(after));
    while let Some(page) = entries.keys().await? {
        let found = page.into_iter().find(|key| key.ends_with(&suffix));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Whether a job has ended, in whatever way. If a turn still serves it, it was ended from outside that turn.
pub async fn has_ended(venue: &Venue, owner: &Owner, id: &JobId) -> Result<bool, StoreError> {
    Ok(!list_ended(venue, owner, std::slice::from_ref(id)).await?.is_empty())
}

/// Returns those of the jobs that have ended.
pub async fn list_ended(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<JobId>, StoreError> {
    let wanted: Vec<_> = ids.iter().map(keys::job_status).collect();
    let docs = venue.store.read(owner, &wanted).await?;
    let found = ids.iter().zip(docs).filter(|(_, doc)| doc.status().is_some_and(|(status, _)| status.is_terminal()));
    Ok(found.map(|(id, _)| id.clone()).collect())
}

/// Returns the keys of all documents of a job: head, status, result, wait note, watch of its external worker, spend.
fn job_documents(id: &JobId) -> [DocKey; 6] {
    let [head, status, result] = [keys::job_head(id), keys::job_status(id), keys::job_result(id)];
    [head, status, result, keys::job_wait(id), keys::outbound(id), keys::job_spend(id)]
}

/// How much of a job's input and output is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Only the size of large values.
    Listed,
}

/// Makes a job of its documents, in the order of [`job_documents`]; `None` without a head. A job without a status is
/// pending since its creation.
fn assemble_job(id: &JobId, docs: &[Doc], extent: Extent) -> Result<Option<Job>, StoreError> {
    let [head, status, result, waiting, outbound, tally] = docs else { return Ok(None) };
    let Some(head) = &head.value else { return Ok(None) };
    let large = |field: &'static str| (extent == Extent::Listed).then_some(field);
    let head: JobHead = extract(&keys::job_head(id), head, large("input"))?;
    let (status, updated) = status.status().unwrap_or((JobStatus::Pending, head.created));
    let result =
        result.value.as_ref().map(|bytes| extract(&keys::job_result(id), bytes, large("output"))).transpose()?;
    let waiting = waiting.decode(&keys::job_wait(id))?;
    let outbound = outbound.decode(&keys::outbound(id))?;
    let tally = tally.decode(&keys::job_spend(id))?;
    Ok(Some(Job { head, status, updated, result, waiting, wait: None, outbound, tally, tree: None }))
}

/// Decodes a record; if `large` names a field whose value is large, that is replaced by its size.
fn extract<T: DeserializeOwned>(key: &str, bytes: &[u8], large: Option<&str>) -> Result<T, StoreError> {
    let Some(field) = large.filter(|_| bytes.len() > LISTED_VALUE_BYTES) else { return decode(key, bytes) };
    let raw: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes).map_err(|error| corrupt(key, &error))?;
    let mut record = serde_json::Map::new();
    for (name, text) in raw {
        let size = text.get().len();
        let value = if name == field && size > LISTED_VALUE_BYTES {
            json!({"truncated": true, "size": size})
        } else {
            decode(key, text.get().as_bytes())?
        };
        record.insert(name, value);
    }
    serde_json::from_value(record.into()).map_err(|error| corrupt(key, &error))
}

/// Returns those of the jobs that exist, in the order of `ids`, with whole inputs and outputs.
pub(in crate::venue) async fn get_many(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<Job>, StoreError> {
    let keys: Vec<_> = ids.iter().flat_map(job_documents).collect();
    let docs = venue.store.read(owner, &keys).await?;
    let jobs = ids.iter().zip(docs.chunks(6)).map(|(id, docs)| assemble_job(id, docs, Extent::Whole));
    jobs.filter_map(Result::transpose).collect()
}

/// Returns those of the jobs that exist, without their results and what they have used; of a large input only its size.
pub(in crate::venue) async fn read_summaries(
    venue: &Venue,
    owner: &Owner,
    ids: &[JobId],
) -> Result<Vec<Job>, StoreError> {
    let documents = |id| [keys::job_head(id), keys::job_status(id), keys::job_wait(id), keys::outbound(id)];
    let wanted: Vec<_> = ids.iter().flat_map(documents).collect();
    let docs = venue.store.read(owner, &wanted).await?;
    let mut jobs = Vec::with_capacity(ids.len());
    for (id, docs) in ids.iter().zip(docs.chunks(4)) {
        let [head, status, waiting, outbound] = docs else { continue };
        let [head, status, waiting, outbound] = [head, status, waiting, outbound].map(Clone::clone);
        let docs = [head, status, Doc::default(), waiting, outbound, Doc::default()];
        jobs.extend(assemble_job(id, &docs, Extent::Listed)?);
    }
    Ok(jobs)
}

/// Reads again what workers note of an open job: why it waits, and its state at an external worker.
pub async fn reload_notes(venue: &Venue, owner: &Owner, job: &mut Job) -> Result<(), StoreError> {
    let keys = [keys::job_wait(&job.head.id), keys::outbound(&job.head.id)];
    if let [waiting, outbound] = venue.store.read(owner, &keys).await?.as_slice() {
        (job.waiting, job.outbound) = (waiting.decode(&keys[0])?, outbound.decode(&keys[1])?);
    }
    Ok(())
}

/// Returns the first of these jobs as lists show them, in the order of `ids`: records of up to `bytes` bytes in all, but
/// at least one job. A job that is gone or doesn't pass the filter is `None`. Also returns what is left of `bytes`.
async fn read_listed(
    venue: &Venue,
    owner: &Owner,
    ids: &[JobId],
    bytes: usize,
    filter: &JobListFilter,
) -> Result<(Vec<Option<Job>>, usize), StoreError> {
    let groups: Vec<_> = ids.iter().map(job_documents).collect();
    let (found, left) = steps::read(&*venue.store, owner, &groups, bytes).await?;
    let mut jobs = Vec::with_capacity(found.len());
    for (id, docs) in ids.iter().zip(found) {
        // For a search, the whole of one job at a time is decoded.
        let searched = if filter.text.is_some() { Extent::Whole } else { Extent::Listed };
        let found = match assemble_job(id, &docs, searched) {
            // A damaged job doesn't keep others from being listed; the audit names it.
            Err(error) if !error.is_transient() => {
                tracing::warn!(%owner, job = %id, %error, "a damaged job is left out of a list");
                None
            }
            found => found?,
        };
        let wanted = found.filter(|job| filter.accepts(job));
        let again = wanted.is_some() && searched == Extent::Whole;
        jobs.push(if again { assemble_job(id, &docs, Extent::Listed)? } else { wanted });
    }
    Ok((jobs, left))
}

/// Reads the named jobs as a list has them, in the order of the names; `None` for one that the filter leaves out, that is
/// damaged or that is unknown.
pub async fn read_named(
    venue: &Venue,
    owner: &Owner,
    ids: &[JobId],
    filter: &JobListFilter,
) -> Result<Vec<Option<Job>>, StoreError> {
    let mut jobs = Vec::with_capacity(ids.len());
    while jobs.len() < ids.len() {
        let (found, _) = read_listed(venue, owner, &ids[jobs.len()..], LIST_BYTES, filter).await?;
        jobs.extend(found);
    }
    Ok(jobs)
}

/// Adds to jobs what stands in documents other than theirs.
async fn add_related(venue: &Venue, owner: &Owner, jobs: &mut [Job]) -> Result<(), StoreError> {
    note_suspended_agents(venue, owner, jobs).await?;
    spend::sum_spend(venue, owner, jobs).await
}

/// Notes in open jobs of suspended agents that they wait for somebody who resumes the agent.
async fn note_suspended_agents(venue: &Venue, owner: &Owner, jobs: &mut [Job]) -> Result<(), StoreError> {
    let is_open = |job: &&mut Job| !job.status.is_terminal() && job.head.op.is_none();
    let agents: BTreeSet<_> = jobs.iter_mut().filter(is_open).map(|job| job.head.agent.clone()).collect();
    if agents.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = agents.iter().map(keys::agent).collect();
    let records = steps::read_listed(&*venue.store, owner, &keys).await?;
    for (agent, doc) in agents.iter().zip(records) {
        // A damaged record is reported where the agent is shown.
        let record = doc.value.and_then(|bytes| decode::read_stored::<AgentRecord>(&bytes).ok());
        let Some(record) = record.filter(|record| record.status == AgentStatus::Suspended) else { continue };
        for job in jobs.iter_mut().filter(is_open).filter(|job| job.head.agent == *agent) {
            job.set_wait(suspension_reason(&record));
        }
    }
    Ok(())
}

/// Returns why work waits whose agent is suspended.
pub(in crate::venue) fn suspension_reason(agent: &AgentRecord) -> WaitReason {
    WaitReason::Suspended { agent: agent.id.clone(), why: agent.error.clone() }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage<T> {
    /// Items of the page.
    pub items: Vec<T>,
    /// Number of items in the whole list.
    pub total: usize,
    /// Offset after the page.
    pub next: usize,
}

impl<T> ListPage<T> {
    /// Returns the offset of the next page, if this one begins at `offset`; `None` if this is the last.
    pub fn next_offset(&self, offset: usize) -> Option<usize> {
        (offset < self.next && self.next < self.total).then_some(self.next)
    }
}

/// Returns a page of job ids, newest first.
pub async fn list_ids(
    venue: &Venue,
    owner: &Owner,
    offset: usize,
    limit: usize,
) -> Result<ListPage<JobId>, StoreError> {
    let window = Window { reverse: true, skip: offset, limit, values: false };
    let page = venue.store.page(owner, keys::JOB_LIST, window).await?;
    let next = offset + page.docs.len();
    let items = page.docs.iter().filter_map(|(key, _)| keys::listed_job(key)).collect();
    Ok(ListPage { items, total: page.total, next })
}

/// Returns a page of jobs, newest first, with at most [`LIST_BYTES`] together, and of large inputs and outputs only
/// their size.
pub async fn list(venue: &Venue, owner: &Owner, offset: usize, limit: usize) -> Result<ListPage<Job>, StoreError> {
    let ListPage { items: ids, total, .. } = list_ids(venue, owner, offset, limit).await?;
    let (found, _) = read_listed(venue, owner, &ids, LIST_BYTES, &JobListFilter::default()).await?;
    let next = offset + found.len();
    let mut items: Vec<_> = found.into_iter().flatten().collect();
    add_related(venue, owner, &mut items).await?;
    Ok(ListPage { items, total, next })
}

/// Returns the statuses of those of these jobs that exist.
pub async fn statuses(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<(JobId, JobStatus)>, StoreError> {
    let keys: Vec<_> = ids.iter().map(keys::job_status).collect();
    let docs = steps::read_listed(&*venue.store, owner, &keys).await?;
    let known = ids.iter().zip(docs).filter_map(|(id, doc)| Some((id.clone(), doc.status()?.0)));
    Ok(known.collect())
}

/// Returns the status of a job and the time of its last change, without reading its input and result. `None` if there is
/// no such job, or no worker has taken it yet.
pub async fn read_status(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<(JobStatus, Millis)>, StoreError> {
    Ok(venue.store.doc(owner, &keys::job_status(id)).await?.status())
}

/// Returns a future that completes when the end of a job is signalled. It stays pending if the queue doesn't answer
/// within `time`; then polling finds the end.
pub async fn end_signal(venue: &Venue, owner: &Owner, id: &JobId, time: Duration) -> BoxFuture<'static, ()> {
    match tokio::time::timeout(time, venue.bus.job_end(owner, id)).await {
        Ok(Ok(told)) => told,
        Ok(Err(error)) => {
            tracing::debug!(%owner, job = %id, %error, "the end of a job is looked for and not told");
            pending().boxed()
        }
        Err(_) => pending().boxed(),
    }
}

/// Waits until a job has ended, at most for `timeout`, and returns it, ended or not. `None` if there is no such job.
pub async fn wait(venue: &Venue, owner: &Owner, id: &JobId, timeout: Duration) -> Result<Option<Job>, StoreError> {
    let deadline = venue.clock.steady() + timeout;
    let mut pause = POLL.0;
    let mut told: Option<BoxFuture<'static, ()>> = None;
    loop {
        let ended = match read_status(venue, owner, id).await? {
            Some((status, _)) => status.is_terminal(),
            // No worker has taken it yet, or there is no such job.
            None => match get(venue, owner, id).await? {
                Some(job) => job.status.is_terminal(),
                None => return Ok(None),
            },
        };
        let now = venue.clock.steady();
        if ended || now >= deadline {
            return read_for_people(venue, owner, id).await;
        }
        let pause_now = pause.min(deadline.saturating_sub(now));
        let Some(end) = &mut told else {
            // The job may have ended before the subscription, so it is read once more.
            told = Some(Box::pin(end_signal(venue, owner, id, pause_now)).await);
            continue;
        };
        tokio::select! {
            biased;
            () = &mut *end => told = Some(pending().boxed()),
            () = tokio::time::sleep(pause_now) => {}
        }
        pause = (pause * 3 / 2).min(POLL.1);
    }
}

/// Waits until a job has ended or asks a person, at most for `timeout`, and returns it as it is then.
pub async fn wait_for_end_or_question(
    venue: &Venue,
    owner: &Owner,
    id: &JobId,
    timeout: Duration,
) -> Result<Option<Job>, StoreError> {
    tokio::select! {
        biased;
        ended = wait(venue, owner, id, timeout) => ended,
        asked = wait_for_question(venue, owner, id) => {
            asked?;
            read_for_people(venue, owner, id).await
        }
    }
}

async fn wait_for_question(venue: &Venue, owner: &Owner, id: &JobId) -> Result<(), StoreError> {
    let mut pause = POLL.0;
    loop {
        let status = read_status(venue, owner, id).await?;
        if status.is_some_and(|(status, _)| status.is_interrupted()) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(POLL.1);
    }
}

/// Returns the reason with which the children of a job are cancelled after it ended with the status `ended`.
fn end_reason(id: &JobId, ended: JobStatus) -> String {
    let how = match ended {
        JobStatus::Complete => "was completed without it",
        JobStatus::Failed => "has failed",
        JobStatus::Cancelled => "was cancelled",
        JobStatus::Rejected => "was rejected",
        JobStatus::Pending
        | JobStatus::Started
        | JobStatus::Paused
        | JobStatus::InputRequired
        | JobStatus::AuthRequired => "goes on without it",
    };
    format!("job {id} {how}")
}

/// Returns the messages that cancel the open jobs which job `id` has started, for the caller to publish; workers that
/// take them cancel the children of those jobs in turn. `ended` is the status with which job `id` ended.
pub async fn child_cancel_messages(
    venue: &Venue,
    owner: &Owner,
    id: &JobId,
    ended: JobStatus,
) -> Result<Vec<OutboxEntry>, StoreError> {
    let why = end_reason(id, ended);
    let prefix = keys::job_children(id);
    let mut messages = Vec::new();
    let mut entries = venue.store.entries(owner, &prefix);
    while let Some(page) = entries.keys().await? {
        let ids: Vec<JobId> = page.iter().filter_map(|key| JobId::new(key.strip_prefix(&prefix)?).ok()).collect();
        let jobs = read_named(venue, owner, &ids, &JobListFilter::default()).await?;
        let open = jobs.into_iter().flatten().filter(|job| !job.status.is_terminal());
        messages.extend(open.map(|job| outbox::cancel_entry(&venue.key, owner, &job.head, &why)));
    }
    Ok(messages)
}

/// Ends an open job from outside its turns. Its callers get the result, its session is woken, and the messages `more`
/// are published with it. Changes nothing unless the outcome is `Done`.
pub async fn end(
    venue: &Venue,
    owner: &Owner,
    job: &Job,
    result: &JobResult,
    more: Vec<OutboxEntry>,
) -> Result<FinishOutcome, StoreError> {
    let finish = JobFinish {
        job: job.head.id.clone(),
        status: result.status,
        result: Bytes::from(serde_json::to_vec(result).expect("results serialise")),
    };
    let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let told = outbox::completions(&venue.key, owner, &job.head, result);
    let entries = venue.lasting_entries(&told, &more);
    let finished = venue.store.finish(venue.now(), owner, &session, &finish, None, &entries).await?;
    if finished == FinishOutcome::Done {
        venue.send(owner, told).await;
        venue.relay(owner, &more).await;
        venue.wake(owner, &session).await;
    }
    Ok(finished)
}

/// Result of a cancellation.
#[derive(Debug, Clone, PartialEq)]
pub enum CancelOutcome {
    /// The job is cancelled.
    Done(Job),
    /// The job had ended before.
    Already(Job),
    /// There is no such job.
    Unknown,
}

/// Cancels a job and the jobs that it has started; a running model call is dropped within a second. The result names
/// `reason`, or the caller if there is none.
pub async fn cancel(
    venue: &Venue,
    owner: &Owner,
    id: &JobId,
    reason: Option<&str>,
) -> Result<CancelOutcome, StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(CancelOutcome::Unknown) };
    let why = reason.map_or_else(|| "cancelled by the caller".to_owned(), |r| cut_error(format!("cancelled: {r}")));
    let result = JobResult::unsuccessful(JobStatus::Cancelled, ErrorCode::Cancelled, why);
    let children = child_cancel_messages(venue, owner, id, JobStatus::Cancelled).await?;
    let finished = end(venue, owner, &job, &result, children).await?;
    let Some(after) = get(venue, owner, id).await? else { return Ok(CancelOutcome::Unknown) };
    match finished {
        FinishOutcome::Unknown => Ok(CancelOutcome::Unknown),
        FinishOutcome::Already(_) => Ok(CancelOutcome::Already(after)),
        FinishOutcome::Done => {
            let control = LiveSubject::Control(owner.clone());
            if let Err(error) = venue.bus.signal(&control, Bytes::from(id.to_string())).await {
                tracing::debug!(%error, "cancel not signalled; the worker sees it at its next renewal");
            }
            Ok(CancelOutcome::Done(after))
        }
    }
}
