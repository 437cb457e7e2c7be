//! What a revocation stops: everything of an owner that descends from what was revoked.

use crate::domain::authority::policy::Revocation;
use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::ids::{AgentId, Owner};
use crate::domain::invocation::NO_AGENT;
use crate::domain::job::{Job, JobStatus};
use crate::domain::limits::{REVOKED_LISTED, REVOKED_LOOKS};
use crate::domain::time::Millis;
use crate::domain::timer::{Timer, TimerId};
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::jobs::list::{JobListFilter, find};
use crate::venue::timers;
use crate::view::policy::{ReachedJobView, ReachedTimerView, RevocationReachView};

/// What descends from a holder or a grant.
#[derive(Debug, Default)]
pub struct RevocationReach {
    agents: Vec<AgentId>,
    timers: Vec<ReachedTimer>,
    jobs: Vec<Job>,
    /// Operations that a worker runs, or that an external worker may have: their effects may have happened.
    running: Vec<Job>,
    /// Whether there is more than is listed: older jobs that were not read, or what the reader may not see.
    more: bool,
}

/// A timer that would have fired.
#[derive(Debug)]
struct ReachedTimer {
    timer: TimerId,
    agent: AgentId,
    next: Option<Millis>,
}

/// Returns the agents that were made, the timers that were set and the jobs that are open under what a revocation
/// names. Returns nothing if it names only a path, which is revoked from everybody.
pub async fn find_reach(venue: &Venue, owner: &Owner, revocation: &Revocation) -> Result<RevocationReach, StoreError> {
    let mut reached = RevocationReach::default();
    if !revocation.has_subject() {
        return Ok(reached);
    }
    let is_agent = |id: &AgentId| revocation.holder == Some(format!("agent:{id}")) && revocation.grant.is_none();
    for id in agents::all_ids(venue, owner).await? {
        let Some((record, _)) = agents::get(venue, owner, &id).await? else { continue };
        if revocation.applies_to(&record.made_under) || is_agent(&id) {
            reached.agents.push(id);
        }
    }
    let known = reached.agents.clone();
    let under =
        |timer: &Timer| revocation.applies_to(&timer.submission.envelope.trail()) || known.contains(&timer.agent);
    let mut look = |timer: Timer| {
        if timer.is_active() && under(&timer) {
            reached.timers.push(ReachedTimer { timer: timer.id, agent: timer.agent, next: timer.next });
        }
    };
    timers::for_each(venue, owner, &mut look).await?;
    let open = JobStatus::ALL.into_iter().filter(|status| !status.is_terminal());
    let open = JobListFilter { statuses: open.collect(), ..JobListFilter::default() };
    let mut after = None;
    for _ in 0..REVOKED_LOOKS {
        let page = find(venue, owner, &open, after.as_ref(), REVOKED_LISTED).await?;
        let served = |job: &Job| job.head.op.is_none() && known.contains(&job.head.agent);
        let is_it = |job: &Job| revocation.grant.as_deref() == Some(job.head.id.as_str());
        let granted = |job: &Job| revocation.holder.is_none() && is_it(job);
        let under = |job: &Job| revocation.applies_to(&job.head.under) || served(job) || granted(job);
        let (running, jobs): (Vec<_>, Vec<_>) = page.jobs.into_iter().filter(under).partition(is_running);
        reached.jobs.extend(jobs);
        reached.running.extend(running);
        after = page.next;
        if after.is_none() || reached.jobs.len() > REVOKED_LISTED {
            break;
        }
    }
    reached.more = after.is_some();
    Ok(reached)
}

/// Whether nothing can interrupt a job: a worker has begun it, or it was published for an external worker. A job with a
/// reason to wait is not published yet, and never will be.
fn is_running(job: &Job) -> bool {
    job.head.op.is_some()
        && if job.head.agent.as_str() == NO_AGENT {
            job.status == JobStatus::Started
        } else {
            job.status != JobStatus::Pending || job.waiting.is_none()
        }
}

impl RevocationReach {
    /// Returns how many of each are listed.
    fn counts(&self) -> [usize; 4] {
        [self.agents.len(), self.timers.len(), self.jobs.len(), self.running.len()]
    }

    /// Returns the reach without what this authority may not read.
    #[must_use]
    pub fn visible_to(mut self, authority: &Authority) -> Self {
        let reads = |resource: ResourcePath| authority.permits("crud/read", resource).is_ok();
        let all = self.counts();
        self.agents.retain(|id| reads(ResourcePath::agent(id)));
        self.timers.retain(|timer| reads(ResourcePath::agent(&timer.agent)));
        for jobs in [&mut self.jobs, &mut self.running] {
            jobs.retain(|job| reads(ResourcePath::job(&job.head.id)));
        }
        self.more |= self.counts() != all;
        self
    }

    /// Returns the reach for callers, at most [`REVOKED_LISTED`] of each.
    pub fn view(&self) -> RevocationReachView {
        let full = self.counts().into_iter().any(|n| n > REVOKED_LISTED);
        let timer = |timer: &ReachedTimer| ReachedTimerView {
            timer: timer.timer.clone(),
            agent_id: timer.agent.clone(),
            next: timer.next.map(Millis::rfc3339),
        };
        RevocationReachView {
            agents: self.agents.iter().take(REVOKED_LISTED).cloned().collect(),
            timers: self.timers.iter().take(REVOKED_LISTED).map(timer).collect(),
            jobs: self.jobs.iter().take(REVOKED_LISTED).map(job_view).collect(),
            running: self.running.iter().take(REVOKED_LISTED).map(job_view).collect(),
            more: self.more || full,
        }
    }
}

fn job_view(job: &Job) -> ReachedJobView {
    let head = &job.head;
    ReachedJobView {
        job: head.id.clone(),
        status: job.status,
        op: head.op.as_ref().map(|op| op.as_str().to_owned()),
        agent_id: head.op.is_none().then(|| head.agent.clone()),
        parent: head.parent.as_ref().and_then(|parent| parent.job.clone()),
    }
}
