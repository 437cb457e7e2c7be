//! What is asked of both stores, and what of their answers is compared.

use crate::support::dice::Dice;
use bytes::Bytes;
use std::collections::BTreeSet;
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::quota::Quota;
use trellis::store::{CommitOutcome, Continuation, NewJob, OutboxEntry, ReleaseOutcome};

/// Answers that the runs must reach together, or they test little.
pub const REACHED: [&str; 33] = [
    "Refused(Quota(QuotaExceeded",
    "Err(Over(QuotaExceeded",
    "Already(Paused)",
    "job_status: Some(Paused)",
    "Changed",
    "New",
    "Duplicate",
    "Conflict",
    "UnknownAgent",
    "Terminated",
    "MailboxFull",
    "lease: Busy",
    "Refused(Busy)",
    "NotAsked",
    "Run",
    "Empty",
    "Waiting",
    "Suspended",
    "Backoff",
    "checkpoint: Some",
    "crashes: 2",
    "job_status: Some(Failed)",
    "cancelled: true",
    "cancelled: false",
    "Fenced",
    "Done(Held",
    "Done(Released",
    "wakes: [OutboxEntry",
    "Conflict([",
    "Cancelled",
    "Already(",
    "Unknown",
    "state: Some",
];

/// What a session is, and what is done to it.
pub type Case = (&'static str, &'static str);

const PHASES: [&str; 7] = ["new", "idle", "pending", "waiting", "backing off", "held", "lapsed"];
const DONE: [&str; 12] = [
    "admit",
    "wake",
    "renew",
    "checkpoint",
    "commit",
    "commit again",
    "release",
    "finish",
    "pause",
    "resume",
    "amend",
    "set_session",
];

/// Cases that the runs must meet together and didn't: all but what can't be.
pub fn unmet(met: &BTreeSet<Case>) -> Vec<Case> {
    // Right after its commit it has had a turn, and waits for no slot.
    let impossible = [("new", "commit again"), ("waiting", "commit again")];
    let all = PHASES.iter().flat_map(|phase| DONE.iter().map(|done| (*phase, *done)));
    all.filter(|case| !met.contains(case) && !impossible.contains(case)).collect()
}

pub fn job(n: u64) -> JobId {
    JobId::new(&format!("{n:032x}")).unwrap()
}

pub fn event_id(n: u64) -> EventId {
    EventId::new(format!("e{n}")).unwrap()
}

pub fn new_job(n: u64) -> NewJob {
    NewJob {
        job: job(n),
        head: format!("{{\"head\":{n}}}").into(),
        parent: n.checked_sub(1).filter(|n| n % 2 == 0).map(job),
    }
}

/// Mostly none, else one that is passed now and then.
pub fn within(dice: &mut Dice) -> Option<Quota> {
    if !dice.one_in(3) {
        return None;
    }
    let mut of = |most: u64| if dice.one_in(2) { 0 } else { 1 + dice.below(most) };
    Some(Quota { documents: of(60), bytes: of(1_500), sessions: of(6), jobs: of(40) })
}

pub fn entry(id: String) -> OutboxEntry {
    OutboxEntry { message: format!("{{\"m\":\"{id}\"}}").into(), id }
}

/// Wakes that a store makes have ids of its own.
pub fn comparable(mut entries: Vec<OutboxEntry>) -> Vec<Bytes> {
    entries.sort_by(|a, b| a.message.cmp(&b.message));
    entries.into_iter().map(|entry| entry.message).collect()
}

pub fn without_wake_ids(mut next: Continuation) -> Continuation {
    if let Continuation::Released { wakes } = &mut next {
        for wake in wakes {
            wake.id.clear();
        }
    }
    next
}

pub fn committed(answer: CommitOutcome) -> CommitOutcome {
    match answer {
        CommitOutcome::Done(next) => CommitOutcome::Done(without_wake_ids(next)),
        other @ (CommitOutcome::Fenced | CommitOutcome::Conflict(_) | CommitOutcome::Cancelled) => other,
    }
}

pub fn released(answer: ReleaseOutcome) -> ReleaseOutcome {
    match answer {
        ReleaseOutcome::Done(next) => ReleaseOutcome::Done(without_wake_ids(next)),
        ReleaseOutcome::Fenced => ReleaseOutcome::Fenced,
    }
}
