//! The record of one session: lease, counters, due time; and what can be asked of it.

use crate::dead::Attempt;
use crate::ids::JobId;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// A place in an agent's waiting queue: rank, then who came first.
pub type Ticket = (i8, u64);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(rank: &i8) -> bool {
    *rank == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_none_recorded(calls: &u32) -> bool {
    *calls == 0
}

/// Protocol state of a session: what the steps of this module change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRecord {
    /// Turns committed.
    pub version: u64,
    /// The fencing token: the time of the last grant, or the number behind the one before.
    pub epoch: u64,
    /// The lease, live or lapsed; `None` when given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseRecord>,
    /// Next look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Millis>,
    /// No lease before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Millis>,
    /// Its ticket in the agent's waiting queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// While it waits: before the agent's others (-1), among them, or behind them (1).
    #[serde(skip_serializing_if = "is_zero")]
    pub rank: i8,
    /// Place (storage form) of the task that was begun: it stays the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// When something was appended, committed or seated last.
    pub touched: Millis,
    /// Events ever appended.
    pub arrivals: u64,
    /// Events ever consumed.
    pub consumed: u64,
    /// No mailbox entry sorts before this place (storage form); saves walking over deleted ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Epoch and turn of the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<(u64, u64)>,
    /// A job of this session was ended from outside during the lease.
    pub nudged: bool,
    /// There is a recorded reply or call.
    pub checkpointed: bool,
    /// Number of calls that are recorded for the running turn.
    #[serde(skip_serializing_if = "is_none_recorded")]
    pub calls: u32,
    /// There are crash counts.
    pub crashed: bool,
    /// What they were counted for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// What the last of them served, as long as its holder may turn out to live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged: Option<Serving>,
}

/// A lease and what it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// It lapses then.
    pub until: Millis,
    /// Of the request that was granted.
    #[serde(default)]
    pub token: String,
    /// Who holds it, for operators.
    pub worker: String,
    /// How many mailbox entries its holder takes at once.
    pub limit: u32,
    /// What it serves.
    #[serde(default)]
    pub serving: Serving,
}

/// The events a lease serves, in constant space: `task`, and of the others those up to `last` that had
/// arrived by then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Serving {
    /// Arrivals when the mailbox was handed out.
    pub arrivals: u64,
    /// Place (storage form) of the last entry handed out that is no task.
    pub last: String,
    /// Place (storage form) of the task that comes first, and its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<(String, Option<JobId>)>,
}

impl Serving {
    /// Whether the entry at `place` was served.
    pub fn covers(&self, place: &str, is_task: bool, arrival: u64) -> bool {
        if is_task {
            return self.task.as_ref().is_some_and(|(task, _)| task == place);
        }
        arrival <= self.arrivals && place <= self.last.as_str()
    }
}

impl SessionRecord {
    /// Events in the mailbox.
    pub const fn pending(&self) -> u64 {
        self.arrivals.saturating_sub(self.consumed)
    }

    /// Nothing is to be done for it, now or later; it may be forgotten.
    pub const fn is_resting(&self) -> bool {
        self.pending() == 0
            && self.lease.is_none()
            && self.due.is_none()
            && self.backoff.is_none()
            && self.waiting.is_none()
    }

    /// End of the lease if it is live.
    pub fn live_until(&self, now: Millis) -> Option<Millis> {
        self.lease.as_ref().map(|l| l.until).filter(|until| *until > now)
    }

    /// End of the backoff if it isn't over.
    pub fn backing_off(&self, now: Millis) -> Option<Millis> {
        self.backoff.filter(|until| *until > now)
    }

    /// Its place in the agent's waiting queue.
    pub fn ticket(&self) -> Option<Ticket> {
        self.waiting.map(|number| (self.rank, number))
    }

    /// The job of the served task.
    pub fn served_job(&self) -> Option<&JobId> {
        self.lease.as_ref()?.serving.task.as_ref()?.1.as_ref()
    }
}
