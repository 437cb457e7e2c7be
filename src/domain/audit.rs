//! The books: what was accepted against what has ended, is pending, or is missing.

use crate::domain::ids::{JobId, SessionKey};
use crate::domain::job::JobStatus;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

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
}

/// Everything that an owner's books are made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Every job.
    pub jobs: Vec<JobFacts>,
    /// Every session.
    pub mailboxes: Vec<MailboxFacts>,
    /// Event ids that are on their way: in an outbox or in the queue.
    pub in_transit: BTreeSet<String>,
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
    /// Not ended and nowhere to be found. Must be 0.
    pub unaccounted: u64,
    /// What is missing, in words; at most 100 lines.
    pub missing: Vec<String>,
}

/// Lines of `missing` that are kept.
const LINES: usize = 100;

/// Closes the books. A job counts once: one that is missing from its mailbox is not counted again
/// as a missing event of that mailbox.
pub fn close(facts: &Facts) -> Books {
    let mut books = Books { accepted: facts.jobs.len() as u64, ..Books::default() };
    let mut lost: BTreeMap<&SessionKey, u64> = BTreeMap::new();
    let held: BTreeSet<&JobId> = facts.mailboxes.iter().flat_map(|mailbox| &mailbox.tasks).collect();
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
        JobFacts { job: id(n), event: format!("e{n}"), session: session(), status }
    }

    fn mailbox(arrivals: u64, consumed: u64, pending: u64, tasks: &[u8]) -> MailboxFacts {
        let tasks = tasks.iter().map(|n| id(*n)).collect();
        MailboxFacts { session: session(), arrivals, consumed, pending, tasks }
    }

    fn unaccounted(jobs: Vec<JobFacts>, mailbox: MailboxFacts, transit: &[&str]) -> u64 {
        let in_transit = transit.iter().map(|id| (*id).to_owned()).collect();
        close(&Facts { jobs, mailboxes: vec![mailbox], in_transit }).unaccounted
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
}
