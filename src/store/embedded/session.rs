//! The record of one session: lease, counters, due time. Pure.

use crate::domain::dead::Attempt;
use crate::domain::ids::JobId;
use crate::domain::limits::ATTEMPTS_KEPT;
use crate::domain::time::Millis;
use serde::{Deserialize, Serialize};

/// A place in an agent's waiting queue: rank, then who came first.
pub(super) type Ticket = (i8, u64);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(rank: &i8) -> bool {
    *rank == 0
}

/// Protocol state of a session. Times are ms.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Session {
    /// Turns committed.
    pub(super) version: u64,
    /// Grants so far: the fencing token.
    pub(super) epoch: u64,
    /// The lease, live or lapsed; `None` when given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<LeaseRecord>,
    /// Next look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) due: Option<u64>,
    /// No lease before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backoff: Option<u64>,
    /// Its ticket in the agent's waiting queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<u64>,
    /// While it waits: before the agent's others (-1), among them, or behind them (1).
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) rank: i8,
    /// Place (storage form) of the task that was begun: it stays the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<String>,
    /// When something was appended, committed or seated last.
    pub(super) touched: u64,
    /// Events ever appended.
    pub(super) arrivals: u64,
    /// Events ever consumed.
    pub(super) consumed: u64,
    /// No mailbox entry sorts before this place (storage form); saves walking over deleted ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<String>,
    /// Epoch and turn of the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<(u64, u64)>,
    /// A job of this session was ended from outside during the lease.
    pub(super) nudged: bool,
    /// There is a recorded reply or call.
    pub(super) checkpointed: bool,
    /// There are crash counts.
    pub(super) crashed: bool,
    /// What they were counted for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) attempts: Vec<Attempt>,
}

/// A lease and what it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    /// It lapses then.
    pub(super) until: u64,
    /// Of the request that was granted.
    #[serde(default)]
    pub(super) token: String,
    /// Who holds it, for operators.
    pub(super) worker: String,
    /// How many mailbox entries its holder takes at once.
    pub(super) limit: u32,
    /// What it serves.
    #[serde(default)]
    pub(super) serving: Serving,
}

/// The events a lease serves, in constant space: `task`, and of the others those up to `last` that had
/// arrived by then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Serving {
    /// Arrivals when the mailbox was handed out.
    pub(super) arrivals: u64,
    /// Place (storage form) of the last entry handed out that is no task.
    pub(super) last: String,
    /// Place (storage form) of the task that comes first, and its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<(String, Option<JobId>)>,
}

impl Serving {
    /// Whether the entry at `place` was served.
    pub(super) fn covers(&self, place: &str, is_task: bool, arrival: u64) -> bool {
        if is_task {
            return self.task.as_ref().is_some_and(|(task, _)| task == place);
        }
        arrival <= self.arrivals && place <= self.last.as_str()
    }
}

impl Session {
    /// Events in the mailbox.
    pub(super) const fn pending(&self) -> u64 {
        self.arrivals.saturating_sub(self.consumed)
    }

    /// Nothing is to be done for it, now or later.
    pub(super) const fn is_resting(&self) -> bool {
        self.pending() == 0
            && self.lease.is_none()
            && self.due.is_none()
            && self.backoff.is_none()
            && self.waiting.is_none()
    }

    /// End of the lease if it is live.
    pub(super) fn live_until(&self, now: Millis) -> Option<u64> {
        self.lease.as_ref().map(|l| l.until).filter(|until| *until > now.0)
    }

    /// Whether `epoch` is the holder: nobody came after it, and it didn't give the lease back.
    /// A lapsed lease that nobody took over still is one.
    pub(super) const fn held_by(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.lease.is_some()
    }

    /// Whether the request with `token` is the one whose grant holds the session.
    pub(super) fn granted_to(&self, token: &str) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.token == token)
    }

    /// End of the backoff if it isn't over.
    pub(super) fn backing_off(&self, now: Millis) -> Option<u64> {
        self.backoff.filter(|until| *until > now.0)
    }

    /// The holder has it until then, and waits for no slot.
    pub(super) fn hold_until(&mut self, until: Millis) {
        if let Some(lease) = &mut self.lease {
            lease.until = until.0;
        }
        (self.due, self.waiting) = (Some(until.0), None);
    }

    /// Notes the holder of a lease that lapsed unreleased.
    pub(super) fn note_crash(&mut self, lapsed: LeaseRecord, now: Millis) {
        let LeaseRecord { until, worker, serving, .. } = lapsed;
        // A void lease doesn't say when it ended.
        let lapsed = if until == 0 { now } else { Millis(until) };
        let job = serving.task.and_then(|(_, job)| job);
        self.attempts.push(Attempt { worker, epoch: self.epoch, turn: self.version + 1, lapsed, job });
        let over = self.attempts.len().saturating_sub(ATTEMPTS_KEPT);
        self.attempts.drain(..over);
    }

    /// Due at `at` or before.
    pub(super) fn due_by(&mut self, at: u64) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// What a restart of the process means: its leases have lapsed unreleased, and whatever has
    /// work is due at once (time 0 is before any `now`), unless it waits for time or for a slot.
    pub(super) fn void(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.until = 0;
            self.due = Some(0);
        } else if self.pending() > 0 && self.backoff.is_none() && self.waiting.is_none() {
            self.due = Some(0);
        }
    }

    /// Its place in the agent's waiting queue.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.waiting.map(|number| (self.rank, number))
    }

    /// The job of the served task.
    pub(super) fn served_job(&self) -> Option<&JobId> {
        self.lease.as_ref()?.serving.task.as_ref()?.1.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_serves_the_first_task_and_what_else_was_handed_out() {
        let serving = Serving { arrivals: 3, last: "5".into(), task: Some(("2".into(), None)) };
        for (place, is_task, arrival, expected) in [
            ("2", true, 1, true),
            ("4", true, 2, false),
            ("4", false, 3, true),
            ("6", false, 3, false),
            ("1", false, 4, false),
        ] {
            assert_eq!(serving.covers(place, is_task, arrival), expected, "{place} {is_task} {arrival}");
        }
    }

    #[test]
    fn a_restart_makes_leases_lapse_and_work_due() {
        let lease =
            LeaseRecord { until: 9, token: "t".into(), worker: "w".into(), limit: 1, serving: Serving::default() };
        let mut held = Session { lease: Some(lease), epoch: 1, ..Session::default() };
        held.void();
        assert_eq!((held.live_until(Millis(1)), held.held_by(1), held.due), (None, true, Some(0)));
        for (mut session, due) in [
            (Session { arrivals: 1, ..Session::default() }, Some(0)),
            (Session { arrivals: 1, backoff: Some(7), due: Some(7), ..Session::default() }, Some(7)),
            (Session { arrivals: 1, waiting: Some(1), ..Session::default() }, None),
            (Session { arrivals: 1, consumed: 1, due: Some(5), ..Session::default() }, Some(5)),
        ] {
            session.void();
            assert_eq!(session.due, due, "{session:?}");
        }
    }
}
