//! The audit that workers do by themselves: what is lost is found within a minute, and put back; the first task of an
//! owner that had none for a while within ten.
//!
//! Ended jobs stay ended: after a first look at all jobs only new ones and those that are open are looked at, of owners
//! that have neither less often, and of sessions only those with an open job that nobody has touched for a while. What
//! seems to be lost is made sure of as `trellis audit --repair` does it.

use super::repair::{Repair, lost_tasks};
use super::{AuditError, PAGE, in_transit, read_jobs, watched};
use crate::domain::audit::JobFacts;
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::process::pace::Pace;
use crate::store::{Doc, EventKind, keys};
use crate::venue::agents::sessions;
use crate::venue::{Venue, is_reserved};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// What was touched later may be on its way.
const AGE: Duration = Duration::from_secs(20);

/// All jobs are looked at again after so long: one that waited in the queue is listed where it was sent.
const WHOLE: Duration = Duration::from_mins(10);

/// New jobs are looked for from so long before the last look.
const SLACK: Duration = Duration::from_mins(5);

/// Owners without open and new jobs are looked at again after so long: of a hundred thousand owners most do nothing, and
/// a look at each costs a call.
const QUIET: Duration = Duration::from_mins(10);

/// What is on its way isn't asked for again so soon: a long queue is read message by message.
const MOVING: Duration = Duration::from_mins(2);

/// Sessions of an owner that one look reads.
const SESSIONS: usize = 500;

/// What is remembered of an owner between two looks.
#[derive(Default)]
struct Seen {
    /// Jobs that had not ended.
    open: BTreeMap<JobId, JobFacts>,
    /// When all were looked at.
    whole: Option<Millis>,
    /// When it was looked at last.
    looked: Option<Millis>,
    /// There were no open and no new jobs then.
    is_quiet: bool,
    /// Jobs that were on their way, and when.
    moving: HashMap<JobId, Millis>,
    /// The session behind which the next look goes on.
    after: Option<SessionKey>,
}

/// The audit of one process.
#[derive(Default)]
pub struct AuditWatch {
    seen: HashMap<Owner, Seen>,
    pace: Pace,
}

/// What a look has found.
#[derive(Debug, Default)]
pub struct Looked {
    /// Tasks that were lost.
    pub unaccounted: u64,
    /// Those that were put back.
    pub repaired: Vec<Repair>,
}

impl AuditWatch {
    /// One whose looks take no more than that share of the time.
    pub fn at(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Looks at every owner, and puts back what is lost.
    pub async fn look(&mut self, venue: &Venue) -> Result<Looked, AuditError> {
        let mut looked = Looked::default();
        let mut owners = venue.store.all_owners();
        while let Some(page) = owners.next().await? {
            let began = venue.clock.steady();
            for owner in page.iter().filter(|owner| !is_reserved(owner)) {
                let lost = self.lost(venue, owner).await?;
                if lost == 0 {
                    continue;
                }
                let repaired = lost_tasks(venue, owner, AGE).await?;
                looked.unaccounted += repaired.len() as u64;
                looked.repaired.extend(repaired);
            }
            self.pace.rest(&venue.clock, began).await;
        }
        Ok(looked)
    }

    /// Tasks of an owner that seem to be lost.
    async fn lost(&mut self, venue: &Venue, owner: &Owner) -> Result<usize, AuditError> {
        let now = venue.now();
        let seen = self.seen.entry(owner.clone()).or_default();
        if seen.is_quiet && is_within(seen.looked, QUIET, now) {
            return Ok(0);
        }
        seen.refresh(venue, owner, now).await?;
        let mut suspects = seen.suspects(venue, owner, now).await?;
        if suspects.is_empty() {
            return Ok(0);
        }
        let moving = in_transit(venue, owner).await?;
        let watched = watched(venue, owner).await?;
        suspects.retain(|job| {
            let is_moving = moving.contains(&job.event) || watched.contains(&job.job);
            if is_moving {
                seen.moving.insert(job.job.clone(), now);
            }
            !is_moving
        });
        Ok(suspects.len())
    }
}

/// Whether something was done less than `time` ago; a time that is still to come says nothing.
fn is_within(at: Option<Millis>, time: Duration, now: Millis) -> bool {
    at.is_some_and(|at| at <= now && now < at.plus(time))
}

impl Seen {
    /// Brings the open jobs up to date.
    async fn refresh(&mut self, venue: &Venue, owner: &Owner, now: Millis) -> Result<(), AuditError> {
        let whole = !is_within(self.whole, WHOLE, now);
        let slack = u64::try_from(SLACK.as_millis()).unwrap_or(u64::MAX);
        let last = self.looked.unwrap_or(now).min(now);
        let new = keys::job_list_until(Millis(last.0.saturating_sub(slack)));
        let mut jobs: BTreeSet<JobId> = self.open.keys().cloned().collect();
        let mut entries = venue.store.entries(owner, keys::JOB_LIST).after((!whole).then(|| new.clone()));
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
                left.iter().map(|(job, _)| (*job).clone()).filter(|job| !self.open.contains_key(job)).collect();
            for facts in read_jobs(venue, owner, &unknown).await? {
                self.open.insert(facts.job.clone(), facts);
            }
            for (job, status) in left {
                if let (Some(known), Some((status, updated))) = (self.open.get(job), status) {
                    open.insert(job.clone(), JobFacts { status, updated, ..known.clone() });
                }
            }
        }
        self.moving.retain(|job, at| open.contains_key(job) && at.plus(MOVING) > now);
        self.open = open;
        self.is_quiet = self.open.is_empty() && !any_new;
        // Here, and not before: what failed is looked at again.
        self.looked = Some(now);
        if whole {
            self.whole = Some(now);
        }
        Ok(())
    }

    /// Open jobs that are not in the mailbox of their session.
    async fn suspects(&mut self, venue: &Venue, owner: &Owner, now: Millis) -> Result<Vec<JobFacts>, AuditError> {
        let old = self.open.values().filter(|job| job.updated.plus(AGE) <= now && !self.moving.contains_key(&job.job));
        let mut sessions: BTreeMap<SessionKey, Vec<&JobFacts>> = BTreeMap::new();
        for job in old {
            sessions.entry(job.session.clone()).or_default().push(job);
        }
        let after = self.after.take();
        let (done, mut next): (Vec<_>, Vec<_>) =
            sessions.into_iter().partition(|(key, _)| after.as_ref().is_some_and(|after| key <= after));
        next.extend(done);
        let last = next.get(SESSIONS - 1).map(|(key, _)| key.clone()).filter(|_| next.len() > SESSIONS);
        let mut suspects = Vec::new();
        for (key, jobs) in next.into_iter().take(SESSIONS) {
            let facts = sessions::find(venue, owner, &key).await?;
            let mailbox = facts.map(|facts| facts.mailbox).unwrap_or_default();
            let tasks: BTreeSet<_> = mailbox
                .iter()
                .filter(|entry| entry.kind == EventKind::Task)
                .filter_map(|entry| entry.job.as_ref())
                .collect();
            suspects.extend(jobs.into_iter().filter(|job| !tasks.contains(&job.job)).cloned());
        }
        self.after = last;
        Ok(suspects)
    }
}
