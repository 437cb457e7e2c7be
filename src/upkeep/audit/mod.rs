//! `trellis audit`: closes the books over what the store and the queue really hold.

mod counts;
mod epoch;
pub mod journal;
mod repair;
pub mod tail;
mod unknown;
mod watch;

use crate::domain::audit::{AuditFacts, Books, JobFacts, LINES, MailboxFacts, close};
use crate::domain::dead::Stray;
use crate::domain::decode;
use crate::domain::ids::{EventId, IdOf, JobId, Owner, SessionKey};
use crate::domain::job::{JobHead, JobStatus};
use crate::domain::limits::LIST_BYTES;
use crate::domain::message::Message;
use crate::domain::session::SessionState;
use crate::store::{Doc, EventKind, StoreError, keys, steps};
use crate::venue::strays;
use crate::venue::{Venue, is_reserved};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Changes that are named which the store has lost.
const LOST_LINES: usize = 10_000;

/// Documents fetched at a time.
const PAGE: usize = 500;

/// Messages for nobody that are named.
const SHOWN: usize = 20;

/// The store is read while it works, so that a job may be seen between two places. What is
/// missing must be missing in every one of so many looks.
const LOOKS: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(300);

pub use epoch::{SetBack, beat, set_backs};
pub use repair::{Repair, repair};
pub use tail::{is_unsettled, settle};
pub use watch::AuditWatch;

/// Why there are no books.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue.
    #[error(transparent)]
    Bus(#[from] crate::bus::BusError),
}

/// What `trellis audit` shows: the books, and with `repair` what was repaired before they were closed.
pub async fn report(venue: &Venue, repair: bool) -> Result<Value, AuditError> {
    let repaired = if repair { Some(self::repair(venue).await?) } else { None };
    let mut shown = json!(all(venue).await?);
    if let Some(repaired) = &repaired {
        shown["repaired"] = json!(repaired);
    }
    Ok(shown)
}

/// The books of every owner, added up.
pub async fn all(venue: &Venue) -> Result<Books, AuditError> {
    let mut books = Books::default();
    let mut owners = venue.store.all_owners();
    while let Some(page) = owners.next().await? {
        for owner in page.iter().filter(|owner| !is_reserved(owner)) {
            books.add(owner_books(venue, owner).await?);
            books.drift.extend(counts::drift(venue, owner, false).await?.map(|drift| format!("{owner}: {drift}")));
        }
    }
    let set_backs = set_backs(venue).await?;
    let told = tail::told(venue, LOST_LINES).await?;
    let is_suspect = !set_backs.is_empty() || told.total > 0;
    for (line, owner) in unknown::jobs(venue, is_suspect).await? {
        tracing::debug!(%owner, line, "unknown job");
        books.unknown += 1;
        books.missing.push(line);
    }
    books.unaccounted += books.unknown;
    books.missing.truncate(LINES);
    books.drift.truncate(LINES);
    (books.lost, books.lost_total) = (told.lines, told.total);
    books.set_back = set_backs.iter().map(ToString::to_string).collect();
    let (strays, total) = strays::list(venue, None, SHOWN).await?;
    books.unreadable = total as u64;
    let line = |stray: &Stray| format!("{}: {}", stray.received.rfc3339(), stray.reason);
    books.unreadable_subjects = strays.iter().map(line).collect();
    Ok(books)
}

/// The books of one owner.
pub async fn owner_books(venue: &Venue, owner: &Owner) -> Result<Books, AuditError> {
    let mut best = close(&facts(venue, owner).await?);
    for _ in 1..LOOKS {
        if best.unaccounted == 0 {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let again = close(&facts(venue, owner).await?);
        if again.unaccounted <= best.unaccounted {
            best = again;
        }
    }
    Ok(best)
}

async fn facts(venue: &Venue, owner: &Owner) -> Result<AuditFacts, AuditError> {
    // In the direction in which an event moves, so that one that moves meanwhile is seen at least
    // once: outbox, queue, mailbox.
    let jobs = jobs(venue, owner).await?;
    let in_transit = in_transit(venue, owner).await?;
    let watched = watched(venue, owner).await?;
    let mailboxes = mailboxes(venue, owner).await?;
    let sent = |job: &&JobId| in_transit.contains(EventId::of_venue(&venue.key, IdOf::Result(job)).as_str());
    let results = mailboxes.iter().flat_map(|mailbox| mailbox.awaits.keys()).filter(sent).cloned().collect();
    Ok(AuditFacts { jobs, mailboxes, in_transit, results, watched })
}

/// Event ids that are in the owner's outbox, or in the queue.
async fn in_transit(venue: &Venue, owner: &Owner) -> Result<BTreeSet<String>, AuditError> {
    let mut in_transit = BTreeSet::new();
    for entry in venue.store.outbox(owner).await? {
        if let Ok(Message { id: Some(id), .. }) = decode::stored(&entry.message) {
            in_transit.insert(id);
        }
    }
    in_transit.extend(venue.bus.in_transit().await?);
    Ok(in_transit)
}

/// Jobs that are looked at some day: those of external workers, and operations that were invoked.
async fn watched(venue: &Venue, owner: &Owner) -> Result<BTreeSet<JobId>, StoreError> {
    let mut watched = due(venue, owner, keys::OUTBOUND_DUE).await?;
    watched.extend(due(venue, owner, keys::INVOKED_DUE).await?);
    Ok(watched)
}

async fn due(venue: &Venue, owner: &Owner, prefix: &str) -> Result<BTreeSet<JobId>, StoreError> {
    let mut due = BTreeSet::new();
    let mut places = venue.store.entries(owner, prefix);
    while let Some(page) = places.keys().await? {
        due.extend(page.iter().filter_map(|key| Some(keys::job_of_due(prefix, key)?.1)));
    }
    Ok(due)
}

async fn jobs(venue: &Venue, owner: &Owner) -> Result<Vec<JobFacts>, AuditError> {
    let mut jobs = Vec::new();
    let mut entries = venue.store.entries(owner, keys::JOB_LIST);
    while let Some(page) = entries.keys().await? {
        let ids: Vec<_> = page.iter().filter_map(|key| keys::listed_job(key)).collect();
        jobs.extend(read_jobs(venue, owner, &ids).await?);
    }
    Ok(jobs)
}

/// What the books need of jobs; those that are gone are passed over.
async fn read_jobs(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<JobFacts>, StoreError> {
    let wanted: Vec<_> = ids.iter().map(|id| [keys::job_head(id), keys::job_status(id)]).collect();
    let (mut jobs, mut rest) = (Vec::with_capacity(ids.len()), wanted.as_slice());
    while !rest.is_empty() {
        let (found, _) = steps::read(&*venue.store, owner, rest, LIST_BYTES).await?;
        rest = &rest[found.len()..];
        jobs.extend(found.iter().filter_map(|pair| job_facts(pair)));
    }
    Ok(jobs)
}

fn job_facts(pair: &[Doc]) -> Option<JobFacts> {
    let [head, status] = pair else { return None };
    let head: JobHead = decode::stored(head.value.as_ref()?).ok()?;
    let status = status.status();
    Some(JobFacts {
        job: head.id,
        event: head.event.to_string(),
        session: SessionKey { agent: head.agent, session: head.session },
        status: status.map_or(JobStatus::Pending, |(status, _)| status),
        updated: status.map_or(head.created, |(_, updated)| updated),
    })
}

async fn mailboxes(venue: &Venue, owner: &Owner) -> Result<Vec<MailboxFacts>, AuditError> {
    let mut mailboxes = Vec::new();
    let mut sessions = venue.store.all_sessions(owner, None);
    while let Some(page) = sessions.next().await? {
        for session in page {
            let tasks = session.mailbox.iter().filter(|entry| entry.kind == EventKind::Task);
            let results = session.mailbox.iter().filter(|entry| entry.kind == EventKind::Result);
            let state = session.state.as_ref().and_then(|bytes| decode::stored::<SessionState>(bytes).ok());
            let awaited = state.into_iter().flat_map(|state| state.pending);
            mailboxes.push(MailboxFacts {
                tasks: tasks.filter_map(|entry| entry.job.clone()).collect(),
                results: results.filter_map(|entry| entry.job.clone()).collect(),
                awaits: awaited.map(|(job, pending)| (job, pending.started)).collect(),
                touched: session.touched,
                held: session.lease_until.is_some_and(|until| until > venue.now()),
                session: session.key,
                arrivals: session.arrivals,
                consumed: session.consumed,
                pending: session.mailbox.len() as u64,
            });
        }
    }
    Ok(mailboxes)
}
