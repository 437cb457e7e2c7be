//! Reads of the audit: a record that can't be read is named, and doesn't hide others.

use crate::domain::audit::JobFacts;
use crate::domain::decode;
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::{JobHead, JobResult, JobStatus};
use crate::domain::limits::LIST_BYTES;
use crate::store::{Doc, DocKey, StoreError, keys, steps};
use crate::venue::Venue;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// Documents that are read at a time.
pub(crate) const PAGE: usize = 500;

/// Jobs that were read, and those that can't be.
#[derive(Default)]
pub(super) struct JobRecords {
    /// Jobs whose records can be read.
    pub(super) jobs: Vec<JobFacts>,
    /// Statuses that are missing or can't be read, as the results of their jobs show them.
    pub(super) statuses: BTreeMap<JobId, JobStatus>,
    /// Listed jobs without a record.
    gone: BTreeSet<JobId>,
    /// Damaged records, as texts.
    pub(super) damaged: BTreeSet<String>,
}

/// Reads the jobs of a page of the job list; those that were deleted meanwhile are skipped.
pub(super) async fn read_jobs(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<JobRecords, StoreError> {
    let mut records = JobRecords::default();
    let wanted: Vec<_> = ids.iter().map(|id| [keys::job_head(id), keys::job_status(id)]).collect();
    let (mut read, mut rest) = (Vec::with_capacity(ids.len()), wanted.as_slice());
    while !rest.is_empty() {
        match steps::read_whole(&*venue.store, owner, rest, LIST_BYTES).await {
            Ok((found, _)) => {
                rest = &rest[found.len()..];
                read.extend(found.into_iter().map(|pair| pair.into_iter().map(Ok).collect::<Vec<_>>()));
            }
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => {
                let Some((first, others)) = rest.split_first() else { break };
                rest = others;
                read.push(read_each(venue, owner, first).await?);
            }
        }
    }
    for (id, pair) in ids.iter().zip(read) {
        let [head, status] = pair.as_slice() else { continue };
        records.add_job(venue, owner, id, head, status).await?;
    }
    Ok(records)
}

/// Reads documents in one read, or one by one if one of them can't be read.
pub(super) async fn read_page(
    venue: &Venue,
    owner: &Owner,
    keys: &[DocKey],
) -> Result<Vec<Result<Doc, StoreError>>, StoreError> {
    match venue.store.read(owner, keys).await {
        Ok(docs) => Ok(docs.into_iter().map(Ok).collect()),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => read_each(venue, owner, keys).await,
    }
}

/// Reads documents one by one; the error of each that can't be read stands in its place.
async fn read_each(venue: &Venue, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Result<Doc, StoreError>>, StoreError> {
    let mut read = Vec::with_capacity(keys.len());
    for key in keys {
        read.push(match venue.store.doc(owner, key).await {
            Err(error) if error.is_transient() => return Err(error),
            doc => doc,
        });
    }
    Ok(read)
}

impl JobRecords {
    /// Adds the records of another page.
    pub(super) fn add(&mut self, page: Self) {
        self.jobs.extend(page.jobs);
        self.statuses.extend(page.statuses);
        self.gone.extend(page.gone);
        self.damaged.extend(page.damaged);
    }

    async fn add_job(
        &mut self,
        venue: &Venue,
        owner: &Owner,
        id: &JobId,
        head: &Result<Doc, StoreError>,
        status: &Result<Doc, StoreError>,
    ) -> Result<(), StoreError> {
        let damage = |error: &dyn Display| format!("the record of job {id} of `{owner}` can't be read: {error}");
        let value = head.as_ref().map(|doc| doc.value.as_ref());
        let read = match value {
            Ok(Some(bytes)) => decode::read_stored::<JobHead>(bytes).map_err(|error| damage(&error)),
            Ok(None) => {
                self.gone.insert(id.clone());
                return Ok(());
            }
            Err(error) => Err(damage(error)),
        };
        let head = match read {
            Ok(head) => head,
            Err(line) => {
                self.damaged.insert(line);
                return Ok(());
            }
        };
        let known = status.as_ref().ok().and_then(Doc::status);
        let mut facts = JobFacts {
            job: head.id,
            event: head.event.to_string(),
            session: SessionKey { agent: head.agent, session: head.session },
            status: known.map_or(JobStatus::Pending, |(status, _)| status),
            updated: known.map_or(head.created, |(_, updated)| updated),
        };
        if known.is_none() {
            self.set_lost_status(venue, owner, &mut facts).await?;
        }
        self.jobs.push(facts);
        Ok(())
    }

    /// Sets the status of a job whose own is missing, by its result.
    async fn set_lost_status(&mut self, venue: &Venue, owner: &Owner, job: &mut JobFacts) -> Result<(), StoreError> {
        let id = job.job.clone();
        self.damaged.insert(format!("the status of job {id} of `{owner}` is gone or can't be read"));
        let docs = read_each(venue, owner, &[keys::job_result(&id)]).await?;
        let result = docs.into_iter().next().and_then(Result::ok).and_then(|doc| doc.value);
        if let Some(result) = result.and_then(|bytes| decode::read_stored::<JobResult>(&bytes).ok()) {
            job.status = result.status;
            self.statuses.insert(id, result.status);
        }
        Ok(())
    }
}

/// Reads every job that is listed.
pub(super) async fn read_all_jobs(venue: &Venue, owner: &Owner) -> Result<JobRecords, StoreError> {
    let mut records = JobRecords::default();
    let mut entries = venue.store.entries(owner, keys::JOB_LIST);
    while let Some(page) = entries.keys().await? {
        let ids: Vec<_> = page.iter().filter_map(|key| keys::listed_job(key)).collect();
        records.add(read_jobs(venue, owner, &ids).await?);
    }
    for id in filter_listed(venue, owner, std::mem::take(&mut records.gone)).await? {
        records.damaged.insert(format!("job {id} of `{owner}` is listed, and its record is gone"));
    }
    Ok(records)
}

/// Returns what is wrong with the results of ended jobs, as texts.
pub(super) async fn damaged_results(
    venue: &Venue,
    owner: &Owner,
    ended: &[JobId],
) -> Result<BTreeSet<String>, StoreError> {
    let wanted: Vec<_> = ended.iter().map(|id| [keys::job_result(id)]).collect();
    let (mut damaged, mut gone, mut at) = (BTreeSet::new(), BTreeSet::new(), 0);
    while at < wanted.len() {
        let read = match steps::read_whole(&*venue.store, owner, &wanted[at..], LIST_BYTES).await {
            Ok((found, _)) => found.into_iter().flatten().map(Ok).collect(),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => read_each(venue, owner, &wanted[at]).await?,
        };
        for (id, doc) in ended[at..].iter().zip(&read) {
            let error = match doc {
                Ok(Doc { value: None, .. }) => {
                    gone.insert(id.clone());
                    continue;
                }
                Ok(Doc { value: Some(bytes), .. }) => match decode::read_stored::<JobResult>(bytes) {
                    Ok(_) => continue,
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            damaged.insert(format!("the result of job {id} of `{owner}` can't be read: {error}"));
        }
        at += read.len().max(1);
    }
    let gone = filter_listed(venue, owner, gone).await?;
    damaged.extend(gone.into_iter().map(|id| format!("the result of job {id} of `{owner}` is gone")));
    Ok(damaged)
}

/// Returns those of the jobs that are still listed: a deletion removes the entry, too.
async fn filter_listed(venue: &Venue, owner: &Owner, ids: BTreeSet<JobId>) -> Result<Vec<JobId>, StoreError> {
    let mut found = Vec::new();
    if ids.is_empty() {
        return Ok(found);
    }
    let mut entries = venue.store.entries(owner, keys::JOB_LIST);
    while let Some(page) = entries.keys().await? {
        found.extend(page.iter().filter_map(|key| keys::listed_job(key)).filter(|id| ids.contains(id)));
    }
    Ok(found)
}
