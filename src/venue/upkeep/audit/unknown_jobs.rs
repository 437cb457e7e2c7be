//! Jobs whose end is in the queue but not in the store, because the store lost its last changes.

use super::AuditError;
use super::records::{PAGE, read_page};
use crate::bus::{CompletedJob, Witness};
use crate::domain::ids::Owner;
use crate::domain::job::JobStatus;
use crate::store::{Doc, StoreError, keys};
use crate::venue::Venue;
use std::collections::BTreeMap;

/// Result of the comparison of the queue's completions with the store.
#[derive(Debug, Default)]
pub(super) struct QueueComparison {
    /// Jobs that the store doesn't know as the queue does, as texts, with their owners.
    pub(super) unknown: Vec<(String, Owner)>,
    /// Owners with jobs whose records can't be read, as texts.
    pub(super) damaged: Vec<String>,
}

/// Compares the completions in the queue with the store. The deletion of a job removes its completion from the queue.
/// With `all` the ends of all jobs are compared, which reads one message each; otherwise only those of jobs that are
/// open in the store.
pub(super) async fn compare_with_queue(venue: &Venue, all: bool) -> Result<QueueComparison, AuditError> {
    let mut found = QueueComparison::default();
    let Some(witness) = venue.bus.witness() else { return Ok(found) };
    let mut by_owner: BTreeMap<Owner, Vec<CompletedJob>> = BTreeMap::new();
    for told in witness.completed_jobs().await? {
        by_owner.entry(told.owner.clone()).or_default().push(told);
    }
    for (owner, told) in by_owner {
        let (mut unreadable, mut first) = (0, None);
        for page in told.chunks(PAGE) {
            let keys: Vec<_> =
                page.iter().flat_map(|told| [keys::job_head(&told.job), keys::job_status(&told.job)]).collect();
            let docs = read_page(venue, &owner, &keys).await?;
            for (told, docs) in page.iter().zip(docs.chunks(2)) {
                // One owner's damaged record must not hide what others have lost.
                match docs {
                    [Ok(head), Ok(status)] => {
                        let line = describe_unknown(witness, told, [head, status], all).await?;
                        found.unknown.extend(line.map(|line| (line, owner.clone())));
                    }
                    [Err(error), _] | [_, Err(error)] => {
                        unreadable += 1;
                        first.get_or_insert_with(|| error.clone());
                    }
                    _ => {}
                }
            }
        }
        let line =
            |error: StoreError| format!("{unreadable} jobs of `{owner}` can't be compared with the queue: {error}");
        found.damaged.extend(first.map(line));
    }
    Ok(found)
}

/// Returns a line about a job whose head and status in the store don't fit its completion; `None` if they do.
async fn describe_unknown(
    witness: &dyn Witness,
    told: &CompletedJob,
    [head, status]: [&Doc; 2],
    all: bool,
) -> Result<Option<String>, AuditError> {
    let status = status.status().map(|(status, _)| status);
    if head.value.is_some() && !all && status.is_none_or(JobStatus::is_terminal) {
        return Ok(None);
    }
    // A refused submission has an answer there, too, and no job.
    let Some(completion) = witness.completion(told).await? else { return Ok(None) };
    let ended = completion.result.status;
    if completion.job.as_ref() != Some(&told.job) || head.value.is_some() && status == Some(ended) {
        return Ok(None);
    }
    let stands = match status.filter(|_| head.value.is_some()) {
        Some(status) => format!("{} in the store", status.as_str()),
        None => "the store doesn't know it".to_owned(),
    };
    let CompletedJob { owner, agent, job } = told;
    Ok(Some(format!("job {job} of `{owner}` and agent `{agent}` is {} by the queue, and {stands}", ended.as_str())))
}
