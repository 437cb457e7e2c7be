//! Jobs whose end is in the queue but not in the store, because the store lost its last changes.

use super::AuditError;
use super::records::PAGE;
use crate::bus::CompletedJob;
use crate::domain::ids::Owner;
use crate::domain::job::JobStatus;
use crate::store::keys;
use crate::venue::Venue;
use std::collections::BTreeMap;

/// Returns those jobs as texts, with their owners. The deletion of a job removes its completion from the queue. With
/// `all` the ends of all jobs are compared, which reads one message each; otherwise only those of jobs that are open in
/// the store.
pub(super) async fn find_unknown(venue: &Venue, all: bool) -> Result<Vec<(String, Owner)>, AuditError> {
    let Some(witness) = venue.bus.witness() else { return Ok(Vec::new()) };
    let mut by_owner: BTreeMap<Owner, Vec<CompletedJob>> = BTreeMap::new();
    for told in witness.completed_jobs().await? {
        by_owner.entry(told.owner.clone()).or_default().push(told);
    }
    let mut unknown = Vec::new();
    for (owner, told) in by_owner {
        for page in told.chunks(PAGE) {
            let keys: Vec<_> =
                page.iter().flat_map(|told| [keys::job_head(&told.job), keys::job_status(&told.job)]).collect();
            let docs = venue.store.read(&owner, &keys).await?;
            for (told, docs) in page.iter().zip(docs.chunks(2)) {
                let [head, status] = docs else { continue };
                let status = status.status().map(|(status, _)| status);
                if head.value.is_some() && !all && status.is_none_or(JobStatus::is_terminal) {
                    continue;
                }
                // A refused submission has an answer there, too, and no job.
                let Some(completion) = witness.completion(told).await? else { continue };
                let ended = completion.result.status;
                if completion.job.as_ref() != Some(&told.job) || head.value.is_some() && status == Some(ended) {
                    continue;
                }
                let stands = match status.filter(|_| head.value.is_some()) {
                    Some(status) => format!("{} in the store", status.as_str()),
                    None => "the store doesn't know it".to_owned(),
                };
                let line = format!(
                    "job {} of `{owner}` and agent `{}` is {} by the queue, and {stands}",
                    told.job,
                    told.agent,
                    ended.as_str()
                );
                unknown.push((line, owner.clone()));
            }
        }
    }
    Ok(unknown)
}
