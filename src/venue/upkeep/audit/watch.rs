//! The audit that workers make by themselves. A loss is found within a minute and repaired; the first task of an owner
//! that had none for a while within ten, unless there are very many.
//!
//! Ended jobs stay ended. So after a first look at all jobs only new and open ones are checked; for owners that have
//! neither, only whether their usage has changed; and of sessions only those with an open job that have not changed for
//! a while. What seems to be lost is confirmed as `trellis audit --repair` does it.
//!
//! ```text
//! all owners ──once in some minutes──▶ usage has changed? ──yes─────▶ open ──every look──▶ lost?
//!                                               ▲                       │
//!                                               └──neither open nor new─┘
//! ```

use super::records::{PAGE, read_jobs};
use super::repair::{repair_lost, repair_policy};
use super::{AuditError, is_result_moving, list_in_transit, watched_jobs};
use crate::domain::audit::JobFacts;
use crate::domain::decode;
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::quota::QuotaUsage;
use crate::domain::session::{PendingJob, SessionState};
use crate::domain::shard::Share;
use crate::domain::time::Millis;
use crate::process::pace::Pace;
use crate::store::{Doc, EventKind, SessionFacts, StoreError, keys};
use crate::venue::agents::sessions;
use crate::venue::approvals::{self, OpenApprovals};
use crate::venue::upkeep::owner_scan::PacedOwnerScan;
use crate::venue::{Venue, is_reserved};
use crate::view::audit::RepairView;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Age below which a record may be on its way.
const AGE: Duration = Duration::from_secs(20);

/// Time after which all jobs are checked again: a job that waited in the queue is listed at the time of its sending.
const WHOLE: Duration = Duration::from_mins(10);

/// New jobs are searched from so long before the last look.
const SLACK: Duration = Duration::from_mins(5);

/// Time after which the usage of owners without open and new jobs is read again: of a hundred thousand owners most do
/// nothing.
const QUIET: Duration = Duration::from_mins(8);

/// Time for which a job that was on its way isn't looked up again: a long queue is read message by message.
const MOVING: Duration = Duration::from_mins(2);

/// Sessions of an owner that one look reads.
const SESSIONS: usize = 500;

/// Sessions of an owner that one look wakes because nothing else does.
const WOKEN: usize = 10;

/// State of an owner with open or new jobs between two looks.
#[derive(Default)]
struct OwnerWatch {
    /// Jobs that had not ended.
    jobs: BTreeMap<JobId, JobFacts>,
    /// When all jobs were checked.
    whole: Option<Millis>,
    /// When the owner was checked last.
    looked: Option<Millis>,
    /// Usage before the next look, if it is known.
    keeps: Option<QuotaUsage>,
    /// Jobs that were on their way, and when.
    moving: HashMap<JobId, Millis>,
    /// The session after which the next look continues.
    after: Option<SessionKey>,
    /// Its open approvals at the last look: a session that waits for one has an open job.
    approvals: OpenApprovals,
}

/// The audit by one process.
pub struct AuditWatch {
    open: HashMap<Owner, OwnerWatch>,
    /// Usage of owners without open and new jobs.
    quiet: HashMap<Owner, QuotaUsage>,
    stroll: PacedOwnerScan,
    /// Share whose owners were checked last.
    share: Option<Share>,
    /// The owner at which the last look failed.
    behind: Option<Owner>,
    pace: Pace,
}

impl Default for AuditWatch {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            quiet: HashMap::new(),
            stroll: PacedOwnerScan::new(QUIET),
            share: None,
            behind: None,
            pace: Pace::default(),
        }
    }
}

impl AuditWatch {
    /// Makes an audit with looks that take at most this share of the time.
    pub fn with_pace(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Checks the owners of a share that may have lost something, and repairs it. Restored tasks are added to
    /// `repaired`, also those before an error. The next look continues after it.
    pub async fn check_share(
        &mut self,
        venue: &Venue,
        share: &Share,
        repaired: &mut Vec<RepairView>,
    ) -> Result<(), AuditError> {
        if self.share.as_ref() != Some(share) {
            self.open.retain(|owner, _| share.holds(owner));
            self.quiet.retain(|owner, _| share.holds(owner));
            self.share = Some(share.clone());
            // The share may have been that of a worker that is gone.
            self.stroll.restart();
        }
        // Known owners come first, because new ones may be many.
        self.check_owners(venue, |open| open.looked.is_some(), repaired).await?;
        self.scan_owners(venue, share).await?;
        self.check_owners(venue, |open| open.looked.is_none(), repaired).await?;
        self.record_approvals(venue);
        Ok(())
    }

    /// Sets the metrics of open approvals to the sums over the owners with open jobs.
    fn record_approvals(&self, venue: &Venue) {
        let count: usize = self.open.values().map(|open| open.approvals.count).sum();
        let oldest = self.open.values().filter_map(|open| open.approvals.oldest).min();
        let age = oldest.map_or(Duration::ZERO, |oldest| venue.now().elapsed_since(oldest));
        venue.metrics.progress.approvals_open.set(i64::try_from(count).unwrap_or(i64::MAX));
        venue.metrics.progress.approvals_oldest.set(age.as_secs_f64());
    }

    /// Checks some of the owners with open or new jobs, in turn.
    async fn check_owners(
        &mut self,
        venue: &Venue,
        is_meant: impl Fn(&OwnerWatch) -> bool,
        repaired: &mut Vec<RepairView>,
    ) -> Result<(), AuditError> {
        let meant = self.open.iter().filter(|(_, open)| is_meant(open)).map(|(owner, _)| owner.clone());
        let behind = self.behind.take();
        let mut owners: Vec<Owner> = meant.collect();
        owners.sort_unstable_by_key(|owner| (Some(owner) <= behind.as_ref(), owner.clone()));
        for owner in owners {
            let began = venue.clock.steady();
            let lost = self.count_lost(venue, &owner).await;
            self.pace.rest(&venue.clock, began).await;
            let lost = match lost {
                Ok(0) => continue,
                Ok(_) => repair_lost(venue, &owner, AGE, repaired).await,
                Err(error) => Err(error),
            };
            match lost {
                Ok(()) => {}
                // One owner's damaged record must not delay the checks of others.
                Err(AuditError::Store(error)) if !error.is_transient() => {
                    tracing::warn!(%owner, %error, "what it may have lost is not looked for; it comes again");
                }
                Err(error) => {
                    self.behind = Some(owner);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Continues the scan of owners, for those that are new or whose usage has changed.
    async fn scan_owners(&mut self, venue: &Venue, share: &Share) -> Result<(), StoreError> {
        self.stroll.count_due(venue.now());
        while let Some(page) = self.stroll.next(&*venue.store).await? {
            let began = venue.clock.steady();
            let is_asked = |owner: &Owner| share.holds(owner) && !is_reserved(owner) && !self.open.contains_key(owner);
            let asked: Vec<Owner> = page.into_iter().filter(is_asked).collect();
            let (kept, failed) = match venue.store.usages(&asked).await {
                Ok(kept) => (kept.into_iter().map(Some).collect(), None),
                // The check of each owner shows which one has the error.
                Err(error) => (vec![None; asked.len()], Some(error)),
            };
            for (owner, keeps) in asked.into_iter().zip(kept) {
                let is_quiet = keeps.is_some_and(|keeps| keeps.jobs == 0 || self.quiet.get(&owner) == Some(&keeps));
                if !is_quiet {
                    self.quiet.remove(&owner);
                    self.open.insert(owner, OwnerWatch { keeps, ..OwnerWatch::default() });
                }
            }
            // A store that is away would also fail the next page.
            if let Some(error) = failed.filter(StoreError::is_transient) {
                return Err(error);
            }
            self.pace.rest(&venue.clock, began).await;
        }
        Ok(())
    }

    /// Returns how many tasks and results of an owner seem to be lost.
    async fn count_lost(&mut self, venue: &Venue, owner: &Owner) -> Result<usize, AuditError> {
        let now = venue.now();
        if let Some((found, did)) = repair_policy(venue, owner).await? {
            tracing::warn!(%owner, "{found}; {did}");
        }
        let approvals = approvals::count_open(venue, owner).await?;
        let open = self.open.entry(owner.clone()).or_default();
        open.approvals = approvals;
        let keeps = open.keeps.take();
        let any_new = open.refresh(venue, owner, now).await?;
        if open.jobs.is_empty() && !any_new {
            // A job that arrives after this look makes the usage differ from the one that was read before.
            match keeps {
                Some(keeps) => {
                    self.open.remove(owner);
                    self.quiet.insert(owner.clone(), keeps);
                }
                None => open.keeps = venue.store.usages(std::slice::from_ref(owner)).await?.pop(),
            }
            return Ok(0);
        }
        let (mut suspects, awaited) = open.find_suspects(venue, owner, now).await?;
        let results = ended_jobs(venue, owner, &awaited, now).await?;
        if suspects.is_empty() && results.is_empty() {
            return Ok(0);
        }
        let moving = list_in_transit(venue, owner, &mut BTreeSet::new()).await?;
        let results = results.iter().filter(|job| !is_result_moving(venue, &moving, job)).count();
        let watched = watched_jobs(venue, owner).await?;
        suspects.retain(|job| {
            let is_moving = moving.contains(&job.event) || watched.contains(&job.job);
            if is_moving {
                open.moving.insert(job.job.clone(), now);
            }
            !is_moving
        });
        Ok(suspects.len() + results)
    }
}

/// Returns those of the jobs that have ended for a while, or are gone.
async fn ended_jobs(
    venue: &Venue,
    owner: &Owner,
    jobs: &BTreeSet<JobId>,
    now: Millis,
) -> Result<Vec<JobId>, StoreError> {
    let jobs: Vec<&JobId> = jobs.iter().collect();
    let mut ended = Vec::new();
    for page in jobs.chunks(PAGE) {
        let statuses: Vec<_> = page.iter().map(|job| keys::job_status(job)).collect();
        for (job, doc) in page.iter().zip(venue.store.read(owner, &statuses).await?) {
            let is_over = doc.status().is_none_or(|(status, at)| status.is_terminal() && at.plus(AGE) <= now);
            ended.extend(is_over.then(|| (*job).clone()));
        }
    }
    Ok(ended)
}

/// Whether something was done less than `time` ago; a time in the future doesn't count.
fn is_recent(at: Option<Millis>, time: Duration, now: Millis) -> bool {
    at.is_some_and(|at| at <= now && now < at.plus(time))
}

/// Whether a session has mail, waits for nothing, is not held, and is not due at any time.
fn is_stranded(facts: &SessionFacts, state: Option<&SessionState>, now: Millis) -> bool {
    let waits = state.is_some_and(|state| !state.pending.is_empty() || state.awaiting.is_some());
    let is_held = facts.lease_until.is_some_and(|until| until.plus(AGE) > now);
    facts.due.is_none() && !waits && !is_held && !facts.mailbox.is_empty()
}

impl OwnerWatch {
    /// Updates the open jobs, and returns whether there are new ones.
    async fn refresh(&mut self, venue: &Venue, owner: &Owner, now: Millis) -> Result<bool, AuditError> {
        let whole = !is_recent(self.whole, WHOLE, now);
        let last = self.looked.unwrap_or(now).min(now);
        let new = keys::job_list_until(last.minus(SLACK));
        let mut jobs: BTreeSet<JobId> = self.jobs.keys().cloned().collect();
        let mut entries = venue.store.entries(owner, keys::JOB_LIST).start_after((!whole).then(|| new.clone()));
        let mut any_new = false;
        while let Some(page) = entries.keys().await? {
            any_new |= page.last().is_some_and(|last| *last > new);
            jobs.extend(page.iter().filter_map(|key| keys::listed_job(key)));
        }
        let jobs: Vec<JobId> = jobs.into_iter().collect();
        let mut open = BTreeMap::new();
        for page in jobs.chunks(PAGE) {
            let statuses: Vec<_> = page.iter().map(keys::job_status).collect();
            let docs = venue.store.read(owner, &statuses).await?;
            let statuses = docs.iter().map(Doc::status);
            let is_open =
                |status: &Option<(JobStatus, Millis)>| status.is_some_and(|(status, _)| !status.is_terminal());
            let left: Vec<_> = page.iter().zip(statuses).filter(|(_, status)| is_open(status)).collect();
            let unknown: Vec<_> =
                left.iter().map(|(job, _)| (*job).clone()).filter(|job| !self.jobs.contains_key(job)).collect();
            for facts in read_jobs(venue, owner, &unknown).await?.jobs {
                self.jobs.insert(facts.job.clone(), facts);
            }
            for (job, status) in left {
                if let (Some(known), Some((status, updated))) = (self.jobs.get(job), status) {
                    open.insert(job.clone(), JobFacts { status, updated, ..known.clone() });
                }
            }
        }
        self.moving.retain(|job, at| open.contains_key(job) && at.plus(MOVING) > now);
        self.jobs = open;
        // Set only at the end, so that a failed look is made again.
        self.looked = Some(now);
        if whole {
            self.whole = Some(now);
        }
        Ok(any_new)
    }

    /// Returns open jobs that are not in the mailbox of their session, and jobs whose results their sessions have
    /// awaited for a while.
    async fn find_suspects(
        &mut self,
        venue: &Venue,
        owner: &Owner,
        now: Millis,
    ) -> Result<(Vec<JobFacts>, BTreeSet<JobId>), AuditError> {
        let old = self.jobs.values().filter(|job| job.updated.plus(AGE) <= now && !self.moving.contains_key(&job.job));
        let mut sessions: BTreeMap<SessionKey, Vec<&JobFacts>> = BTreeMap::new();
        for job in old {
            sessions.entry(job.session.clone()).or_default().push(job);
        }
        let after = self.after.take();
        let (done, mut next): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|(key, _)| after.as_ref().is_some_and(|after| key <= after));
        next.extend(done);
        let last = next.get(SESSIONS - 1).map(|(key, _)| key.clone()).filter(|_| next.len() > SESSIONS);
        let (mut suspects, mut awaited, mut forgotten) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (key, jobs) in next.into_iter().take(SESSIONS) {
            let facts = sessions::find(venue, owner, &key).await?;
            if facts.as_ref().is_some_and(|facts| facts.unreadable) {
                continue;
            }
            let state =
                facts.as_ref().and_then(|facts| decode::read_stored::<SessionState>(facts.state.as_ref()?).ok());
            if facts.as_ref().is_some_and(|facts| is_stranded(facts, state.as_ref(), now)) {
                forgotten.push(key.clone());
            }
            let mailbox = facts.map(|facts| facts.mailbox).unwrap_or_default();
            let came = |job: &JobId| {
                mailbox.iter().any(|entry| entry.kind == EventKind::Result && entry.job.as_ref() == Some(job))
            };
            let pending = state.into_iter().flat_map(|state| state.pending);
            let is_due = |(job, pending): &(JobId, PendingJob)| pending.started.plus(AGE) <= now && !came(job);
            awaited.extend(pending.filter(is_due).map(|(job, _)| job));
            let tasks: BTreeSet<_> = mailbox
                .iter()
                .filter(|entry| entry.kind == EventKind::Task)
                .filter_map(|entry| entry.job.as_ref())
                .collect();
            suspects.extend(jobs.into_iter().filter(|job| !tasks.contains(&job.job)).cloned());
        }
        self.after = last;
        // Sessions that wait for a slot are among them; waking them does no harm.
        let first = usize::try_from(now.0 / 1_000).unwrap_or_default() % forgotten.len().max(1);
        for key in forgotten.iter().cycle().skip(first).take(forgotten.len().min(WOKEN)) {
            venue.wake(owner, key).await;
        }
        Ok((suspects, awaited))
    }
}
