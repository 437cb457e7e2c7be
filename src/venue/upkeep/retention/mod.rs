//! Deletes what is past its retention, a few at a time and in the background.
//!
//! Each step reads one page of jobs by time of admission, one of sessions, one of approvals, and makes one pass through
//! the parts of prompts; it remembers where it was, so that what stays, however old, never blocks what comes after it.
//! Everything about a job is deleted at once: its id is new again after that, and not before.
//!
//! An owner for whom a step deleted nothing has its next step within a day, the others with the next look.

mod batch;
mod jobs;
mod outcomes;
mod parts;
mod sessions;

pub use jobs::{DeletionOutcome, delete};

use crate::domain::approval::Approval;
use crate::domain::decode;
use crate::domain::ids::{EventId, JobId, Owner, SessionKey, VenueIdSubject};
use crate::domain::job::JobHead;
use crate::domain::limits::SPEND_DAYS;
use crate::domain::lineage::hour;
use crate::domain::retention::{ApprovalJobState, RetentionRules, is_approval_due, is_turn_due, job_horizon};
use crate::domain::session::SessionState;
use crate::domain::shard::Share;
use crate::process::pace::Pace;
use crate::store::{DocKey, StoreError, keys};
use crate::venue::agents;
use crate::venue::approvals;
use crate::venue::ledger::path_uses::PathUse;
use crate::venue::upkeep::owner_scan::PacedOwnerScan;
use crate::venue::{Venue, is_reserved, venue_owner};
use batch::{ForgetBatch, PAGE, decode_readable};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::Duration;

/// Pages of removed agents' reads that one step checks.
const READS: usize = 20;
/// Steps for one owner, until one has finished and finds nothing, before the next owner: some thousand jobs or
/// sessions.
const STEPS: u32 = 50;

/// Pause between two looks. What is deleted is weeks old, so that no work waits for it.
pub const PACE: Duration = Duration::from_mins(1);
/// Longest time until an owner with nothing to delete is checked again.
const LONGEST: Duration = Duration::from_hours(24);
/// Longest time of the first look at all owners; those that it doesn't reach wait for their turn.
const FIRST: Duration = Duration::from_mins(1);

/// Numbers of what was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionCounts {
    /// Number of deleted jobs.
    pub jobs: u64,
    /// Number of deleted turns.
    pub turns: u64,
    /// Whole sessions that were deleted.
    pub sessions: u64,
    /// Number of deleted approvals.
    pub approvals: u64,
    /// Deleted pages of removed agents' reads.
    pub reads: u64,
    /// Deleted parts of prompts.
    pub parts: u64,
    /// Deleted counts of turns that requests have caused, and accounts of days that are over.
    pub counts: u64,
    /// Deleted records of unknown outcomes.
    pub outcomes: u64,
}

impl RetentionCounts {
    /// Whether there was nothing to delete.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for RetentionCounts {
    fn add_assign(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.turns += other.turns;
        self.sessions += other.sessions;
        self.approvals += other.approvals;
        self.reads += other.reads;
        self.parts += other.parts;
        self.counts += other.counts;
        self.outcomes += other.outcomes;
    }
}

/// Where the next step of an owner begins; `None` = at the beginning.
#[derive(Debug, Clone, Default)]
struct OwnerPlaces {
    job: Option<DocKey>,
    session: Option<SessionKey>,
    approval: Option<DocKey>,
    reads: Option<DocKey>,
    parts: Option<parts::PartsPlace>,
    outcomes: Option<DocKey>,
}

impl OwnerPlaces {
    const fn are_at_start(&self) -> bool {
        let Self { job, session, approval, reads, parts, outcomes } = self;
        let is_first = job.is_none() && session.is_none() && approval.is_none();
        is_first && reads.is_none() && parts.is_none() && outcomes.is_none()
    }
}

/// Applies the rules of retention.
pub struct Janitor {
    rules: RetentionRules,
    /// Places of owners that are in the middle of a round, or for whom the last step deleted something.
    places: Mutex<HashMap<Owner, OwnerPlaces>>,
    stroll: PacedOwnerScan,
    pace: Pace,
}

impl Janitor {
    /// Makes a janitor with these rules.
    pub fn new(rules: RetentionRules) -> Self {
        let stroll = PacedOwnerScan::new(rules.slack(PACE, LONGEST));
        Self { rules, places: Mutex::default(), stroll, pace: Pace::default() }
    }

    /// Returns the janitor with looks that take at most this share of the time.
    #[must_use]
    pub fn with_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Makes steps for the due owners of a share, for each as long as there is more.
    pub async fn tidy_share(&mut self, venue: &Venue, share: &Share) -> Result<RetentionCounts, StoreError> {
        let all = venue_owner();
        let counts = if share.holds(&all) { tidy_days(venue, &all, &[keys::MODEL_CAPS]).await? } else { 0 };
        let mut tidied = RetentionCounts { counts, ..RetentionCounts::default() };
        let mut busy: Vec<Owner> = self.places.lock().keys().cloned().collect();
        busy.sort_unstable();
        for owner in busy {
            if share.holds(&owner) {
                tidied += self.tidy_owner(venue, &owner).await;
            } else {
                self.places.lock().remove(&owner);
            }
        }
        let began = venue.clock.steady();
        self.stroll.count_due(venue.now());
        while let Some(page) = self.stroll.next(&*venue.store).await? {
            for owner in page.iter().filter(|owner| share.holds(owner)) {
                if is_reserved(owner) {
                    tidied.counts += tidy_tenant_days(venue, owner).await;
                    continue;
                }
                let waits = self.stroll.is_first() && venue.clock.steady() >= began + FIRST;
                if !waits && !self.places.lock().contains_key(owner) {
                    tidied += self.tidy_owner(venue, owner).await;
                }
            }
        }
        Ok(tidied)
    }

    /// Makes steps for one owner until one has finished and found nothing, at most 50.
    async fn tidy_owner(&self, venue: &Venue, owner: &Owner) -> RetentionCounts {
        let mut tidied = RetentionCounts::default();
        for _ in 0..STEPS {
            let began = venue.clock.steady();
            let step = self.tidy_step(venue, owner).await;
            self.pace.rest(&venue.clock, began).await;
            match step {
                Ok(step) if step.is_zero() && self.is_through(owner) => break,
                Ok(step) => tidied += step,
                // One owner's damaged record must not delay the deletions of others.
                Err(error) => {
                    tracing::warn!(%owner, %error, "not tidied up; it comes again");
                    break;
                }
            }
        }
        if !tidied.is_zero() {
            self.places.lock().entry(owner.clone()).or_default();
        }
        tidied
    }

    /// Checks one page of each kind.
    pub async fn tidy_step(&self, venue: &Venue, owner: &Owner) -> Result<RetentionCounts, StoreError> {
        let taken = self.places.lock().remove(owner);
        let mut places = taken.unwrap_or_default();
        let tidied = self.tidy_pages(venue, owner, &mut places).await;
        // After an error each kind continues where it was.
        if tidied.is_err() || !places.are_at_start() {
            self.places.lock().insert(owner.clone(), places);
        }
        tidied
    }

    async fn tidy_pages(
        &self,
        venue: &Venue,
        owner: &Owner,
        places: &mut OwnerPlaces,
    ) -> Result<RetentionCounts, StoreError> {
        let mut tidied = RetentionCounts::default();
        (places.job, tidied.jobs) = self.tidy_jobs(venue, owner, places.job.clone()).await?;
        (places.approval, tidied.approvals) = self.tidy_approvals(venue, owner, places.approval.clone()).await?;
        tidied.counts =
            tidy_counts(venue, owner).await? + tidy_days(venue, owner, &[keys::OWNER_CAPS, keys::SESSION_DAYS]).await?;
        let page = sessions::tidy_page(venue, owner, self.rules, places.session.clone()).await?;
        (places.session, tidied.sessions, tidied.turns) = (page.next, page.sessions, page.turns);
        (places.outcomes, tidied.outcomes) =
            outcomes::tidy_page(venue, owner, self.rules, places.outcomes.clone()).await?;
        (places.reads, tidied.reads) = self.tidy_reads(venue, owner, places.reads.clone()).await?;
        (places.parts, tidied.parts) = parts::step(venue, owner, self.rules.turns, places.parts.clone()).await?;
        Ok(tidied)
    }

    /// Whether the next step of an owner begins at the beginning.
    pub fn is_through(&self, owner: &Owner) -> bool {
        self.places.lock().get(owner).is_none_or(OwnerPlaces::are_at_start)
    }

    async fn tidy_jobs(
        &self,
        venue: &Venue,
        owner: &Owner,
        after: Option<DocKey>,
    ) -> Result<(Option<DocKey>, u64), StoreError> {
        let now = venue.now();
        let Some(horizon) = job_horizon(self.rules, now) else { return Ok((None, 0)) };
        let page = venue.store.scan(owner, keys::JOB_LIST, after.as_deref(), false, PAGE).await?;
        let end = keys::job_list_until(horizon);
        let old: Vec<DocKey> = page.iter().map(|(key, _)| key.clone()).take_while(|key| *key < end).collect();
        let next = old.last().filter(|_| old.len() == PAGE).cloned();
        let places: Vec<_> = old.into_iter().filter_map(|key| Some((keys::job_of_entry(&key)?, key))).collect();
        let mut batch = ForgetBatch::new(venue, owner);
        let mut gone = 0;
        for (job, entry) in places {
            match self.add_if_expired(&mut batch, &job, entry).await {
                Ok(is_gone) => gone += u64::from(is_gone),
                // A damaged job stays for inspection, and doesn't keep others from being deleted.
                Err(error) if !error.is_transient() => tracing::debug!(%owner, %job, %error, "not tidied up"),
                Err(error) => return Err(error),
            }
            batch.flush_if_full().await?;
        }
        batch.flush().await?;
        Ok((next, gone))
    }

    /// Adds a job to the batch if it is past its retention; returns whether it is.
    async fn add_if_expired(
        &self,
        batch: &mut ForgetBatch<'_>,
        job: &JobId,
        entry: DocKey,
    ) -> Result<bool, StoreError> {
        let (venue, owner) = (batch.venue, batch.owner);
        // Jobs are read one by one: each may be as large as a submission.
        let record = [keys::job_head(job), keys::job_status(job), keys::job_result(job)];
        let docs = venue.store.read(owner, &record).await?;
        let [head, status, result] = docs.as_slice() else { return Ok(false) };
        if head.value.is_none() && status.value.is_none() {
            // The entry of the list has no job.
            batch.documents.push(entry);
            return Ok(false);
        }
        let Some(head) = decode_readable::<JobHead>(&keys::job_head(job), head) else { return Ok(false) };
        let Some(remains) = jobs::remains_if_expired(venue, owner, self.rules, &head, status, result).await? else {
            return Ok(false);
        };
        batch.documents.extend(remains.documents);
        batch.documents.push(entry);
        batch.events.extend(remains.events);
        Ok(true)
    }

    /// Deletes reads of removed agents when their last turns would have been deleted.
    async fn tidy_reads(
        &self,
        venue: &Venue,
        owner: &Owner,
        after: Option<DocKey>,
    ) -> Result<(Option<DocKey>, u64), StoreError> {
        if self.rules.turns.is_none() {
            return Ok((None, 0));
        }
        let mut pages = venue.store.docs(owner, keys::READS).start_after(after).page_size(READS);
        let mut batch = ForgetBatch::new(venue, owner);
        for (key, doc) in pages.next().await?.unwrap_or_default() {
            let Some(kept) = decode_readable::<Vec<PathUse>>(&key, &doc) else { continue };
            if kept.iter().filter_map(|path_use| path_use.removed).all(|at| is_turn_due(self.rules, venue.now(), at)) {
                batch.documents.push(key);
            }
        }
        let gone = batch.documents.len() as u64;
        batch.flush().await?;
        Ok((pages.last_place(), gone))
    }

    async fn tidy_approvals(
        &self,
        venue: &Venue,
        owner: &Owner,
        after: Option<DocKey>,
    ) -> Result<(Option<DocKey>, u64), StoreError> {
        let mut pages = venue.store.docs(owner, keys::APPROVALS).start_after(after).page_size(PAGE);
        let mut batch = ForgetBatch::new(venue, owner);
        let mut gone = 0;
        let mut open = Vec::new();
        for (key, doc) in pages.next().await?.unwrap_or_default() {
            let Some(approval) = decode_readable::<Approval>(&key, &doc) else { continue };
            if approval.answer.is_none() && venue.now() < approval.expires {
                open.push(approval.id.clone());
            }
            if !is_approval_due(self.rules, venue.now(), &approval, ApprovalJobState::Nobody) {
                continue;
            }
            let asking = approval_asker(venue, owner, &approval).await?;
            if is_approval_due(self.rules, venue.now(), &approval, asking) {
                batch.documents.extend([key, keys::open_approval(&approval.id)]);
                batch.events.push(EventId::of_venue(&venue.key, VenueIdSubject::Answer(&approval.id)));
                gone += 1;
            }
        }
        approvals::list_unlisted(venue, owner, &open).await?;
        batch.flush().await?;
        Ok((pages.last_place(), gone))
    }
}

/// Deletes counts of hours that are over, the oldest first.
async fn tidy_counts(venue: &Venue, owner: &Owner) -> Result<u64, StoreError> {
    let page = venue.store.scan(owner, keys::ORIGINS, None, false, PAGE).await?;
    let now = hour(venue.now());
    let mut batch = ForgetBatch::new(venue, owner);
    // The clocks of workers differ a little: the last hour may still be another worker's current one.
    let is_over = |key: &DocKey| keys::hour_of_origin(key).is_none_or(|of| of + 1 < now);
    batch.documents.extend(page.into_iter().map(|(key, _)| key).filter(is_over));
    let gone = batch.documents.len() as u64;
    batch.flush().await?;
    Ok(gone)
}

/// Deletes accounts of days that are past their retention, the oldest first.
async fn tidy_days(venue: &Venue, owner: &Owner, prefixes: &[&str]) -> Result<u64, StoreError> {
    let last = venue.spend.zone.date_before(venue.now(), SPEND_DAYS);
    let mut batch = ForgetBatch::new(venue, owner);
    for prefix in prefixes {
        let page = venue.store.scan(owner, prefix, None, false, PAGE).await?;
        let is_old = |key: &DocKey| key.strip_prefix(prefix).is_some_and(|rest| rest < last.as_str());
        batch.documents.extend(page.into_iter().map(|(key, _)| key).take_while(is_old));
    }
    let gone = batch.documents.len() as u64;
    batch.flush().await?;
    Ok(gone)
}

/// Deletes accounts of a tenant's days; those of the venue's own owner aren't among them. A tenant whose records can't be
/// read delays no other.
async fn tidy_tenant_days(venue: &Venue, owner: &Owner) -> u64 {
    if *owner == venue_owner() || venue.history.parts().contains(owner) {
        return 0;
    }
    tidy_days(venue, owner, &[keys::OWNER_CAPS]).await.unwrap_or_else(|error| {
        tracing::warn!(%owner, %error, "not tidied up; it comes again");
        0
    })
}

async fn approval_asker(venue: &Venue, owner: &Owner, approval: &Approval) -> Result<ApprovalJobState, StoreError> {
    if let Some(job) = &approval.job {
        let head = venue.store.doc(owner, &keys::job_head(job)).await?;
        return Ok(if head.value.is_some() { ApprovalJobState::Kept } else { ApprovalJobState::Gone });
    }
    let facts = agents::sessions::find(venue, owner, &approval.session).await?;
    let state = facts.and_then(|facts| decode::read_stored::<SessionState>(&facts.state?).ok());
    let awaits = state.and_then(|state| state.awaiting).is_some_and(|awaiting| awaiting.awaits(&approval.id));
    Ok(if awaits { ApprovalJobState::Session } else { ApprovalJobState::Nobody })
}
