//! Jobs that the queue tells of and the store no longer knows: its tail was lost.

use super::{AuditError, PAGE};
use crate::bus::Completed;
use crate::domain::ids::Owner;
use crate::store::keys;
use crate::venue::Venue;
use std::collections::BTreeMap;

/// Those jobs, in words. Whoever deletes a job takes its completion out of the queue.
pub(super) async fn jobs(venue: &Venue) -> Result<Vec<(String, Owner)>, AuditError> {
    let Some(witness) = venue.bus.witness() else { return Ok(Vec::new()) };
    let mut by_owner: BTreeMap<Owner, Vec<Completed>> = BTreeMap::new();
    for told in witness.completed().await? {
        by_owner.entry(told.owner.clone()).or_default().push(told);
    }
    let mut unknown = Vec::new();
    for (owner, told) in by_owner {
        for page in told.chunks(PAGE) {
            let heads: Vec<_> = page.iter().map(|told| keys::job_head(&told.job)).collect();
            let docs = venue.store.read(&owner, &heads).await?;
            let missing = page.iter().zip(docs).filter(|(_, doc)| doc.value.is_none());
            for (told, _) in missing {
                // A submission that was refused has an answer there, too, and no job.
                let Some(completion) = witness.completion(told).await? else { continue };
                if completion.job.as_ref() != Some(&told.job) {
                    continue;
                }
                let line = format!(
                    "job {} of `{owner}` and agent `{}` is {} by the queue, and the store doesn't know it",
                    told.job,
                    told.agent,
                    completion.result.status.as_str()
                );
                unknown.push((line, owner.clone()));
            }
        }
    }
    Ok(unknown)
}
