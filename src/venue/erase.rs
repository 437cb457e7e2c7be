//! Erasing turns: what ran under a namespace that is erased keeps its place, its times and its costs,
//! and nothing of what was read, said or returned.

use crate::domain::approval::Approval;
use crate::domain::authority::Authority;
use crate::domain::authority::capability::covers;
use crate::domain::context::record::Parts;
use crate::domain::context::record::erase::{named, without};
use crate::domain::context::record::manifest::{Base, Manifest};
use crate::domain::context::record::period::Period;
use crate::domain::dead::DeadLetter;
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::domain::lines;
use crate::domain::resource::Ability;
use crate::domain::session::TurnRecord;
use crate::domain::timer::Timer;
use crate::store::{DocWrite, Store, StoreError, corrupt, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::approvals;
use crate::venue::ledger::fetch;
use crate::venue::timers;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

/// Records that one read takes.
const RECORDS: usize = 200;
/// Documents that one write changes.
const WRITES: usize = 500;
/// Stands in the stead of a job's input and output.
const ERASED: &str = lines::ERASED.text();

/// What is erased: a namespace, or everything below it too.
#[derive(Debug, Clone, Copy)]
pub struct Erasure<'a> {
    /// Without `r/`.
    pub namespace: &'a str,
    /// What lies below it too.
    pub recursive: bool,
}

/// How much was erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// Turns.
    pub turns: usize,
    /// Jobs, with their inputs and outputs.
    pub jobs: usize,
    /// Dead letters.
    pub dead: usize,
    /// Timers.
    pub timers: usize,
}

impl Erasure<'_> {
    fn is_of(&self, namespace: &str) -> bool {
        namespace == self.namespace || (self.recursive && covers(self.namespace, namespace))
    }

    /// What was done or sent under a grant of it: anything in it may come from there.
    fn concerns(&self, authority: &Authority) -> bool {
        let granted = [Ability::Read, Ability::Write].map(|ability| authority.namespaces(ability.as_str()));
        granted.iter().flatten().any(|namespace| self.is_of(namespace))
    }
}

/// Erases the turns of an owner that ran under a namespace, their prompts, and their jobs; deletes the dead
/// letters and the timers of requests under it.
pub async fn erase(venue: &Venue, owner: &Owner, erasure: Erasure<'_>) -> Result<Erased, StoreError> {
    let mut erased = Erased::default();
    for agent in agents::all(venue, owner).await? {
        let found = concerned(venue, owner, &agent, erasure).await?;
        prompts(venue, owner, &agent, &found.places, erasure).await?;
        for job in &found.jobs {
            for outbound in outbound(venue, owner, job).await? {
                erased.jobs += usize::from(self::job(venue, owner, &outbound).await?);
            }
            erased.jobs += usize::from(self::job(venue, owner, job).await?);
        }
        if !found.jobs.is_empty() {
            erase_asked(venue, owner, &found.jobs).await?;
        }
        // Last: by its record a turn is found again, should this not come to its end.
        erased.turns += found.records.len();
        if !found.records.is_empty() {
            write(venue, owner, found.records).await?;
            mark(venue, owner).await?;
        }
    }
    // Again, should an earlier one have ended between the two.
    mark(venue, owner).await?;
    erased.dead = dead_letters(venue, owner, erasure, &mut erased.jobs).await?;
    erased.timers = timers(venue, owner, erasure).await?;
    Ok(erased)
}

/// Workers that remember turns of before read them again.
async fn mark(venue: &Venue, owner: &Owner) -> Result<(), StoreError> {
    write(venue, owner, vec![DocWrite::mark(keys::ERASURES)]).await
}

async fn dead_letters(
    venue: &Venue,
    owner: &Owner,
    erasure: Erasure<'_>,
    jobs: &mut usize,
) -> Result<usize, StoreError> {
    let mut count = 0;
    let mut letters = venue.store.docs(owner, keys::DEAD_LETTERS);
    while let Some(page) = letters.records::<DeadLetter>().await? {
        for (key, letter) in page {
            if !erasure.concerns(&letter.event.envelope.bound) {
                continue;
            }
            *jobs += usize::from(job(venue, owner, &letter.job).await?);
            write(venue, owner, vec![DocWrite::delete(key)]).await?;
            count += 1;
        }
    }
    Ok(count)
}

async fn timers(venue: &Venue, owner: &Owner, erasure: Erasure<'_>) -> Result<usize, StoreError> {
    let mut concerned = Vec::new();
    let mut look = |timer: Timer| {
        if erasure.concerns(&timer.submission.envelope.bound) {
            concerned.push(timer.id);
        }
    };
    timers::each(venue, owner, &mut look).await?;
    for timer in &concerned {
        timers::erase(venue, owner, timer).await?;
    }
    Ok(concerned.len())
}

/// Turns of an agent: their places among its records, those that are not erased yet, and their jobs.
#[derive(Default)]
struct Found {
    places: HashSet<String>,
    records: Vec<DocWrite>,
    jobs: BTreeSet<JobId>,
}

async fn concerned(venue: &Venue, owner: &Owner, agent: &AgentId, erasure: Erasure<'_>) -> Result<Found, StoreError> {
    let mut found = Found::default();
    let prefix = keys::agent_turns(agent);
    let mut turns = venue.store.docs(owner, prefix.as_str());
    while let Some(page) = turns.records::<TurnRecord>().await? {
        for (key, record) in page {
            if !erasure.concerns(&record.authority) {
                continue;
            }
            found.places.insert(key[prefix.len()..].to_owned());
            found.jobs.extend(record.job.iter().chain(record.ended.iter().map(|(job, _)| job)).cloned());
            if !record.erased {
                found.records.push(DocWrite::json(key, &record.erase()));
            }
        }
    }
    Ok(found)
}

async fn write(venue: &Venue, owner: &Owner, writes: Vec<DocWrite>) -> Result<(), StoreError> {
    for writes in writes.chunks(WRITES) {
        venue.store.write(venue.now(), owner, writes).await?;
    }
    Ok(())
}

/// Erases what the records of these turns' prompts hold. `places` are `<session>/<turn>`.
async fn prompts(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentId,
    places: &HashSet<String>,
    erasure: Erasure<'_>,
) -> Result<(), StoreError> {
    let store: &dyn Store = &*venue.store;
    let is_source = |source: &str| source.strip_prefix("r/").is_some_and(|namespace| erasure.is_of(namespace));
    let prefix = keys::agent_ledgers(agent);
    let mut last: Option<(String, Base)> = None;
    let mut manifests = store.docs(owner, prefix.as_str());
    while let Some(page) = manifests.next().await? {
        for (key, doc) in &page {
            let place = &key[prefix.len()..];
            let Some((session, turn)) = place.split_once('/') else { continue };
            let Ok(turn) = turn.parse() else { continue };
            let bytes = doc.value.clone().unwrap_or_default();
            let stored = std::str::from_utf8(&bytes).map_err(|error| corrupt(key, &error))?;
            let before = last.take().filter(|(of, _)| of == session).map(|(_, base)| base);
            let Ok(base) = Base::read(before.as_ref(), turn, stored) else { continue };
            if places.contains(place) {
                strip(venue, owner, (key, base.period), stored, &base.manifest.contents_of(is_source)).await?;
            }
            last = Some((session.to_owned(), base));
        }
    }
    Ok(())
}

async fn strip(
    venue: &Venue,
    owner: &Owner,
    (key, period): (&str, Period),
    stored: &str,
    lines: &BTreeSet<&str>,
) -> Result<(), StoreError> {
    if lines.is_empty() {
        return Ok(());
    }
    let (mut gone, lists) = named(lines);
    let mut parts = Parts::new();
    fetch(&*venue.store, owner, period, lists.iter().cloned(), &mut parts).await?;
    gone.extend(Manifest::listed(&parts, lists));
    let mut writes: Vec<_> = gone.iter().map(|name| DocWrite::delete(keys::part(period, name))).collect();
    // Last: by its lines the parts are found again.
    writes.push(DocWrite::put(key, without(stored, lines)));
    write(venue, owner, writes).await
}

/// Deletes what people were asked in the service of these jobs, once it was answered: it has the
/// arguments of calls. What still waits belongs to a turn that has not ended.
async fn erase_asked(venue: &Venue, owner: &Owner, jobs: &BTreeSet<JobId>) -> Result<(), StoreError> {
    let mut deletes = Vec::new();
    let mut look = |asked: Approval| {
        if asked.answer.is_some() && asked.job.as_ref().is_some_and(|job| jobs.contains(job)) {
            deletes.push(DocWrite::delete(keys::approval(&asked.id)));
        }
    };
    approvals::each(venue, owner, &mut look).await?;
    write(venue, owner, deletes).await
}

/// Jobs of external workers that were started for a job: no turns of their own say what they had.
async fn outbound(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Vec<JobId>, StoreError> {
    let prefix = keys::job_children(job);
    let children = venue.store.scan(owner, &prefix, None, false, RECORDS).await?;
    let ids: Vec<_> = children.iter().filter_map(|(key, _)| JobId::new(key.strip_prefix(&prefix)?).ok()).collect();
    let watches: Vec<_> = ids.iter().map(keys::outbound).collect();
    let docs = venue.store.read(owner, &watches).await?;
    Ok(ids.into_iter().zip(docs).filter(|(_, doc)| doc.value.is_some()).map(|(id, _)| id).collect())
}

/// Erases a job's input and output. Whether there was anything to erase.
async fn job(venue: &Venue, owner: &Owner, job: &JobId) -> Result<bool, StoreError> {
    let places = [(keys::job_head(job), "input"), (keys::job_result(job), "output"), (keys::job_result(job), "error")];
    let mut changed = false;
    for (key, field) in places {
        let Some(mut value) = venue.store.get::<Value>(owner, &key).await? else { continue };
        let Some(place) = value.get_mut(field).filter(|place| !place.is_null() && *place != ERASED) else { continue };
        *place = ERASED.into();
        write(venue, owner, vec![DocWrite::json(key, &value)]).await?;
        changed = true;
    }
    Ok(changed)
}
