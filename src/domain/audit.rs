//! Audit of an owner: which accepted jobs have ended, are pending, or are missing.

use crate::ids::{JobId, SessionKey};
use crate::job::JobStatus;
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Facts of one job that the audit needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    /// Id of the job.
    pub job: JobId,
    /// The producer's id of the event that opened it.
    pub event: String,
    /// Session that serves the job.
    pub session: SessionKey,
    /// Status of the job.
    pub status: JobStatus,
    /// Time of the last change of the status.
    pub updated: Millis,
}

/// Facts of one session that the audit needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxFacts {
    /// Agent and session.
    pub session: SessionKey,
    /// Number of events ever appended.
    pub arrivals: u64,
    /// Number of events ever consumed.
    pub consumed: u64,
    /// Number of events in the mailbox.
    pub pending: u64,
    /// Jobs whose task is in the mailbox.
    pub tasks: BTreeSet<JobId>,
    /// Jobs whose result is in the mailbox.
    pub results: BTreeSet<JobId>,
    /// Jobs whose results the session awaits, and the time from which it does.
    pub awaits: BTreeMap<JobId, Millis>,
    /// Approvals that the session waits for.
    pub approvals: BTreeSet<JobId>,
    /// Time of the last change of the session.
    pub touched: Millis,
    /// Whether a worker holds the lease of the session.
    pub held: bool,
    /// Whether its record, its state or its mailbox can't be read: then nothing says which events are there.
    pub unreadable: bool,
}

/// All facts that the audit of an owner reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFacts {
    /// Every job of the owner.
    pub jobs: Vec<JobFacts>,
    /// Every session of the owner.
    pub mailboxes: Vec<MailboxFacts>,
    /// Ids of events in transit: in an outbox or in the queue.
    pub in_transit: BTreeSet<String>,
    /// Jobs that a session awaits and whose result is in transit.
    pub results: BTreeSet<JobId>,
    /// Jobs of external workers and invoked operations: their deadlines are watched.
    pub watched: BTreeSet<JobId>,
    /// Statuses that are gone or can't be read, restored from the results of their jobs.
    pub statuses: BTreeMap<JobId, JobStatus>,
    /// Records that can't be read, or that others need and that are gone, in words.
    pub damaged: BTreeSet<String>,
    /// Time before the first of these facts was read.
    pub read: Millis,
}

/// Totals of an audit, of one owner or of all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditTotals {
    /// Number of jobs accepted.
    pub accepted: u64,
    /// Jobs that ended with an output.
    pub completed: u64,
    /// Jobs that ended with an error.
    pub failed: u64,
    /// Jobs that a caller ended.
    pub cancelled: u64,
    /// Jobs that were refused.
    pub rejected: u64,
    /// Jobs that have not ended, and were found in a mailbox, an outbox or the queue.
    pub pending: u64,
    /// Events other than tasks that wait in mailboxes.
    #[serde(default)]
    pub waiting: u64,
    /// Messages in the queue, without wakes: their requests are accepted and not yet jobs.
    #[serde(default)]
    pub queued: u64,
    /// Queued messages by owner, the most first, with the time from which the oldest waits, in words; at most 100
    /// lines.
    #[serde(default)]
    pub queued_by_owner: Vec<String>,
    /// Jobs whose end is in the queue and which the store has lost.
    #[serde(default)]
    pub unknown: u64,
    /// Jobs that have not ended and are nowhere, or are unknown. Must be 0.
    pub unaccounted: u64,
    /// Times at which the store was found to be older than before, in words.
    #[serde(default)]
    pub set_back: Vec<String>,
    /// Number of acknowledged changes that the store has lost and that aren't restored.
    #[serde(default)]
    pub lost_total: u64,
    /// Acknowledged changes that were found missing, and what became of them, in words: sums by kind, then one by one.
    #[serde(default)]
    pub lost: Vec<String>,
    /// Number of messages with a subject that means nothing, so that nobody received them; the newest are kept.
    #[serde(default)]
    pub unreadable: u64,
    /// Subjects of the newest of them, in words.
    #[serde(default)]
    pub unreadable_subjects: Vec<String>,
    /// Jobs and events that are missing, in words; at most 100 lines.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Number of records that can't be read, or that others need and that are gone. Must be 0.
    #[serde(default)]
    pub damaged: u64,
    /// Those records, in words; at most 100 lines.
    #[serde(default)]
    pub damaged_records: Vec<String>,
    /// Owners whose quotas count other amounts than they keep, in words; at most 100 lines.
    #[serde(default)]
    pub drift: Vec<String>,
}

/// A defect that can be repaired.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A task that has not ended is in no mailbox, outbox or queue.
    LostTask {
        /// Id of its job.
        job: JobId,
        /// Session that served it.
        session: SessionKey,
    },
    /// A task that has ended is still in a mailbox.
    EndedTask {
        /// Id of its job.
        job: JobId,
        /// Session of the mailbox.
        session: SessionKey,
    },
    /// A session awaits a result that is nowhere, of a job that has ended or is gone.
    LostResult {
        /// Id of the job.
        job: JobId,
        /// Session that waits.
        session: SessionKey,
    },
    /// Events were appended that are neither in the mailbox nor consumed.
    LostEvents {
        /// Session of the mailbox.
        session: SessionKey,
    },
    /// The status of a job is gone or can't be read, and its result holds it.
    LostStatus {
        /// Id of the job.
        job: JobId,
        /// Status that the result holds.
        status: JobStatus,
    },
}

/// Returns the jobs that will be processed: their task is in a mailbox, or their deadline is watched.
fn watched_jobs(facts: &AuditFacts) -> BTreeSet<&JobId> {
    facts.mailboxes.iter().flat_map(|mailbox| &mailbox.tasks).chain(&facts.watched).collect()
}

/// Returns the sessions that can't be read: what seems to be missing there may be there.
fn unreadable_sessions(facts: &AuditFacts) -> BTreeSet<&SessionKey> {
    facts.mailboxes.iter().filter(|mailbox| mailbox.unreadable).map(|mailbox| &mailbox.session).collect()
}

/// Returns the defects that are at least `age` old: younger ones may be work in progress.
pub fn find(facts: &AuditFacts, now: Millis, age: Duration) -> BTreeSet<Finding> {
    let is_old = |at: Millis| at.plus(age) <= now;
    let (held, unreadable) = (watched_jobs(facts), unreadable_sessions(facts));
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

/// Returns the jobs whose result a session awaits and that is nowhere. The job has ended or is gone for at least `age`
/// before the facts were read.
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

/// Age below which an awaited job may be missing only because it was written after the facts were read.
const AWAIT_GRACE: Duration = Duration::from_secs(5);

/// Lines of each list at most.
pub const LINES: usize = 100;

/// Computes the totals. A job counts once: one that is missing from its mailbox is not counted again as a missing event
/// of that mailbox.
pub fn total(facts: &AuditFacts) -> AuditTotals {
    let mut books = AuditTotals { accepted: facts.jobs.len() as u64, ..AuditTotals::default() };
    let mut lost: BTreeMap<&SessionKey, u64> = BTreeMap::new();
    let (held, unreadable) = (watched_jobs(facts), unreadable_sessions(facts));
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
        let results = if mailbox.held { Vec::new() } else { lost_results(facts, &jobs, mailbox, AWAIT_GRACE) };
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

impl AuditTotals {
    /// Adds the totals of another owner.
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

    /// Counts damaged records, each given by its name.
    pub fn add_damaged(&mut self, records: impl IntoIterator<Item = String>) {
        for record in records {
            self.damaged += 1;
            if self.damaged_records.len() < LINES {
                self.damaged_records.push(record);
            }
        }
    }

    /// Whether nothing is missing, nothing is damaged, and the quotas agree with what owners keep.
    pub const fn are_balanced(&self) -> bool {
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
        total(&AuditFacts { jobs, mailboxes: vec![mailbox], in_transit, ..AuditFacts::default() }).unaccounted
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
    fn a_watched_external_job_counts_as_pending() {
        let facts = |watched: &[u8]| AuditFacts {
            jobs: vec![job(1, JobStatus::Started)],
            watched: watched.iter().map(|n| id(*n)).collect(),
            ..AuditFacts::default()
        };
        let books = |watched: &[u8]| total(&facts(watched));
        assert_eq!((books(&[1]).pending, books(&[1]).unaccounted), (1, 0));
        assert_eq!((books(&[2]).pending, books(&[2]).unaccounted), (0, 1));
        assert_eq!(find(&facts(&[1]), Millis(99), Duration::ZERO).len(), 0);
        assert_eq!(find(&facts(&[2]), Millis(99), Duration::ZERO).len(), 1);
    }

    #[test]
    fn a_lost_result_is_missing_and_other_jobs_are_unaffected() {
        use JobStatus::{Complete, Pending, Started};
        let parent = || MailboxFacts { awaits: [(id(2), Millis(10))].into(), ..mailbox(1, 0, 1, &[1]) };
        let facts = |mailbox: MailboxFacts, read| AuditFacts {
            jobs: vec![job(1, Started), job(2, Complete)],
            mailboxes: vec![mailbox],
            read: Millis(read),
            ..AuditFacts::default()
        };
        assert_eq!(total(&facts(parent(), 60_000)).unaccounted, 1, "its result is nowhere");
        assert_eq!(total(&facts(parent(), 20)).unaccounted, 0, "it may be on its way");
        let arrived = MailboxFacts { results: [id(2)].into(), arrivals: 2, pending: 2, ..parent() };
        assert_eq!(total(&facts(arrived, 60_000)).unaccounted, 0, "it has arrived");
        let moving = AuditFacts { results: [id(2)].into(), ..facts(parent(), 60_000) };
        assert_eq!(total(&moving).unaccounted, 0, "it is on its way");
        // Nothing says what an unreadable session has.
        let unreadable = MailboxFacts { unreadable: true, ..mailbox(0, 0, 0, &[]) };
        let damaged = ["session a/s".to_owned()].into();
        let facts =
            AuditFacts { jobs: vec![job(1, Pending)], mailboxes: vec![unreadable], damaged, ..AuditFacts::default() };
        let books = total(&facts);
        assert_eq!((books.unaccounted, books.pending, books.damaged, books.are_balanced()), (0, 1, 1, false));
        assert_eq!(find(&facts, Millis(99_000), Duration::ZERO), BTreeSet::new());
        let told = AuditFacts { statuses: [(id(3), Complete)].into(), ..AuditFacts::default() };
        let status = Finding::LostStatus { job: id(3), status: Complete };
        assert_eq!(find(&told, Millis(99), Duration::ZERO), [status].into());
    }

    #[test]
    fn repair_acts_only_on_losses_that_last_and_stand_still() {
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
