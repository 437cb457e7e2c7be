//! Jobs as callers see them: read, list, wait, cancel.

pub mod hold;
pub mod list;
pub mod queued;
pub mod spend;

use self::list::JobFilter;
use crate::bus::LiveSubject;
use crate::domain::agent::{AgentRecord, AgentStatus};
use crate::domain::decode;
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus};
use crate::domain::limits::{LIST_BYTES, LISTED_VALUE_BYTES};
use crate::domain::time::Millis;
use crate::domain::visible::told;
use crate::domain::wait::WaitReason;
use crate::outbox;
use crate::store::{Doc, DocKey, Finished, JobFinish, OutboxEntry, StoreError, Window, corrupt, decode, keys, steps};
use crate::venue::Venue;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// First and longest pause between two looks at a job.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Milliseconds that the clocks of a queue and a venue may be apart.
const CLOCKS_APART: u64 = 60_000;

/// One job.
pub async fn get(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<Job>, StoreError> {
    Ok(get_many(venue, owner, std::slice::from_ref(id)).await?.pop())
}

/// What one job is, without how it stands.
pub async fn head(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<JobHead>, StoreError> {
    venue.store.get(owner, &keys::job_head(id)).await
}

/// One job as people look at it: with why it waits when its agent is suspended, and with what the jobs under it have
/// used. Why it waits else, [`crate::venue::waits::explain`] finds out.
pub async fn shown(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<Job>, StoreError> {
    let mut found = get_many(venue, owner, std::slice::from_ref(id)).await?;
    look_around(venue, owner, &mut found).await?;
    Ok(found.pop())
}

/// Key of a job's place in the list. It has the time of the admission, which a request that lay in
/// the queue has long after it was created.
pub async fn list_entry(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<Option<DocKey>, StoreError> {
    let earliest = Millis(head.created.0.saturating_sub(CLOCKS_APART));
    let (after, suffix) = (keys::job_list_entry(earliest, &head.id), format!("-{}", head.id));
    let mut entries = venue.store.entries(owner, keys::JOB_LIST).after(Some(after));
    while let Some(page) = entries.keys().await? {
        let found = page.into_iter().find(|key| key.ends_with(&suffix));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Whether a job that a turn serves was ended by another: cancelled, or completed or failed for it.
pub async fn is_cancelled(venue: &Venue, owner: &Owner, id: &JobId) -> Result<bool, StoreError> {
    Ok(!cancelled(venue, owner, std::slice::from_ref(id)).await?.is_empty())
}

/// Those of the jobs that have ended.
pub async fn cancelled(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<JobId>, StoreError> {
    let wanted: Vec<_> = ids.iter().map(keys::job_status).collect();
    let docs = venue.store.read(owner, &wanted).await?;
    let found = ids.iter().zip(docs).filter(|(_, doc)| doc.status().is_some_and(|(status, _)| status.is_terminal()));
    Ok(found.map(|(id, _)| id.clone()).collect())
}

/// Keys of all that a job is.
fn documents(id: &JobId) -> [DocKey; 6] {
    let [head, status, result] = [keys::job_head(id), keys::job_status(id), keys::job_result(id)];
    [head, status, result, keys::job_wait(id), keys::outbound(id), keys::job_spend(id)]
}

/// What is read of a job's input and output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Large ones say no more than their size.
    Listed,
}

fn assembled(id: &JobId, docs: &[Doc], extent: Extent) -> Result<Option<Job>, StoreError> {
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

/// A record; the field that may be large is not decoded when it is.
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

pub(in crate::venue) async fn get_many(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<Job>, StoreError> {
    let keys: Vec<_> = ids.iter().flat_map(documents).collect();
    let docs = venue.store.read(owner, &keys).await?;
    let jobs = ids.iter().zip(docs.chunks(6)).map(|(id, docs)| assembled(id, docs, Extent::Whole));
    jobs.filter_map(Result::transpose).collect()
}

/// How jobs stand: without what came out of them and what they have used; of a large input no more than its size.
pub(in crate::venue) async fn read_states(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<Job>, StoreError> {
    let documents = |id| [keys::job_head(id), keys::job_status(id), keys::job_wait(id), keys::outbound(id)];
    let wanted: Vec<_> = ids.iter().flat_map(documents).collect();
    let docs = venue.store.read(owner, &wanted).await?;
    let mut jobs = Vec::with_capacity(ids.len());
    for (id, docs) in ids.iter().zip(docs.chunks(4)) {
        let [head, status, waiting, outbound] = docs else { continue };
        let [head, status, waiting, outbound] = [head, status, waiting, outbound].map(Clone::clone);
        let docs = [head, status, Doc::default(), waiting, outbound, Doc::default()];
        jobs.extend(assembled(id, &docs, Extent::Listed)?);
    }
    Ok(jobs)
}

/// Reads again what workers note of a job that goes on: why it waits, and how it stands with an external worker.
pub async fn reload_notes(venue: &Venue, owner: &Owner, job: &mut Job) -> Result<(), StoreError> {
    let keys = [keys::job_wait(&job.head.id), keys::outbound(&job.head.id)];
    if let [waiting, outbound] = venue.store.read(owner, &keys).await?.as_slice() {
        (job.waiting, job.outbound) = (waiting.decode(&keys[0])?, outbound.decode(&keys[1])?);
    }
    Ok(())
}

/// The first of these jobs as lists show them: as many as weigh no more than `bytes`, and one at
/// least; those that are gone, or not wanted, are `None`. And what is left of `bytes`.
async fn listed(
    venue: &Venue,
    owner: &Owner,
    ids: &[JobId],
    bytes: usize,
    filter: &JobFilter,
) -> Result<(Vec<Option<Job>>, usize), StoreError> {
    let groups: Vec<_> = ids.iter().map(documents).collect();
    let (found, left) = steps::read(&*venue.store, owner, &groups, bytes).await?;
    let mut jobs = Vec::with_capacity(found.len());
    for (id, docs) in ids.iter().zip(found) {
        // A text is looked for in the whole of one job at a time.
        let searched = if filter.text.is_some() { Extent::Whole } else { Extent::Listed };
        let found = match assembled(id, &docs, searched) {
            // A damaged one keeps no other from being listed; the audit names it.
            Err(error) if !error.is_transient() => {
                tracing::warn!(%owner, job = %id, %error, "a damaged job is left out of a list");
                None
            }
            found => found?,
        };
        let wanted = found.filter(|job| filter.takes(job));
        let again = wanted.is_some() && searched == Extent::Whole;
        jobs.push(if again { assembled(id, &docs, Extent::Listed)? } else { wanted });
    }
    Ok((jobs, left))
}

/// What people want to know of jobs that stands in other documents than theirs.
async fn look_around(venue: &Venue, owner: &Owner, jobs: &mut [Job]) -> Result<(), StoreError> {
    say_who_is_suspended(venue, owner, jobs).await?;
    spend::add_up(venue, owner, jobs).await
}

/// Open jobs of suspended agents wait for somebody who resumes those.
async fn say_who_is_suspended(venue: &Venue, owner: &Owner, jobs: &mut [Job]) -> Result<(), StoreError> {
    let is_open = |job: &&mut Job| !job.status.is_terminal() && job.head.op.is_none();
    let agents: BTreeSet<_> = jobs.iter_mut().filter(is_open).map(|job| job.head.agent.clone()).collect();
    if agents.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = agents.iter().map(keys::agent).collect();
    let records = venue.store.read(owner, &keys).await?;
    for (agent, doc) in agents.iter().zip(records) {
        // A damaged record is told where the agent is looked at.
        let record = doc.value.and_then(|bytes| decode::stored::<AgentRecord>(&bytes).ok());
        let Some(record) = record.filter(|record| record.status == AgentStatus::Suspended) else { continue };
        for job in jobs.iter_mut().filter(is_open).filter(|job| job.head.agent == *agent) {
            job.tell_wait(suspended(&record));
        }
    }
    Ok(())
}

/// The reason of work whose agent is suspended.
pub(in crate::venue) fn suspended(agent: &AgentRecord) -> WaitReason {
    WaitReason::Suspended { agent: agent.id.clone(), why: agent.error.clone() }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage<T> {
    /// What it lists.
    pub items: Vec<T>,
    /// How many there are in all.
    pub total: usize,
    /// Place behind the page.
    pub next: usize,
}

impl<T> ListPage<T> {
    /// Where the page behind this one, which begins at `offset`, begins; `None`: this is the last.
    pub fn behind(&self, offset: usize) -> Option<usize> {
        (offset < self.next && self.next < self.total).then_some(self.next)
    }

    /// As operations return a page that begins at `offset`.
    pub fn to_json<'p, S: Serialize>(&'p self, offset: usize, item: impl FnMut(&'p T) -> S) -> Value {
        let items: Vec<S> = self.items.iter().map(item).collect();
        json!({"items": items, "total": self.total, "offset": offset, "next": self.behind(offset)})
    }
}

/// Ids of jobs, newest first.
pub async fn ids(venue: &Venue, owner: &Owner, offset: usize, limit: usize) -> Result<ListPage<JobId>, StoreError> {
    let window = Window { reverse: true, skip: offset, limit, values: false };
    let page = venue.store.page(owner, keys::JOB_LIST, window).await?;
    let next = offset + page.docs.len();
    let items = page.docs.iter().filter_map(|(key, _)| keys::listed_job(key)).collect();
    Ok(ListPage { items, total: page.total, next })
}

/// Jobs, newest first; no more of them than weigh [`LIST_BYTES`] together, and of large inputs and
/// outputs no more than their size.
pub async fn list(venue: &Venue, owner: &Owner, offset: usize, limit: usize) -> Result<ListPage<Job>, StoreError> {
    let ListPage { items: ids, total, .. } = ids(venue, owner, offset, limit).await?;
    let (found, _) = listed(venue, owner, &ids, LIST_BYTES, &JobFilter::default()).await?;
    let next = offset + found.len();
    let mut items: Vec<_> = found.into_iter().flatten().collect();
    look_around(venue, owner, &mut items).await?;
    Ok(ListPage { items, total, next })
}

/// Statuses of jobs; of those that there are.
pub async fn statuses(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<(JobId, JobStatus)>, StoreError> {
    let keys: Vec<_> = ids.iter().map(keys::job_status).collect();
    let docs = venue.store.read(owner, &keys).await?;
    let known = ids.iter().zip(docs).filter_map(|(id, doc)| Some((id.clone(), doc.status()?.0)));
    Ok(known.collect())
}

/// Status of a job and since when, without reading what it was asked and what it said. `None`: no such job, or one that
/// nobody has taken yet.
pub async fn state(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<(JobStatus, Millis)>, StoreError> {
    Ok(venue.store.doc(owner, &keys::job_status(id)).await?.status())
}

/// Is over when a job is told to have ended. What isn't told, a look in time finds: nobody waits for long for a queue
/// that is away.
async fn told_of_end(venue: &Venue, owner: &Owner, id: &JobId, time: Duration) -> BoxFuture<'static, ()> {
    match tokio::time::timeout(time, venue.bus.ended(owner, id)).await {
        Ok(Ok(told)) => told,
        Ok(Err(error)) => {
            tracing::debug!(%owner, job = %id, %error, "the end of a job is looked for and not told");
            pending().boxed()
        }
        Err(_) => pending().boxed(),
    }
}

/// Waits until a job has ended; after `timeout` the job as it is then. `None`: no such job.
pub async fn wait(venue: &Venue, owner: &Owner, id: &JobId, timeout: Duration) -> Result<Option<Job>, StoreError> {
    let deadline = venue.clock.steady() + timeout;
    let mut pause = POLL.0;
    let mut told: Option<BoxFuture<'static, ()>> = None;
    loop {
        let ended = match state(venue, owner, id).await? {
            Some((status, _)) => status.is_terminal(),
            // Nobody has taken it yet, or there is none.
            None => match get(venue, owner, id).await? {
                Some(job) => job.status.is_terminal(),
                None => return Ok(None),
            },
        };
        let now = venue.clock.steady();
        if ended || now >= deadline {
            return shown(venue, owner, id).await;
        }
        let pause_now = pause.min(deadline.saturating_sub(now));
        let Some(end) = &mut told else {
            // It may have ended before anybody listens: it is looked at once more.
            told = Some(Box::pin(told_of_end(venue, owner, id, pause_now)).await);
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

/// How a job ended, for those that it has started.
fn ended_by(id: &JobId, ended: JobStatus) -> String {
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

/// What cancels the jobs that a job has started, which `ended` so, and so what those have started.
pub async fn cancel_children(
    venue: &Venue,
    owner: &Owner,
    id: &JobId,
    ended: JobStatus,
) -> Result<Vec<OutboxEntry>, StoreError> {
    let why = ended_by(id, ended);
    let prefix = keys::job_children(id);
    let mut messages = Vec::new();
    let mut entries = venue.store.entries(owner, &prefix);
    while let Some(page) = entries.keys().await? {
        let ids: Vec<JobId> = page.iter().filter_map(|key| JobId::new(key.strip_prefix(&prefix)?).ok()).collect();
        let mut rest = ids.as_slice();
        while !rest.is_empty() {
            let (found, _) = listed(venue, owner, rest, LIST_BYTES, &JobFilter::default()).await?;
            rest = &rest[found.len()..];
            let open = found.into_iter().flatten().filter(|job| !job.status.is_terminal());
            messages.extend(open.map(|job| outbox::cancel(&venue.key, owner, &job.head, &why)));
        }
    }
    Ok(messages)
}

/// Ends an open job from outside its turns: whoever waits is told, its session looks, and `more` goes out
/// with it.
pub async fn end(
    venue: &Venue,
    owner: &Owner,
    job: &Job,
    result: &JobResult,
    more: Vec<OutboxEntry>,
) -> Result<Finished, StoreError> {
    let finish = JobFinish {
        job: job.head.id.clone(),
        status: result.status,
        result: Bytes::from(serde_json::to_vec(result).expect("results serialise")),
    };
    let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let told = outbox::completions(&venue.key, owner, &job.head, result);
    let entries = venue.lasting(&told, &more);
    let finished = venue.store.finish(venue.now(), owner, &session, &finish, None, &entries).await?;
    if finished == Finished::Done {
        venue.send(owner, told).await;
        venue.relay(owner, &more).await;
        venue.wake(owner, &session).await;
    }
    Ok(finished)
}

/// What became of a cancellation.
#[derive(Debug, Clone, PartialEq)]
pub enum Cancelled {
    /// It is cancelled now.
    Done(Job),
    /// It had ended before.
    Already(Job),
    /// No such job.
    Unknown,
}

/// Cancels a job, and with it what it has started; a running model call is dropped within a second.
pub async fn cancel(venue: &Venue, owner: &Owner, id: &JobId, reason: Option<&str>) -> Result<Cancelled, StoreError> {
    let Some(job) = get(venue, owner, id).await? else { return Ok(Cancelled::Unknown) };
    let why = reason.map_or_else(|| "cancelled by the caller".to_owned(), |r| told(format!("cancelled: {r}")));
    let result = JobResult::ended(JobStatus::Cancelled, ErrorCode::Cancelled, why);
    let children = cancel_children(venue, owner, id, JobStatus::Cancelled).await?;
    let finished = end(venue, owner, &job, &result, children).await?;
    let Some(after) = get(venue, owner, id).await? else { return Ok(Cancelled::Unknown) };
    match finished {
        Finished::Unknown => Ok(Cancelled::Unknown),
        Finished::Already(_) => Ok(Cancelled::Already(after)),
        Finished::Done => {
            let control = LiveSubject::Control(owner.clone());
            if let Err(error) = venue.bus.signal(&control, Bytes::from(id.to_string())).await {
                tracing::debug!(%error, "cancel not signalled; the worker sees it at its next renewal");
            }
            Ok(Cancelled::Done(after))
        }
    }
}
