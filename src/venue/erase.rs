//! Erasure of turns: a turn that ran under an erased namespace keeps its place, its times and its costs, and nothing of
//! what was read, said or returned.

use crate::domain::approval::Approval;
use crate::domain::authority::Authority;
use crate::domain::authority::capability::covers;
use crate::domain::context::record::PartContents;
use crate::domain::context::record::erase::{named_parts, replace_lines};
use crate::domain::context::record::manifest::{BaseManifest, Manifest};
use crate::domain::context::record::period::Period;
use crate::domain::dead::DeadLetter;
use crate::domain::ids::{AgentId, JobId, Owner};
use crate::domain::invocation;
use crate::domain::job::JobHead;
use crate::domain::lines;
use crate::domain::pipeline_run::PipelineState;
use crate::domain::resource::Ability;
use crate::domain::session::TurnRecord;
use crate::domain::timer::Timer;
use crate::store::{DocWrite, Store, StoreError, corrupt, keys};
use crate::venue::Venue;
use crate::venue::agents::lifecycle::LifecycleError;
use crate::venue::agents::{self, amend, sessions};
use crate::venue::approvals;
use crate::venue::ledger::fetch_parts;
use crate::venue::timers;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

/// Documents that one write changes.
const WRITES: usize = 500;
/// Sessions whose states are in memory at once.
const STATES: usize = 20;
/// Reason of a run whose values were erased.
const RUN_ERASED: &str = "a namespace that this task may read or write was erased while it ran; submit it again";
/// Text that replaces a job's input and output.
const ERASED: &str = lines::ERASED.text();

/// The namespace to erase, with or without everything below it.
#[derive(Debug, Clone, Copy)]
pub struct Erasure<'a> {
    /// Path of the namespace, without `r/`.
    pub namespace: &'a str,
    /// Whether everything below the namespace is erased, too.
    pub recursive: bool,
}

/// Numbers of what was erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErasureCounts {
    /// Number of erased turns.
    pub turns: usize,
    /// Jobs whose inputs and outputs were erased.
    pub jobs: usize,
    /// Deleted dead letters.
    pub dead: usize,
    /// Number of deleted timers.
    pub timers: usize,
}

impl Erasure<'_> {
    fn covers_namespace(&self, namespace: &str) -> bool {
        namespace == self.namespace || (self.recursive && covers(self.namespace, namespace))
    }

    /// Whether a turn or a request had a grant on the namespace: anything in it may come from there.
    fn concerns(&self, authority: &Authority) -> bool {
        let granted = [Ability::Read, Ability::Write].map(|ability| authority.namespaces(ability.as_str()));
        granted.iter().flatten().any(|namespace| self.covers_namespace(namespace))
    }
}

/// Erases the turns of an owner that ran under a namespace, their prompts, and their jobs. Deletes the dead letters and
/// the timers of requests under it.
pub async fn erase(venue: &Venue, owner: &Owner, erasure: Erasure<'_>) -> Result<ErasureCounts, StoreError> {
    let mut erased = ErasureCounts::default();
    for agent in agents::all_ids(venue, owner).await? {
        let found = find_concerned(venue, owner, &agent, erasure).await?;
        erase_prompts(venue, owner, &agent, &found.places, erasure).await?;
        forget_live_text(venue, found.jobs.iter().cloned()).await?;
        for job in &found.jobs {
            let started = jobs_without_turns(venue, owner, job).await?;
            forget_live_text(venue, started.iter().cloned()).await?;
            for started in started {
                erased.jobs += usize::from(self::erase_job(venue, owner, &started).await?);
            }
            erased.jobs += usize::from(self::erase_job(venue, owner, job).await?);
        }
        if !found.places.is_empty() {
            erased.jobs += delete_approvals(venue, owner, &agent, &found).await?;
        }
        erase_runs(venue, owner, &agent, erasure).await?;
        // The records go last: after an interruption the turn is found again by its record.
        erased.turns += found.records.len();
        if !found.records.is_empty() {
            write_all(venue, owner, found.records).await?;
            mark_erasure(venue, owner).await?;
        }
    }
    // Marked again, in case an earlier erasure was interrupted before its mark.
    mark_erasure(venue, owner).await?;
    erased.dead = delete_dead_letters(venue, owner, erasure, &mut erased.jobs).await?;
    erased.timers = delete_timers(venue, owner, erasure).await?;
    Ok(erased)
}

/// Marks the erasure, so that workers read the turns again that they have cached.
async fn mark_erasure(venue: &Venue, owner: &Owner) -> Result<(), StoreError> {
    write_all(venue, owner, vec![DocWrite::index_entry(keys::ERASURES)]).await
}

async fn delete_dead_letters(
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
            forget_live_text(venue, [letter.job.clone()]).await?;
            *jobs += usize::from(erase_job(venue, owner, &letter.job).await?);
            write_all(venue, owner, vec![DocWrite::delete(key)]).await?;
            count += 1;
        }
    }
    Ok(count)
}

async fn delete_timers(venue: &Venue, owner: &Owner, erasure: Erasure<'_>) -> Result<usize, StoreError> {
    let mut concerned = Vec::new();
    let mut look = |timer: Timer| {
        if erasure.concerns(&timer.submission.envelope.bound) {
            concerned.push(timer.id);
        }
    };
    timers::for_each(venue, owner, &mut look).await?;
    for timer in &concerned {
        timers::erase(venue, owner, timer).await?;
    }
    Ok(concerned.len())
}

/// Forgets the values of the pipelines' runs that had a grant on the namespace. A run that has not ended fails.
async fn erase_runs(venue: &Venue, owner: &Owner, agent: &AgentId, erasure: Erasure<'_>) -> Result<(), StoreError> {
    let is_concerned = |run: &PipelineState| erasure.concerns(&run.authority);
    let mut pages = venue.store.all_sessions(owner, Some(agent)).page_size(STATES);
    while let Some(page) = pages.next().await? {
        for facts in &page {
            if !sessions::state(facts).pipeline.is_some_and(|run| is_concerned(&run)) {
                continue;
            }
            let erased = amend::erase_run(venue, owner, &facts.key, RUN_ERASED, is_concerned).await;
            erased.map_err(|error| {
                if let LifecycleError::Store(error) = error {
                    error
                } else {
                    StoreError::Contended { what: format!("session `{}`", facts.key) }
                }
            })?;
        }
    }
    Ok(())
}

/// Turns of an agent under the namespace: their keys, their erased records that are still to be written, and their
/// jobs.
#[derive(Default)]
struct ConcernedTurns {
    places: HashSet<String>,
    records: Vec<DocWrite>,
    jobs: BTreeSet<JobId>,
}

async fn find_concerned(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentId,
    erasure: Erasure<'_>,
) -> Result<ConcernedTurns, StoreError> {
    let mut found = ConcernedTurns::default();
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

async fn write_all(venue: &Venue, owner: &Owner, writes: Vec<DocWrite>) -> Result<(), StoreError> {
    for writes in writes.chunks(WRITES) {
        venue.store.write(venue.now(), owner, writes).await?;
    }
    Ok(())
}

/// Erases the contents from the manifests of these turns' prompts. `places` are `<session>/<turn>`.
async fn erase_prompts(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentId,
    places: &HashSet<String>,
    erasure: Erasure<'_>,
) -> Result<(), StoreError> {
    let store: &dyn Store = &*venue.store;
    let is_source =
        |source: &str| source.strip_prefix("r/").is_some_and(|namespace| erasure.covers_namespace(namespace));
    let prefix = keys::agent_ledgers(agent);
    let mut last: Option<(String, BaseManifest)> = None;
    let mut manifests = store.docs(owner, prefix.as_str());
    while let Some(page) = manifests.next().await? {
        for (key, doc) in &page {
            let place = &key[prefix.len()..];
            let Some((session, turn)) = place.split_once('/') else { continue };
            let Ok(turn) = turn.parse() else { continue };
            let bytes = doc.value.clone().unwrap_or_default();
            let stored = std::str::from_utf8(&bytes).map_err(|error| corrupt(key, &error))?;
            let before = last.take().filter(|(of, _)| of == session).map(|(_, base)| base);
            let Ok(base) = BaseManifest::read(before.as_ref(), turn, stored) else { continue };
            if places.contains(place) {
                erase_parts(venue, owner, key, base.period, stored, &base.manifest.contents_of(is_source)).await?;
            }
            last = Some((session.to_owned(), base));
        }
    }
    Ok(())
}

async fn erase_parts(
    venue: &Venue,
    owner: &Owner,
    key: &str,
    period: Period,
    stored: &str,
    lines: &BTreeSet<&str>,
) -> Result<(), StoreError> {
    if lines.is_empty() {
        return Ok(());
    }
    let (mut gone, lists) = named_parts(lines);
    let mut parts = PartContents::new();
    fetch_parts(&*venue.store, owner, period, lists.iter().cloned(), &mut parts).await?;
    gone.extend(Manifest::listed_parts(&parts, lists));
    let mut writes: Vec<_> = gone.iter().map(|name| DocWrite::delete(keys::part(period, name))).collect();
    // The manifest goes last: after an interruption its lines lead to the parts.
    writes.push(DocWrite::put(key, replace_lines(stored, lines)));
    write_all(venue, owner, writes).await
}

/// Deletes the answered approvals of these turns and their jobs, which contain the arguments of calls, and erases the jobs of
/// calls that asked them; returns the number of these. An unanswered one belongs to a turn or a call that has not ended.
async fn delete_approvals(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentId,
    found: &ConcernedTurns,
) -> Result<usize, StoreError> {
    let prefix = keys::agent_turns(agent);
    let is_of_turns = |asked: &Approval| {
        let turn = keys::turn(&asked.session, asked.turn);
        turn.strip_prefix(&prefix).is_some_and(|place| found.places.contains(place))
    };
    let (mut deletes, mut askers) = (Vec::new(), Vec::new());
    let mut look = |asked: Approval| {
        let is_concerned = is_of_turns(&asked) || asked.job.as_ref().is_some_and(|job| found.jobs.contains(job));
        if asked.answer.is_some() && is_concerned {
            deletes.push(DocWrite::delete(keys::approval(&asked.id)));
            askers.extend(asked.asked_by);
        }
    };
    approvals::for_each(venue, owner, &mut look).await?;
    let mut erased = 0;
    for asker in &askers {
        erased += usize::from(erase_job(venue, owner, asker).await?);
    }
    write_all(venue, owner, deletes).await?;
    Ok(erased)
}

/// Returns the jobs that a job has started for external workers and for other servers: no turn of their own records their
/// inputs and results.
async fn jobs_without_turns(venue: &Venue, owner: &Owner, job: &JobId) -> Result<Vec<JobId>, StoreError> {
    let prefix = keys::job_children(job);
    let (mut children, mut found) = (venue.store.docs(owner, prefix.as_str()), Vec::new());
    while let Some(page) = children.keys().await? {
        let ids: Vec<_> = page.iter().filter_map(|key| JobId::new(key.strip_prefix(&prefix)?).ok()).collect();
        let wanted: Vec<_> = ids.iter().flat_map(|id| [keys::outbound(id), keys::job_head(id)]).collect();
        let docs = venue.store.read(owner, &wanted).await?;
        for (id, docs) in ids.into_iter().zip(docs.chunks(2)) {
            let [watch, head] = docs else { continue };
            let head: Option<JobHead> = head.decode(&keys::job_head(&id))?;
            if watch.value.is_some() || head.is_some_and(|head| head.agent == invocation::session(&id).agent) {
                found.push(id);
            }
        }
    }
    Ok(found)
}

/// Deletes the live text of jobs, which event streams of ended jobs would show.
async fn forget_live_text(venue: &Venue, jobs: impl IntoIterator<Item = JobId>) -> Result<(), StoreError> {
    let jobs: Vec<JobId> = jobs.into_iter().collect();
    if jobs.is_empty() {
        return Ok(());
    }
    venue.bus.live_feed().forget(&jobs).await.map_err(|error| StoreError::Unavailable {
        store: "queue".into(),
        reason: format!("live text of erased jobs isn't deleted, repeat the purge: {error}"),
    })
}

/// Erases a job's input and output. Returns whether there was anything to erase.
async fn erase_job(venue: &Venue, owner: &Owner, job: &JobId) -> Result<bool, StoreError> {
    let places = [(keys::job_head(job), "input"), (keys::job_result(job), "output"), (keys::job_result(job), "error")];
    let mut changed = false;
    for (key, field) in places {
        let Some(mut value) = venue.store.get::<Value>(owner, &key).await? else { continue };
        let Some(place) = value.get_mut(field).filter(|place| !place.is_null() && *place != ERASED) else { continue };
        *place = ERASED.into();
        write_all(venue, owner, vec![DocWrite::json(key, &value)]).await?;
        changed = true;
    }
    // A notification holds no text of the job, and its delivery reads the erased one.
    let mut messages = venue.store.docs(owner, keys::job_messages(job));
    while let Some(page) = messages.keys().await? {
        write_all(venue, owner, page.into_iter().map(DocWrite::delete).collect()).await?;
        changed = true;
    }
    Ok(changed)
}
