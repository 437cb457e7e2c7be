//! Everything about one job, for the janitor and for callers who delete the job.

use super::batch::decode_readable;
use crate::bus::CompletedJob;
use crate::domain::ids::{EventId, JobId, Owner, SessionKey, VenueIdSubject};
use crate::domain::job::{ErrorCode, Job, JobHead, JobResult, JobStatus};
use crate::domain::retention::{RetainedJob, RetentionRules, is_job_due};
use crate::domain::time::Millis;
use crate::domain::timer::Timer;
use crate::store::{Doc, DocKey, ForgetRequest, SessionFacts, StoreError, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::dead_letters;
use crate::venue::jobs;
use crate::venue::timers;
use std::slice;

/// What is deleted with a job, except its entry in the list, and the facts that decide whether it may be.
pub(super) struct JobRemains {
    pub(super) documents: Vec<DocKey>,
    /// Events whose ids are new again after the deletion.
    pub(super) events: Vec<EventId>,
    facts: RetainedJob,
}

/// Result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionOutcome {
    /// The job is deleted, with all that belongs to it.
    Done,
    /// Nothing was deleted: the job has not ended.
    Open,
    /// Nothing was deleted: a job that it started has not ended, or a timer that it set is active, and spends from its
    /// accounts.
    Spending,
    /// Nothing was deleted: its task is still in a mailbox, or its session is being served and the queue may deliver
    /// the task again, so that it would run again.
    InMailbox,
}

/// Deletes an ended job with its accounts, its dead letter and its entries in lists.
pub async fn delete(venue: &Venue, owner: &Owner, job: &Job) -> Result<DeletionOutcome, StoreError> {
    if !job.status.is_terminal() {
        return Ok(DeletionOutcome::Open);
    }
    let JobRemains { mut documents, events, facts } =
        read_remains(venue, owner, &job.head, job.status, job.updated, job.result.as_ref()).await?;
    if facts.is_charged {
        return Ok(DeletionOutcome::Spending);
    }
    if facts.in_mailbox || (job.head.op.is_none() && is_served(venue, owner, &job.head).await?) {
        return Ok(DeletionOutcome::InMailbox);
    }
    documents.extend(jobs::list_entry(venue, owner, &job.head).await?);
    // A call without sessions can't fail because of their changes.
    venue
        .store
        .forget(
            venue.now(),
            owner,
            &ForgetRequest { documents, events, requested_by_user: true, ..ForgetRequest::default() },
        )
        .await?;
    delete_completion(venue, owner, &job.head, job.updated).await;
    if let Err(error) = venue.bus.live_feed().forget(slice::from_ref(&job.head.id)).await {
        tracing::warn!(%owner, job = %job.head.id, %error, "the live text of a deleted job is kept for some minutes");
    }
    Ok(DeletionOutcome::Done)
}

/// Deletes the completion of a job from the queue; otherwise the audit would report the job as lost.
async fn delete_completion(venue: &Venue, owner: &Owner, head: &JobHead, ended: Millis) {
    let Some(witness) = venue.bus.witness() else { return };
    let told = CompletedJob { owner: owner.clone(), agent: head.agent.clone(), job: head.id.clone() };
    if let Err(error) = witness.forget(&told, venue.now().elapsed_since(ended)).await {
        tracing::warn!(%owner, job = %head.id, %error, "the queue still tells of a deleted job");
    }
}

/// Returns what is deleted with a job by these rules; `None` if the job stays.
pub(super) async fn remains_if_expired(
    venue: &Venue,
    owner: &Owner,
    rules: RetentionRules,
    head: &JobHead,
    status: &Doc,
    result: &Doc,
) -> Result<Option<JobRemains>, StoreError> {
    let now = venue.now();
    let Some((status, updated)) = status.status() else { return Ok(None) };
    if !is_job_due(rules, now, &bare_facts(status, updated)) {
        return Ok(None);
    }
    let result = decode_readable::<JobResult>(&keys::job_result(&head.id), result);
    let remains = read_remains(venue, owner, head, status, updated, result.as_ref()).await?;
    let goes = is_job_due(rules, now, &remains.facts);
    if goes {
        delete_completion(venue, owner, head, updated).await;
    }
    Ok(Some(remains).filter(|_| goes))
}

/// Returns the facts of a job of which only the status is known.
const fn bare_facts(status: JobStatus, updated: Millis) -> RetainedJob {
    RetainedJob { status, updated, dead: false, is_charged: false, in_mailbox: false }
}

async fn read_remains(
    venue: &Venue,
    owner: &Owner,
    head: &JobHead,
    status: JobStatus,
    updated: Millis,
    result: Option<&JobResult>,
) -> Result<JobRemains, StoreError> {
    let id = &head.id;
    let died = result.and_then(|result| result.error_code) == Some(ErrorCode::Dead);
    let letter = if died { dead_letters::get(venue, owner, id).await? } else { None };
    let dead = letter.is_some_and(|(letter, _)| letter.redriven.is_none());
    let (children, pays) = read_children(venue, owner, id).await?;
    let pays = pays || has_paying_timer(venue, owner, id).await?;
    // A completed task was removed from the mailbox by its completion.
    let may_wait = status != JobStatus::Complete && head.op.is_none();
    let in_mailbox = may_wait && is_in_mailbox(venue, owner, head).await?;
    let mut documents = keys::job_documents(id).to_vec();
    documents.extend(died.then(|| keys::dead_letter(updated, id)));
    documents.extend(children);
    for prefix in [keys::job_messages(id), keys::job_notifications(id)] {
        let mut entries = venue.store.docs(owner, prefix);
        while let Some(page) = entries.keys().await? {
            documents.extend(page);
        }
    }
    let parent = head.parent.as_ref().and_then(|parent| parent.job.as_ref());
    documents.extend(parent.map(|parent| keys::job_child(parent, id)));
    let events = vec![head.event.clone(), EventId::of_venue(&venue.key, VenueIdSubject::Result(id))];
    Ok(JobRemains {
        documents,
        events,
        facts: RetainedJob { dead, is_charged: pays, in_mailbox, ..bare_facts(status, updated) },
    })
}

/// Returns the entries of the jobs that a job has started, and whether one of those has not ended.
async fn read_children(venue: &Venue, owner: &Owner, job: &JobId) -> Result<(Vec<DocKey>, bool), StoreError> {
    let prefix = keys::job_children(job);
    let mut found = Vec::new();
    let mut entries = venue.store.entries(owner, &prefix);
    while let Some(page) = entries.keys().await? {
        let ids: Vec<_> = page.iter().filter_map(|key| JobId::new(key.strip_prefix(&prefix)?).ok()).collect();
        let statuses: Vec<_> = ids.iter().map(keys::job_status).collect();
        let statuses = venue.store.read(owner, &statuses).await?;
        let mut statuses = statuses.iter().filter_map(Doc::status);
        if statuses.any(|(status, _)| !status.is_terminal()) {
            return Ok((found, true));
        }
        found.extend(page);
    }
    Ok((found, false))
}

/// Whether an active timer spends from the accounts of a job.
async fn has_paying_timer(venue: &Venue, owner: &Owner, job: &JobId) -> Result<bool, StoreError> {
    let accounts = keys::job_accounts(job);
    let docs = venue.store.read(owner, &accounts).await?;
    if docs.iter().all(|doc| doc.value.is_none()) {
        return Ok(false);
    }
    let mut pays = false;
    let mut look = |timer: Timer| {
        let mut paid = timer.submission.envelope.accounts.iter();
        pays |= timer.is_active() && paid.any(|name| accounts.contains(&keys::account(name)));
    };
    timers::for_each(venue, owner, &mut look).await?;
    Ok(pays)
}

/// Whether a worker holds the job's session, or died with it: the delivery of the task may not be acknowledged.
async fn is_served(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<bool, StoreError> {
    Ok(find_session(venue, owner, head).await?.is_some_and(|facts| facts.lease_until.is_some()))
}

async fn is_in_mailbox(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<bool, StoreError> {
    let holds = |facts: SessionFacts| facts.mailbox.iter().any(|entry| entry.job.as_ref() == Some(&head.id));
    Ok(find_session(venue, owner, head).await?.is_some_and(holds))
}

/// Returns the session that serves a job.
async fn find_session(venue: &Venue, owner: &Owner, head: &JobHead) -> Result<Option<SessionFacts>, StoreError> {
    let key = SessionKey { agent: head.agent.clone(), session: head.session.clone() };
    agents::sessions::find(venue, owner, &key).await
}
