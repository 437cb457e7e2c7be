//! The record of one session: lease, counters, due time; and reads of it.

use crate::dead::Attempt;
use crate::ids::JobId;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Position in an agent's waiting queue: rank, then order of arrival.
pub type Ticket = (i8, u64);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(rank: &i8) -> bool {
    *rank == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_none_recorded(calls: &u32) -> bool {
    *calls == 0
}

/// Protocol state of a session, which the steps of this module change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRecord {
    /// Number of turns committed.
    pub version: u64,
    /// Fencing token: the time of the last grant in ms, or the epoch before plus one.
    pub epoch: u64,
    /// Lease, live or expired; `None` when it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseRecord>,
    /// Time at which the sweep wakes the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Millis>,
    /// Time before which no lease is granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Millis>,
    /// Number of its ticket in the agent's waiting queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Rank while it waits: before the agent's other sessions (-1), among them, or behind them (1).
    #[serde(skip_serializing_if = "is_zero")]
    pub rank: i8,
    /// Place (storage form) of the task that was begun: it stays the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Time of the last append, commit or restore.
    pub touched: Millis,
    /// Number of events ever appended.
    pub arrivals: u64,
    /// Number of events ever consumed.
    pub consumed: u64,
    /// Place (storage form) that no mailbox entry sorts before; it saves walking over deleted entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Epoch and turn of the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<(u64, u64)>,
    /// Whether a job of this session was ended from outside during the lease.
    pub nudged: bool,
    /// Whether a reply or a call is recorded.
    pub checkpointed: bool,
    /// Number of calls that are recorded for the running turn.
    #[serde(skip_serializing_if = "is_none_recorded")]
    pub calls: u32,
    /// Whether crash counts exist.
    pub crashed: bool,
    /// Crashes that were counted, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Events that the last crashed holder served, as long as that holder may turn out to live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged: Option<LeasedEvents>,
}

/// A lease and the events that it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Expiry of the lease.
    pub until: Millis,
    /// Token of the granted request.
    #[serde(default)]
    pub token: String,
    /// Name of the holder, for operators.
    pub worker: String,
    /// Number of mailbox entries that its holder takes at once.
    pub limit: u32,
    /// Events that the lease serves.
    #[serde(default)]
    pub serving: LeasedEvents,
}

/// The events that a lease serves, in constant space: `task`, and of the others those up to `last` that had arrived by
/// then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeasedEvents {
    /// Number of arrivals when the mailbox was handed out.
    pub arrivals: u64,
    /// Place (storage form) of the last handed-out entry that is no task.
    pub last: String,
    /// Place (storage form) of the first task, and its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<(String, Option<JobId>)>,
}

impl LeasedEvents {
    /// Whether the entry at `place` was served.
    pub fn covers(&self, place: &str, is_task: bool, arrival: u64) -> bool {
        if is_task {
            return self.task.as_ref().is_some_and(|(task, _)| task == place);
        }
        arrival <= self.arrivals && place <= self.last.as_str()
    }
}

impl SessionRecord {
    /// Returns the number of events in the mailbox.
    pub const fn pending_events(&self) -> u64 {
        self.arrivals.saturating_sub(self.consumed)
    }

    /// Whether it has no work, now or later, so that its record may be deleted.
    pub const fn is_idle(&self) -> bool {
        self.pending_events() == 0
            && self.lease.is_none()
            && self.due.is_none()
            && self.backoff.is_none()
            && self.waiting.is_none()
    }

    /// Returns the end of the lease if it is live.
    pub fn live_until(&self, now: Millis) -> Option<Millis> {
        self.lease.as_ref().map(|l| l.until).filter(|until| *until > now)
    }

    /// Returns the end of the backoff if it isn't over.
    pub fn backoff_until(&self, now: Millis) -> Option<Millis> {
        self.backoff.filter(|until| *until > now)
    }

    /// Returns its position in the agent's waiting queue.
    pub fn ticket(&self) -> Option<Ticket> {
        self.waiting.map(|number| (self.rank, number))
    }

    /// Returns the job of the served task.
    pub fn served_job(&self) -> Option<&JobId> {
        self.lease.as_ref()?.serving.task.as_ref()?.1.as_ref()
    }
}
