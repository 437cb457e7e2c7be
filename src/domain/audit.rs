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
    /// When it was touched last.
    pub touched: Millis,
    /// A worker holds it.
    pub held: bool,
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
        /// The job.
        job: JobId,
        /// The session that waits.
        session: SessionKey,
    },
    /// Events were appended that are neither in the mailbox nor consumed.
    LostEvents {
        /// Where.
        session: SessionKey,
    },
}

/// Jobs that somebody will see to: their task is in a mailbox, or their time is watched.
fn held(facts: &AuditFacts) -> BTreeSet<&JobId> {
    facts.mailboxes.iter().flat_map(|mailbox| &mailbox.tasks).chain(&facts.watched).collect()
}

/// What can be repaired and has been so for at least `age`: what moves right now isn't broken.
pub fn find(facts: &AuditFacts, now: Millis, age: Duration) -> BTreeSet<Finding> {
    let is_old = |at: Millis| at.plus(age) <= now;
    let held = held(facts);
    let jobs: BTreeMap<&JobId, &JobFacts> = facts.jobs.iter().map(|job| (&job.job, job)).collect();
    let mut found = BTreeSet::new();
    for job in facts.jobs.iter().filter(|job| is_old(job.updated)) {
        if !job.status.is_terminal() && !held.contains(&job.job) && !facts.in_transit.contains(&job.event) {
            found.insert(Finding::LostTask { job: job.job.clone(), session: job.session.clone() });
        }
    }
    for mailbox in &facts.mailboxes {
        let session = &mailbox.session;
        if mailbox.held {
            continue;
        }
        for job in &mailbox.tasks {
            if jobs.get(job).is_some_and(|job| job.status.is_terminal() && is_old(job.updated)) {
                found.insert(Finding::EndedTask { job: job.clone(), session: session.clone() });
            }
        }
        for (job, since) in &mailbox.awaits {
            let ended = jobs.get(job).map_or_else(
                || is_old(*since),
                |job| job.status.is_terminal() && is_old(job.updated) && is_old(*since),
            );
            let moves = mailbox.results.contains(job) || facts.results.contains(job);
            if ended && !moves {
                found.insert(Finding::LostResult { job: job.clone(), session: session.clone() });
            }
        }
        if mailbox.arrivals > mailbox.consumed + mailbox.pending && is_old(mailbox.touched) {
            found.insert(Finding::LostEvents { session: session.clone() });
        }
    }
    found
}

/// Lines of `missing` that are kept.
pub const LINES: usize = 100;

/// Closes the books. A job counts once: one that is missing from its mailbox is not counted again
/// as a missing event of that mailbox.
pub fn close(facts: &AuditFacts) -> Books {
    let mut books = Books { accepted: facts.jobs.len() as u64, ..Books::default() };
    let mut lost: BTreeMap<&SessionKey, u64> = BTreeMap::new();
    let held = held(facts);
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
                if held.contains(&job.job) || facts.in_transit.contains(&job.event) {
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
    for mailbox in &facts.mailboxes {
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
        MailboxFacts { session, arrivals, consumed, pending, tasks, results, awaits, touched, held }
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
        let facts = AuditFacts { jobs, mailboxes: vec![mailbox], in_transit, ..AuditFacts::default() };
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
            ..AuditFacts::default()
        };
        assert_eq!(find(&moving, Millis(99), Duration::ZERO), BTreeSet::new(), "on its way");
        assert_eq!(found(vec![job(2, Started)], mailbox(1, 0, 1, &[2]), &[], 99), [], "not ended");
        let arrived = MailboxFacts { results: [id(2)].into(), ..awaits() };
        assert_eq!(found(vec![job(2, Complete)], MailboxFacts { arrivals: 1, pending: 1, ..arrived }, &[], 99), []);
    }
}
