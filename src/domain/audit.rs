//! The books: what was accepted against what has ended, is pending, or is missing.

use crate::ids::{JobId, SessionKey};
use crate::job::JobStatus;
use crate::time::Millis;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One job, as the books need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    /// Its id.
    pub job: JobId,
    /// The producer's id of the event that opened it.
    pub event: String,
    /// The session that serves it.
    pub session: SessionKey,
    /// Where it stands.
    pub status: JobStatus,
    /// Since when.
    pub updated: Millis,
}

/// One session, as the books need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxFacts {
    /// Which.
    pub session: SessionKey,
    /// Events ever appended.
    pub arrivals: u64,
    /// Events ever consumed.
    pub consumed: u64,
    /// Events in the mailbox.
    pub pending: u64,
    /// Jobs whose task is in the mailbox.
    pub tasks: BTreeSet<JobId>,
    /// Jobs whose result is in the mailbox.
    pub results: BTreeSet<JobId>,
    /// Jobs whose results the session awaits, and since when.
    pub awaits: BTreeMap<JobId, Millis>,
    /// Approvals that the session waits for.
    pub approvals: BTreeSet<JobId>,
    /// When it was touched last.
    pub touched: Millis,
    /// A worker holds it.
    pub held: bool,
    /// Its record, its state or its mailbox can't be read: nothing says what of it is there.
    pub unreadable: bool,
}

/// Everything that an owner's books are made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFacts {
    /// Every job.
    pub jobs: Vec<JobFacts>,
    /// Every session.
    pub mailboxes: Vec<MailboxFacts>,
    /// Event ids that are on their way: in an outbox or in the queue.
    pub in_transit: BTreeSet<String>,
    /// Jobs that a session awaits, whose result is on its way.
    pub results: BTreeSet<JobId>,
    /// Jobs of external workers, and operations that were invoked: somebody looks at them some day.
    pub watched: BTreeSet<JobId>,
    /// Statuses that are gone or can't be read, as the results of their jobs tell them.
    pub statuses: BTreeMap<JobId, JobStatus>,
    /// Records that can't be read or that others need and that are gone, in words.
    pub damaged: BTreeSet<String>,
    /// When the first of all this was read.
    pub read: Millis,
}

/// The books of one owner, or of all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Books {
    /// Jobs accepted.
    pub accepted: u64,
    /// Ended with an output.
    pub completed: u64,
    /// Ended with an error.
    pub failed: u64,
    /// Ended by a caller.
    pub cancelled: u64,
    /// Not taken.
    pub rejected: u64,
    /// Not ended, and found in a mailbox, an outbox or the queue.
    pub pending: u64,
    /// Events other than tasks that wait in mailboxes.
    pub waiting: u64,
    /// Messages that wait in the queue, without wakes: what they ask for is accepted and not yet a job.
    pub queued: u64,
    /// The same by owner, the most first, and since when the oldest waits, in words; at most 100 lines.
    pub queued_by_owner: Vec<String>,
    /// Jobs of whose end the queue tells and which the store doesn't know: it lost them.
    pub unknown: u64,
    /// Not ended and nowhere to be found, or unknown. Must be 0.
    pub unaccounted: u64,
    /// Times at which the store was found to be older than it had been, in words.
    pub set_back: Vec<String>,
    /// Acknowledged changes that the store has lost and that aren't back.
    pub lost_total: u64,
    /// What was acknowledged and then found missing, with what became of it, in words: sums by kind, then one by one.
    pub lost: Vec<String>,
    /// Messages whose subject meant nothing, which nobody got; the newest are kept.
    pub unreadable: u64,
    /// The newest of them, in words.
    pub unreadable_subjects: Vec<String>,
    /// What is missing, in words; at most 100 lines.
    pub missing: Vec<String>,
    /// Records that can't be read, and records that others need and that are gone. Must be 0.
    pub damaged: u64,
    /// Those records, in words; at most 100 lines.
    pub damaged_records: Vec<String>,
    /// Owners whose quotas count otherwise than what they keep, in words; at most 100 lines.
    pub drift: Vec<String>,
}

/// Something that can be repaired.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A task that has not ended is nowhere to be found.
    LostTask {
        /// Its job.
        job: JobId,
        /// Where it was served.
        session: SessionKey,
    },
    /// A task that has ended lies in a mailbox still.
    EndedTask {
        /// Its job.
        job: JobId,
        /// Where it lies.
        session: SessionKey,
    },
    /// A session awaits a result that is nowhere to be found, of a job that has ended or is gone.
    LostResult {
        /// Id of the job.
        job: JobId,
        /// The session that waits.
        session: SessionKey,
    },
    /// Events were appended that are neither in the mailbox nor consumed.
    LostEvents {
        /// Where.
        session: SessionKey,
    },
    /// The status of a job is gone or can't be read, and its result tells it.
    LostStatus {
        /// Id of the job.
        job: JobId,
        /// Status that its result tells.
        status: JobStatus,
    },
}

/// Jobs that somebody will see to: their task is in a mailbox, or their time is watched.
fn held(facts: &AuditFacts) -> BTreeSet<&JobId> {
    facts.mailboxes.iter().flat_map(|mailbox| &mailbox.tasks).chain(&facts.watched).collect()
}

/// Sessions that can't be read: what seems to be missing there may be there.
fn unreadable(facts: &AuditFacts) -> BTreeSet<&SessionKey> {
    facts.mailboxes.iter().filter(|mailbox| mailbox.unreadable).map(|mailbox| &mailbox.session).collect()
}

/// What can be repaired and has been so for at least `age`: what moves right now isn't broken.
pub fn find(facts: &AuditFacts, now: Millis, age: Duration) -> BTreeSet<Finding> {
    let is_old = |at: Millis| at.plus(age) <= now;
    let (held, unreadable) = (held(facts), unreadable(facts));
    let jobs: BTreeMap<&JobId, &JobFacts> = facts.jobs.iter().map(|job| (&job.job, job)).collect();
    let mut found = BTreeSet::new();
    for job in facts.jobs.iter().filter(|job| is_old(job.updated)) {
        let may_be_there = held.contains(&job.job) || unreadable.contains(&job.session);
        if !job.status.is_terminal() && !may_be_there && !facts.in_transit.contains(&job.event) {
            found.insert(Finding::LostTask { job: job.job.clone(), session: job.session.clone() });
        }
    }
    for mailbox in &facts.mailboxes {
        let session = &mailbox.session;
        if mailbox.held || mailbox.unreadable {
            continue;
        }
        for job in &mailbox.tasks {
            if jobs.get(job).is_some_and(|job| job.status.is_terminal() && is_old(job.updated)) {
                found.insert(Finding::EndedTask { job: job.clone(), session: session.clone() });
            }
        }
        for job in lost_results(facts, &jobs, mailbox, age) {
            found.insert(Finding::LostResult { job: job.clone(), session: session.clone() });
        }
        if mailbox.arrivals > mailbox.consumed + mailbox.pending && is_old(mailbox.touched) {
            found.insert(Finding::LostEvents { session: session.clone() });
        }
    }
    found.extend(facts.statuses.iter().map(|(job, status)| Finding::LostStatus { job: job.clone(), status: *status }));
    found
}

/// Jobs of which a session awaits the result, which have ended or are gone for at least `age` before all was read, and
/// whose result is nowhere.
fn lost_results<'f>(
    facts: &AuditFacts,
    jobs: &BTreeMap<&JobId, &JobFacts>,
    mailbox: &'f MailboxFacts,
    age: Duration,
) -> Vec<&'f JobId> {
    let is_old = |at: Millis| at.plus(age) <= facts.read;
    let ended = |job: &JobId, since: Millis| match jobs.get(job) {
        None => is_old(since),
        Some(job) => job.status.is_terminal() && is_old(job.updated) && is_old(since),
    };
    let lost = mailbox
        .awaits
        .iter()
        .filter(|(job, since)| ended(job, **since) && !mailbox.results.contains(*job) && !facts.results.contains(*job));
    lost.map(|(job, _)| job).collect()
}

/// A job that a session began to await so shortly before all was read may not have been written when it was.
const JUST_BEGUN: Duration = Duration::from_secs(5);

/// Lines of `missing` that are kept.
pub const LINES: usize = 100;

/// Closes the books. A job counts once: one that is missing from its mailbox is not counted again
/// as a missing event of that mailbox.
pub fn close(facts: &AuditFacts) -> Books {
    let mut books = Books { accepted: facts.jobs.len() as u64, ..Books::default() };
    let mut lost: BTreeMap<&SessionKey, u64> = BTreeMap::new();
    let (held, unreadable) = (held(facts), unreadable(facts));
    for job in &facts.jobs {
        match job.status {
            JobStatus::Complete => books.completed += 1,
            JobStatus::Failed => books.failed += 1,
            JobStatus::Cancelled => books.cancelled += 1,
            JobStatus::Rejected => books.rejected += 1,
            JobStatus::Pending
            | JobStatus::Started
            | JobStatus::Paused
            | JobStatus::InputRequired
            | JobStatus::AuthRequired => {
                let may_be_there = held.contains(&job.job) || unreadable.contains(&job.session);
                if may_be_there || facts.in_transit.contains(&job.event) {
                    books.pending += 1;
                } else {
                    *lost.entry(&job.session).or_default() += 1;
                    books.missing.push(format!(
                        "job {} ({}) of session {} is in no mailbox, outbox or queue",
                        job.job,
                        job.status.as_str(),
                        job.session
                    ));
                }
            }
        }
    }
    let mut unaccounted: u64 = lost.values().sum();
    let jobs: BTreeMap<&JobId, &JobFacts> = facts.jobs.iter().map(|job| (&job.job, job)).collect();
    for mailbox in facts.mailboxes.iter().filter(|mailbox| !mailbox.unreadable) {
        let results = if mailbox.held { Vec::new() } else { lost_results(facts, &jobs, mailbox, JUST_BEGUN) };
        for job in results {
            unaccounted += 1;
            books.missing.push(format!(
                "session {} waits for the result of job {job}, which is in no mailbox, outbox or queue",
                mailbox.session
            ));
        }
        books.waiting += mailbox.pending.saturating_sub(mailbox.tasks.len() as u64);
        let missing = mailbox.arrivals.saturating_sub(mailbox.consumed + mailbox.pending);
        let counted = lost.get(&mailbox.session).copied().unwrap_or(0);
        if missing > counted {
            unaccounted += missing - counted;
            books.missing.push(format!(
                "session {}: {} events arrived, {} were consumed, {} are there",
                mailbox.session, mailbox.arrivals, mailbox.consumed, mailbox.pending
            ));
        }
    }
    books.unaccounted = unaccounted;
    books.missing.truncate(LINES);
    books.damaged = facts.damaged.len() as u64;
    books.damaged_records = facts.damaged.iter().take(LINES).cloned().collect();
    books
}

impl Books {
    /// Adds another owner's books.
    pub fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.rejected += other.rejected;
        self.pending += other.pending;
        self.waiting += other.waiting;
        self.unaccounted += other.unaccounted;
        self.unreadable += other.unreadable;
        self.missing.extend(other.missing);
        self.missing.truncate(LINES);
        self.damaged += other.damaged;
        self.damaged_records.extend(other.damaged_records);
        self.damaged_records.truncate(LINES);
    }

    /// Counts damaged records, each with what names it.
    pub fn add_damaged(&mut self, records: impl IntoIterator<Item = String>) {
        for record in records {
            self.damaged += 1;
            if self.damaged_records.len() < LINES {
                self.damaged_records.push(record);
            }
        }
    }

    /// Nothing is missing, nothing is damaged, and what owners keep is what is counted.
    pub const fn are_closed(&self) -> bool {
        self.unaccounted == 0 && self.damaged == 0 && self.drift.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> JobId {
        JobId::new(&format!("{n:032x}")).unwrap()
    }

    fn session() -> SessionKey {
        SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() }
    }

    fn job(n: u8, status: JobStatus) -> JobFacts {
        JobFacts { job: id(n), event: format!("e{n}"), session: session(), status, updated: Millis(10) }
    }

    fn mailbox(arrivals: u64, consumed: u64, pending: u64, tasks: &[u8]) -> MailboxFacts {
        let tasks = tasks.iter().map(|n| id(*n)).collect();
        let (results, awaits) = (BTreeSet::new(), BTreeMap::new());
        let (session, touched, held) = (session(), Millis(10), false);
        let (approvals, unreadable) = (BTreeSet::new(), false);
        MailboxFacts {
            session,
            arrivals,
            consumed,
            pending,
            tasks,
            results,
            awaits,
            approvals,
            touched,
            held,
            unreadable,
        }
    }

    fn unaccounted(jobs: Vec<JobFacts>, mailbox: MailboxFacts, transit: &[&str]) -> u64 {
        let in_transit = transit.iter().map(|id| (*id).to_owned()).collect();
        close(&AuditFacts { jobs, mailboxes: vec![mailbox], in_transit, ..AuditFacts::default() }).unaccounted
    }

    #[test]
    fn every_job_is_ended_pending_or_missing() {
        use JobStatus::{Complete, Pending, Started};
        assert_eq!(unaccounted(vec![job(1, Complete), job(2, Started)], mailbox(2, 1, 1, &[2]), &[]), 0);
        assert_eq!(unaccounted(vec![job(3, Pending)], mailbox(0, 0, 0, &[]), &["e3"]), 0);
        assert_eq!(unaccounted(vec![job(3, Pending)], mailbox(0, 0, 0, &[]), &[]), 1);
    }

    #[test]
    fn one_deleted_mailbox_entry_is_one_missing_thing() {
        assert_eq!(unaccounted(vec![job(1, JobStatus::Pending)], mailbox(1, 0, 0, &[]), &[]), 1, "a task");
        assert_eq!(unaccounted(vec![], mailbox(3, 1, 1, &[]), &[]), 1, "a message");
        assert_eq!(
            unaccounted(vec![job(1, JobStatus::Started)], mailbox(3, 0, 1, &[]), &[]),
            2,
            "a task and a message"
        );
    }

    fn found(jobs: Vec<JobFacts>, mailbox: MailboxFacts, transit: &[&str], now: u64) -> Vec<Finding> {
        let in_transit = transit.iter().map(|id| (*id).to_owned()).collect();
        let read = Millis(now);
        let facts = AuditFacts { jobs, mailboxes: vec![mailbox], in_transit, read, ..AuditFacts::default() };
        find(&facts, Millis(now), Duration::from_millis(5)).into_iter().collect()
    }

    #[test]
    fn a_job_of_an_external_worker_is_pending_as_long_as_its_time_is_watched() {
        let facts = |watched: &[u8]| AuditFacts {
            jobs: vec![job(1, JobStatus::Started)],
            watched: watched.iter().map(|n| id(*n)).collect(),
            ..AuditFacts::default()
        };
        let books = |watched: &[u8]| close(&facts(watched));
        assert_eq!((books(&[1]).pending, books(&[1]).unaccounted), (1, 0));
        assert_eq!((books(&[2]).pending, books(&[2]).unaccounted), (0, 1));
        assert_eq!(find(&facts(&[1]), Millis(99), Duration::ZERO).len(), 0);
        assert_eq!(find(&facts(&[2]), Millis(99), Duration::ZERO).len(), 1);
    }

    #[test]
    fn a_lost_result_is_missing_and_a_damaged_record_leaves_the_rest_alone() {
        use JobStatus::{Complete, Pending, Started};
        let parent = || MailboxFacts { awaits: [(id(2), Millis(10))].into(), ..mailbox(1, 0, 1, &[1]) };
        let facts = |mailbox: MailboxFacts, read| AuditFacts {
            jobs: vec![job(1, Started), job(2, Complete)],
            mailboxes: vec![mailbox],
            read: Millis(read),
            ..AuditFacts::default()
        };
        assert_eq!(close(&facts(parent(), 60_000)).unaccounted, 1, "its result is nowhere");
        assert_eq!(close(&facts(parent(), 20)).unaccounted, 0, "it may be on its way");
        let arrived = MailboxFacts { results: [id(2)].into(), arrivals: 2, pending: 2, ..parent() };
        assert_eq!(close(&facts(arrived, 60_000)).unaccounted, 0, "it has arrived");
        let moving = AuditFacts { results: [id(2)].into(), ..facts(parent(), 60_000) };
        assert_eq!(close(&moving).unaccounted, 0, "it is on its way");
        // Nothing says what an unreadable session has.
        let unreadable = MailboxFacts { unreadable: true, ..mailbox(0, 0, 0, &[]) };
        let damaged = ["session a/s".to_owned()].into();
        let facts =
            AuditFacts { jobs: vec![job(1, Pending)], mailboxes: vec![unreadable], damaged, ..AuditFacts::default() };
        let books = close(&facts);
        assert_eq!((books.unaccounted, books.pending, books.damaged, books.are_closed()), (0, 1, 1, false));
        assert_eq!(find(&facts, Millis(99_000), Duration::ZERO), BTreeSet::new());
        let told = AuditFacts { statuses: [(id(3), Complete)].into(), ..AuditFacts::default() };
        let status = Finding::LostStatus { job: id(3), status: Complete };
        assert_eq!(find(&told, Millis(99), Duration::ZERO), [status].into());
    }

    #[test]
    fn what_is_repaired_is_missing_for_some_time_and_does_not_move() {
        use JobStatus::{Complete, Pending, Started};
        let lost = Finding::LostTask { job: id(1), session: session() };
        let pending = || vec![job(1, Pending)];
        let empty = || mailbox(0, 0, 0, &[]);
        assert_eq!(found(pending(), empty(), &[], 15), std::slice::from_ref(&lost));
        assert_eq!(found(pending(), empty(), &[], 14), [], "too young");
        assert_eq!(found(pending(), empty(), &["e1"], 99), [], "on its way");
        assert_eq!(found(pending(), mailbox(1, 0, 1, &[1]), &[], 99), [], "in its mailbox");
        let held = |mailbox| MailboxFacts { held: true, ..mailbox };
        let ended = Finding::EndedTask { job: id(1), session: session() };
        assert_eq!(found(vec![job(1, Complete)], mailbox(1, 0, 1, &[1]), &[], 99), [ended]);
        assert_eq!(found(vec![job(1, Complete)], held(mailbox(1, 0, 1, &[1])), &[], 99), []);
        let events = Finding::LostEvents { session: session() };
        assert_eq!(found(vec![job(1, Started)], mailbox(1, 0, 0, &[]), &[], 99), [lost, events.clone()]);
        assert_eq!(found(vec![], mailbox(3, 1, 1, &[]), &[], 99), [events]);
        assert_eq!(found(vec![], mailbox(3, 1, 2, &[]), &[], 99), []);
        let awaits = || MailboxFacts { awaits: [(id(2), Millis(10))].into(), ..empty() };
        let result = Finding::LostResult { job: id(2), session: session() };
        assert_eq!(found(vec![job(2, Complete)], awaits(), &[], 99), std::slice::from_ref(&result));
        assert_eq!(found(vec![], awaits(), &[], 99), [result], "of a job that is gone");
        let moving = AuditFacts {
            jobs: vec![job(2, Complete)],
            mailboxes: vec![awaits()],
            results: [id(2)].into(),
            read: Millis(99),
            ..AuditFacts::default()
        };
        assert_eq!(find(&moving, Millis(99), Duration::ZERO), BTreeSet::new(), "on its way");
        assert_eq!(found(vec![job(2, Started)], mailbox(1, 0, 1, &[2]), &[], 99), [], "not ended");
        let arrived = MailboxFacts { results: [id(2)].into(), ..awaits() };
        assert_eq!(found(vec![job(2, Complete)], MailboxFacts { arrivals: 1, pending: 1, ..arrived }, &[], 99), []);
    }
}
