//! What jobs and all jobs under them have used, summed up on each read.

use crate::domain::ids::{JobId, Owner};
use crate::domain::job::{Job, JobStatus};
use crate::domain::limits::TREE_JOBS;
use crate::domain::spend::{JobTreeUse, ModelUse, Tally};
use crate::store::{StoreError, decode_listed, keys, steps};
use crate::venue::Venue;
use std::collections::VecDeque;

/// Children that are read at a time: each costs two small documents.
const PAGE: usize = 100;

/// Sets in each job what it and the jobs under it have used, as of their last commits. For all jobs together it reads
/// at most [`TREE_JOBS`] jobs under them.
pub(super) async fn sum_spend(venue: &Venue, owner: &Owner, jobs: &mut [Job]) -> Result<(), StoreError> {
    let mut left = TREE_JOBS;
    for job in jobs.iter_mut().filter(|job| job.head.op.is_none()) {
        let mut tree = JobTreeUse {
            spent: job.tally.map_or_else(ModelUse::default, |tally| tally.spent),
            ..JobTreeUse::default()
        };
        if may_have_children(job.status, job.tally.as_ref()) {
            sum_children(venue, owner, &job.head.id, &mut tree, &mut left).await?;
        }
        job.tree = Some(tree);
    }
    Ok(())
}

/// Whether a job may have children, also while the turn that starts them hasn't committed.
pub fn may_have_children(status: JobStatus, tally: Option<&Tally>) -> bool {
    let may_begin = matches!(status, JobStatus::Started | JobStatus::Paused | JobStatus::InputRequired);
    may_begin || tally.is_some_and(|tally| tally.started)
}

async fn sum_children(
    venue: &Venue,
    owner: &Owner,
    root: &JobId,
    tree: &mut JobTreeUse,
    left: &mut usize,
) -> Result<(), StoreError> {
    let mut parents = VecDeque::from([root.clone()]);
    while let Some(parent) = parents.pop_front() {
        let prefix = keys::job_children(&parent);
        // One entry above the limit shows that there are more.
        let mut entries = venue.store.entries(owner, &prefix).page_size(PAGE.min(*left + 1));
        while let Some(page) = entries.keys().await? {
            let ids = page.iter().filter_map(|key| JobId::new(key.strip_prefix(&prefix)?).ok());
            let ids: Vec<JobId> = ids.take(*left).collect();
            tree.partial |= ids.len() < page.len();
            *left -= ids.len();
            for (child, status, tally) in read_children(venue, owner, ids).await? {
                tree.jobs += 1;
                tree.spent = tree.spent.plus(tally.map_or_else(ModelUse::default, |tally| tally.spent));
                if may_have_children(status, tally.as_ref()) {
                    parents.push_back(child);
                }
            }
            if tree.partial {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads the statuses of jobs and what they have used; jobs that are gone are left out.
async fn read_children(
    venue: &Venue,
    owner: &Owner,
    ids: Vec<JobId>,
) -> Result<Vec<(JobId, JobStatus, Option<Tally>)>, StoreError> {
    let wanted: Vec<_> = ids.iter().flat_map(|id| [keys::job_status(id), keys::job_spend(id)]).collect();
    let docs = steps::read_listed(&*venue.store, owner, &wanted).await?;
    let mut found = Vec::with_capacity(ids.len());
    for (id, docs) in ids.into_iter().zip(docs.chunks(2)) {
        let [status, tally] = docs else { continue };
        let Some((status, _)) = status.status() else { continue };
        let tally = tally.value.as_ref().and_then(|bytes| decode_listed(owner, &keys::job_spend(&id), bytes));
        found.push((id, status, tally));
    }
    Ok(found)
}
