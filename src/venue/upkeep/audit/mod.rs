//! `trellis audit`: balances what was accepted against what the store and the queue hold.

mod counts;
mod documents;
mod error;
mod generation;
pub mod journal;
mod records;
mod repair;
pub mod losses;
mod unknown_jobs;
mod watch;

use crate::bus::Backlog;
use crate::domain::agent::AgentRecord;
use crate::domain::approval::Approval;
use crate::domain::audit::{AuditFacts, AuditTotals, LINES, MailboxFacts, total};
use crate::domain::dead::UnreadableMessage;
use crate::domain::decode;
use crate::domain::ids::{EventId, JobId, Owner, VenueIdSubject};
use crate::domain::message::BusMessage;
use crate::domain::session::SessionState;
use crate::domain::time::Millis;
use crate::store::{EventKind, SessionFacts, StoreError, keys};
use crate::venue::policy;
use crate::venue::strays::{self, StrayOwner};
use crate::venue::{Venue, is_reserved};
use crate::view::audit::AuditView;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Lost changes that are named at most.
const LOST_LINES: usize = 10_000;

/// Unreadable messages that are named at most.
const SHOWN: usize = 20;

/// The store is read while it works, so that a job may be seen between two places. What is missing must be missing in
/// every one of these looks.
const LOOKS: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(300);

use records::{JobRecords, PAGE, read_all_jobs};

pub use error::AuditError;
pub use generation::{StoreSetBack, advance_mark, set_backs};
pub use losses::{is_unsettled, read_settlement, settle};
pub use repair::repair;
pub use watch::AuditWatch;

/// Returns the answer of `trellis audit`: the totals, and with `repair` what was repaired before.
pub async fn report(venue: &Venue, repair: bool) -> Result<AuditView, AuditError> {
    let repaired = if repair { Some(self::repair(venue).await?) } else { None };
    Ok(AuditView { totals: audit_all(venue).await?, repaired })
}

/// Result of the work on records of one owner, which don't stop the work on other owners.
enum OwnerOutcome<T> {
    /// The work is done.
    Done(T),
    /// A record is damaged.
    Damaged(StoreError),
}

/// Separates the error of one owner's damaged record from an error that would meet every owner.
fn split_error<T>(outcome: Result<T, AuditError>) -> Result<OwnerOutcome<T>, AuditError> {
    match outcome {
        Ok(done) => Ok(OwnerOutcome::Done(done)),
        Err(AuditError::Store(error)) if !error.is_transient() => Ok(OwnerOutcome::Damaged(error)),
        Err(error) => Err(error),
    }
}

/// Returns what was read of one owner. What can't be read is named, and doesn't hide the totals of others.
fn keep_readable<T>(
    books: &mut AuditTotals,
    outcome: Result<T, AuditError>,
    damage: impl FnOnce(StoreError) -> String,
) -> Result<Option<T>, AuditError> {
    Ok(match split_error(outcome)? {
        OwnerOutcome::Done(done) => Some(done),
        OwnerOutcome::Damaged(error) => {
            books.add_damaged([damage(error)]);
            None
        }
    })
}

/// Returns the totals of all owners.
pub async fn audit_all(venue: &Venue) -> Result<AuditTotals, AuditError> {
    let mut books = AuditTotals::default();
    let mut queue = QueueListing::default();
    let mut owners = venue.store.all_owners();
    while let Some(page) = owners.next().await? {
        for owner in &page {
            let damage = |error| format!("documents of `{owner}` can't be listed: {error}");
            let unreadable = documents::find_unreadable(venue, owner).await.map_err(AuditError::from);
            if let Some(lines) = keep_readable(&mut books, unreadable, damage)? {
                books.add_damaged(lines);
            }
            if is_reserved(owner) {
                continue;
            }
            let damage = |error| format!("the books of `{owner}` can't be closed: {error}");
            let balanced = balance_owner(venue, owner, &mut queue).await;
            if let Some(own) = keep_readable(&mut books, balanced, damage)? {
                books.add(own);
            }
            let damage = |error| format!("what `{owner}` keeps can't be counted: {error}");
            let drift = counts::find_drift(venue, owner, false).await.map_err(AuditError::from);
            if let Some(drift) = keep_readable(&mut books, drift, damage)? {
                books.drift.extend(drift.map(|drift| format!("{owner}: {drift}")));
            }
        }
    }
    let set_backs = set_backs(venue).await?;
    let losses = losses::read_losses(venue, LOST_LINES).await?;
    let is_suspect = !set_backs.is_empty() || losses.is_any;
    let compared = unknown_jobs::compare_with_queue(venue, is_suspect).await?;
    books.add_damaged(compared.damaged);
    for (line, owner) in compared.unknown {
        tracing::debug!(%owner, line, "unknown job");
        books.unknown += 1;
        books.missing.push(line);
    }
    books.unaccounted += books.unknown;
    books.missing.truncate(LINES);
    books.drift.truncate(LINES);
    (books.lost, books.lost_total) = (losses.lines, losses.total);
    books.set_back = set_backs.iter().map(ToString::to_string).collect();
    let backlog = venue.bus.backlog().await?;
    books.queued = backlog.messages();
    books.queued_by_owner = queued_lines(&backlog, venue.now());
    let (strays, total) = strays::list(venue, StrayOwner::Any, SHOWN).await?;
    books.unreadable = total as u64;
    let line = |stray: &UnreadableMessage| format!("{}: {}", stray.received.rfc3339(), stray.reason);
    books.unreadable_subjects = strays.iter().map(line).collect();
    Ok(books)
}

fn queued_lines(backlog: &Backlog, now: Millis) -> Vec<String> {
    let since =
        |oldest: Millis| format!("the oldest since {} ({} s)", oldest.rfc3339(), now.elapsed_since(oldest).as_secs());
    let owners = backlog.largest_owners(LINES - 1).into_iter().map(|(owner, messages)| format!("{owner}: {messages}"));
    backlog.oldest.map(since).into_iter().chain(owners).collect()
}

/// Returns the totals of one owner.
pub async fn audit_owner(venue: &Venue, owner: &Owner) -> Result<AuditTotals, AuditError> {
    balance_owner(venue, owner, &mut QueueListing::default()).await
}

/// Event ids that are in the queue, of all owners. They are listed once; a message published later is missing, so that
/// the totals of its owner don't balance, and then the queue is listed again.
#[derive(Default)]
struct QueueListing(Option<BTreeSet<String>>);

impl QueueListing {
    async fn ids(&mut self, venue: &Venue) -> Result<&BTreeSet<String>, AuditError> {
        if self.0.is_none() {
            self.0 = Some(venue.bus.in_transit().await?.into_iter().collect());
        }
        Ok(self.0.get_or_insert_default())
    }

    /// Makes the next look list the queue again.
    fn forget(&mut self) {
        self.0 = None;
    }
}

async fn balance_owner(venue: &Venue, owner: &Owner, queue: &mut QueueListing) -> Result<AuditTotals, AuditError> {
    let first = read_facts(venue, owner, queue).await?;
    let (mut best, mut damaged) = (total(&first), first.damaged);
    let ended = first.jobs.into_iter().filter(|job| job.status.is_terminal()).map(|job| job.job);
    let ended: Vec<_> = ended.filter(|job| !first.statuses.contains_key(job)).collect();
    for _ in 1..LOOKS {
        if best.unaccounted == 0 && damaged.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        queue.forget();
        let again = read_facts(venue, owner, queue).await?;
        damaged.retain(|record| again.damaged.contains(record));
        let again = total(&again);
        if again.unaccounted <= best.unaccounted {
            best = again;
        }
    }
    damaged.extend(records::damaged_results(venue, owner, &ended).await?);
    (best.damaged, best.damaged_records) = (0, Vec::new());
    best.add_damaged(damaged);
    Ok(best)
}

async fn read_facts(venue: &Venue, owner: &Owner, queue: &mut QueueListing) -> Result<AuditFacts, AuditError> {
    // Read in the direction in which an event moves (outbox, queue, mailbox), so that one that moves meanwhile is seen
    // at least once.
    let read = venue.now();
    let JobRecords { jobs, statuses, mut damaged, .. } = read_all_jobs(venue, owner).await?;
    let mut in_transit = list_in_outbox(venue, owner, &mut damaged).await?;
    in_transit.extend(queue.ids(venue).await?.iter().cloned());
    let watched = watched_jobs(venue, owner).await?;
    let mailboxes = read_mailboxes(venue, owner, &mut damaged).await?;
    damaged.extend(missing_needed(venue, owner, &mailboxes).await?);
    damaged.extend(policy::find_damage(&*venue.store, owner).await?);
    let sent = |job: &&JobId| is_result_moving(venue, &in_transit, job);
    let results = mailboxes.iter().flat_map(|mailbox| mailbox.awaits.keys()).filter(sent).cloned().collect();
    Ok(AuditFacts { jobs, mailboxes, in_transit, results, watched, statuses, damaged, read })
}

/// Whether the result of a job is among the event ids of the outbox and the queue.
fn is_result_moving(venue: &Venue, in_transit: &BTreeSet<String>, job: &JobId) -> bool {
    in_transit.contains(EventId::of_venue(&venue.key, VenueIdSubject::Result(job)).as_str())
}

/// Returns the event ids that are in the owner's outbox or in the queue.
async fn list_in_transit(
    venue: &Venue,
    owner: &Owner,
    damaged: &mut BTreeSet<String>,
) -> Result<BTreeSet<String>, AuditError> {
    let mut in_transit = list_in_outbox(venue, owner, damaged).await?;
    in_transit.extend(venue.bus.in_transit().await?);
    Ok(in_transit)
}

/// Returns the event ids that are in the owner's outbox.
async fn list_in_outbox(
    venue: &Venue,
    owner: &Owner,
    damaged: &mut BTreeSet<String>,
) -> Result<BTreeSet<String>, AuditError> {
    let mut in_transit = BTreeSet::new();
    for entry in venue.store.outbox(owner).await? {
        match decode::read_stored::<BusMessage>(&entry.message) {
            Ok(message) => in_transit.extend(message.id),
            Err(error) => {
                let id = entry.id.escape_debug();
                damaged.insert(format!("the message `{id}` in the outbox of `{owner}` can't be read: {error}"));
            }
        }
    }
    Ok(in_transit)
}

/// Returns jobs that have a due entry: those of external workers, and invoked operations.
async fn watched_jobs(venue: &Venue, owner: &Owner) -> Result<BTreeSet<JobId>, StoreError> {
    let mut watched = due_jobs(venue, owner, keys::OUTBOUND_DUE).await?;
    watched.extend(due_jobs(venue, owner, keys::INVOKED_DUE).await?);
    Ok(watched)
}

async fn due_jobs(venue: &Venue, owner: &Owner, prefix: &str) -> Result<BTreeSet<JobId>, StoreError> {
    let mut due = BTreeSet::new();
    let mut places = venue.store.entries(owner, prefix);
    while let Some(page) = places.keys().await? {
        due.extend(page.iter().filter_map(|key| Some(keys::job_of_due(prefix, key)?.1)));
    }
    Ok(due)
}

async fn read_mailboxes(
    venue: &Venue,
    owner: &Owner,
    damaged: &mut BTreeSet<String>,
) -> Result<Vec<MailboxFacts>, AuditError> {
    let mut mailboxes = Vec::new();
    let mut sessions = venue.store.all_sessions(owner, None);
    while let Some(page) = sessions.next().await? {
        for session in page {
            let key = session.key.clone();
            damaged.extend(session.damaged.iter().map(|record| format!("session {key} of `{owner}`: {record}")));
            let (facts, error) = mailbox_facts(session, venue.now());
            damaged
                .extend(error.map(|error| format!("the state of session {key} of `{owner}` can't be read: {error}")));
            mailboxes.push(facts);
        }
    }
    Ok(mailboxes)
}

/// Returns the mailbox of a session, and why the session's state can't be read.
fn mailbox_facts(session: SessionFacts, now: Millis) -> (MailboxFacts, Option<String>) {
    let tasks = session.mailbox.iter().filter(|entry| entry.kind == EventKind::Task);
    let results = session.mailbox.iter().filter(|entry| entry.kind == EventKind::Result);
    let state = session.state.as_ref().map(|bytes| decode::read_stored::<SessionState>(bytes));
    let (state, error) = match state.transpose() {
        // Each turn leaves a state.
        Ok(None) if session.version > 0 => (None, Some("it is gone".to_owned())),
        Ok(state) => (state, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let (awaited, asked) = state.map(|state| (state.pending, state.awaiting)).unwrap_or_default();
    let facts = MailboxFacts {
        tasks: tasks.filter_map(|entry| entry.job.clone()).collect(),
        results: results.filter_map(|entry| entry.job.clone()).collect(),
        awaits: awaited.into_iter().map(|(job, pending)| (job, pending.started)).collect(),
        approvals: asked.into_iter().flat_map(|asked| asked.calls).map(|call| call.approval).collect(),
        touched: session.touched,
        held: session.lease_until.is_some_and(|until| until > now),
        session: session.key,
        arrivals: session.arrivals,
        consumed: session.consumed,
        pending: session.mailbox.len() as u64,
        unreadable: session.unreadable,
    };
    (facts, error)
}

/// Returns records that sessions need and that are missing, as texts: approvals, and the agents of sessions that have
/// mail.
async fn missing_needed(
    venue: &Venue,
    owner: &Owner,
    mailboxes: &[MailboxFacts],
) -> Result<BTreeSet<String>, AuditError> {
    let mut needed = BTreeMap::new();
    for mailbox in mailboxes {
        let session = &mailbox.session;
        for approval in &mailbox.approvals {
            needed.insert(keys::approval(approval), format!("approval {approval}, which session {session} waits for,"));
        }
        if mailbox.pending > 0 || !mailbox.awaits.is_empty() || !mailbox.approvals.is_empty() {
            for key in [keys::agent_gate(&session.agent), keys::agent(&session.agent)] {
                let line = format!("`{key}` of agent {}, whose sessions have work,", session.agent);
                needed.insert(key, line);
            }
        }
    }
    let wanted: Vec<_> = needed.keys().cloned().collect();
    let mut gone = BTreeSet::new();
    for page in wanted.chunks(PAGE) {
        for (key, doc) in page.iter().zip(records::read_page(venue, owner, page).await?) {
            let line = needed.get(key).map(String::as_str).unwrap_or_default();
            let doc = doc.map_err(RecordReadError::from);
            match doc.map(|doc| doc.value.map(|bytes| check_readable(key, &bytes))) {
                Ok(Some(Ok(()))) => {}
                Ok(None) => drop(gone.insert(format!("{line} of `{owner}` is gone"))),
                Ok(Some(Err(error))) | Err(error) => {
                    gone.insert(format!("{line} of `{owner}` can't be read: {error}"));
                }
            }
        }
    }
    Ok(gone)
}

/// Why a record that sessions need can't be read.
#[derive(Debug, thiserror::Error)]
enum RecordReadError {
    /// The store can't read it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It isn't the JSON of such a record.
    #[error(transparent)]
    Data(#[from] serde_json::Error),
    /// It isn't the gate of an agent.
    #[error("it is no gate")]
    NoGate,
}

/// Checks that a record which sessions need can be decoded.
fn check_readable(key: &str, bytes: &[u8]) -> Result<(), RecordReadError> {
    if key.ends_with("/gate") {
        return keys::Gate::decode(bytes).map(drop).ok_or(RecordReadError::NoGate);
    }
    let read = if key.starts_with(keys::APPROVALS) {
        decode::read_stored::<Approval>(bytes).map(drop)
    } else {
        decode::read_stored::<AgentRecord>(bytes).map(drop)
    };
    Ok(read?)
}
