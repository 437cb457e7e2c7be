//! Wait reasons: why accepted work does not continue, with their data, their text for people and their JSON.

use crate::ids::{AgentId, JobId};
use crate::time::Millis;
use crate::visible::cut_error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt::{self, Display, Formatter};

/// Text of a reason that names something which its reader may not read.
const NOT_READABLE: &str = "the job or the agent that it is about is not yours to read";

/// Reason why a job, a session or an agent waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// The message is in the queue, and no worker has admitted it.
    NotAdmitted,
    /// Nothing blocks the work: a worker takes it next.
    Due,
    /// There is no connection to the queue.
    QueueAway {
        /// Time of its loss.
        since: Millis,
    },
    /// No worker has given a heartbeat lately.
    NoWorker {
        /// Name and time of the newest heartbeat; absent if no worker is registered.
        last: Option<(String, Millis)>,
    },
    /// Sessions hold every slot of every live worker.
    SlotsTaken {
        /// Number of the slots of all live workers.
        slots: u64,
    },
    /// Other sessions of its owner, or of its tenant, hold their share of the workers' slots.
    OwnerShare,
    /// The agent runs as many sessions as its `concurrency` allows.
    AgentLimit {
        /// Id of the agent.
        agent: AgentId,
        /// Number of sessions that the agent may run at once.
        limit: u32,
        /// Number of sessions that its owner may run at once, where that may be the reason as well.
        owner_limit: Option<u32>,
    },
    /// The owner runs as many sessions as `worker.owner_cap` allows.
    OwnerLimit {
        /// Number of sessions that the owner may run at once.
        limit: u32,
    },
    /// The agent is suspended.
    Suspended {
        /// Id of the agent.
        agent: AgentId,
        /// Reason that was given, or why its models can't be used.
        why: Option<String>,
    },
    /// A caller has paused the job.
    Paused {
        /// Id of the job.
        job: JobId,
        /// Name of the caller; absent where it isn't recorded.
        by: Option<String>,
    },
    /// The session serves an earlier task first.
    Behind {
        /// Job of that task.
        job: JobId,
        /// Wait reason of that task; absent while it runs.
        wait: Option<Box<WaitReason>>,
    },
    /// People have to answer approvals.
    Person {
        /// Unanswered approvals, at least one.
        approvals: Vec<JobId>,
    },
    /// A child job has not ended.
    Child {
        /// Id of the child's job.
        job: JobId,
        /// Agent that serves the child.
        agent: AgentId,
        /// Wait reason of the child; absent while it runs.
        wait: Option<Box<WaitReason>>,
        /// Number of other children that are awaited.
        others: usize,
    },
    /// The awaited child has ended, and its result has not arrived.
    ResultDue {
        /// Id of the child's job.
        job: JobId,
    },
    /// The reason names a job or an agent which the reader may not read: only its kind is shown.
    Withheld {
        /// Kind of the reason.
        kind: &'static str,
        /// Kind of the reason at the end of its chain.
        root: &'static str,
        /// Whether a person has to do something.
        needs_person: bool,
    },
    /// An external worker has not taken the job, or has not ended it.
    External {
        /// Queue that the job is published on.
        queue: String,
        /// Whether an external worker has begun.
        begun: bool,
    },
    /// The work waits for the time of a timer.
    Timer {
        /// Time at which the work continues.
        until: Millis,
    },
    /// A worker noted a reason before it released the work.
    Noted {
        /// Kind of the reason.
        cause: WaitCause,
        /// Reason in words.
        text: String,
        /// Time at which the work continues.
        until: Option<Millis>,
    },
}

/// Kind of a reason that only the worker which released the work knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitCause {
    /// A rate limit of the provider, as the venue counts it.
    ProviderLimit,
    /// A cap on spending, until it resets, or a budget that other turns hold.
    SpendingLimit,
    /// The provider has failed, and is called again after a pause.
    BackingOff {
        /// Number of calls so far.
        tries: u32,
    },
    /// A caller has paused the job.
    Paused,
    /// The message to an external worker can't be published yet.
    NotPublished,
    /// A stored record that the work needs can't be read.
    Damaged,
    /// An older or a newer build noted the reason.
    #[default]
    Other,
}

/// Writes a map of `kind` and, for a provider that failed, `tries`.
impl Serialize for WaitCause {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let noted = match self {
            Self::BackingOff { tries } => json!({"kind": self.kind(), "tries": tries}),
            Self::ProviderLimit
            | Self::SpendingLimit
            | Self::Paused
            | Self::NotPublished
            | Self::Damaged
            | Self::Other => {
                json!({"kind": self.kind()})
            }
        };
        noted.serialize(to)
    }
}

/// Reads notes of newer builds with unknown kinds, too.
impl<'de> Deserialize<'de> for WaitCause {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let noted = Value::deserialize(from)?;
        let tries = noted["tries"].as_u64().and_then(|tries| u32::try_from(tries).ok()).unwrap_or(0);
        Ok(match noted["kind"].as_str() {
            Some("provider-limit") => Self::ProviderLimit,
            Some("spending-limit") => Self::SpendingLimit,
            Some("backing-off") => Self::BackingOff { tries },
            Some("paused") => Self::Paused,
            Some("not-published") => Self::NotPublished,
            Some("damaged") => Self::Damaged,
            Some(_) | None => Self::Other,
        })
    }
}

impl WaitCause {
    /// Whether the kind needs no key in a note, because older builds wrote none.
    pub fn is_other(&self) -> bool {
        *self == Self::Other
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::ProviderLimit => "provider-limit",
            Self::SpendingLimit => "spending-limit",
            Self::BackingOff { .. } => "backing-off",
            Self::Paused => "paused",
            Self::NotPublished => "not-published",
            Self::Damaged => "damaged",
            Self::Other => "other",
        }
    }
}

impl WaitReason {
    /// Returns the name in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotAdmitted => "not-admitted",
            Self::Due => "due",
            Self::QueueAway { .. } => "queue-away",
            Self::NoWorker { .. } => "no-worker",
            Self::SlotsTaken { .. } => "slots-taken",
            Self::OwnerShare => "owner-share",
            Self::AgentLimit { .. } => "agent-limit",
            Self::OwnerLimit { .. } => "owner-limit",
            Self::Suspended { .. } => "suspended",
            Self::Paused { .. } => "paused",
            Self::Behind { .. } => "behind",
            Self::Person { .. } => "person",
            Self::Child { .. } => "child",
            Self::ResultDue { .. } => "result-due",
            Self::Withheld { kind, .. } => kind,
            Self::External { .. } => "external-worker",
            Self::Timer { .. } => "timer",
            Self::Noted { cause, .. } => cause.kind(),
        }
    }

    /// Returns when the work continues by itself; `None` if an event must happen.
    pub const fn resume_time(&self) -> Option<Millis> {
        match self {
            Self::Timer { until } => Some(*until),
            Self::Noted { until, .. } => *until,
            Self::NotAdmitted
            | Self::Due
            | Self::QueueAway { .. }
            | Self::NoWorker { .. }
            | Self::SlotsTaken { .. }
            | Self::OwnerShare
            | Self::AgentLimit { .. }
            | Self::OwnerLimit { .. }
            | Self::Suspended { .. }
            | Self::Paused { .. }
            | Self::Behind { .. }
            | Self::Person { .. }
            | Self::Child { .. }
            | Self::ResultDue { .. }
            | Self::Withheld { .. }
            | Self::External { .. } => None,
        }
    }

    /// Returns the reason at the end of the chain of children and earlier tasks.
    pub fn root(&self) -> &Self {
        if let Self::Behind { wait: Some(wait), .. } | Self::Child { wait: Some(wait), .. } = self {
            wait.root()
        } else {
            self
        }
    }

    /// Returns the reason for a reader who may read neither the job nor the agent that waits: reasons that concern all
    /// work of the owner stay, others lose every name and text.
    #[must_use]
    pub fn withhold(self) -> Self {
        match self {
            Self::NotAdmitted
            | Self::Due
            | Self::QueueAway { .. }
            | Self::NoWorker { .. }
            | Self::SlotsTaken { .. }
            | Self::OwnerShare
            | Self::OwnerLimit { .. }
            | Self::Withheld { .. } => self,
            Self::AgentLimit { .. }
            | Self::Suspended { .. }
            | Self::Paused { .. }
            | Self::Behind { .. }
            | Self::Person { .. }
            | Self::Child { .. }
            | Self::ResultDue { .. }
            | Self::External { .. }
            | Self::Timer { .. }
            | Self::Noted { .. } => {
                Self::Withheld { kind: self.kind(), root: self.root_kind(), needs_person: self.needs_person() }
            }
        }
    }

    fn root_kind(&self) -> &'static str {
        match self.root() {
            Self::Withheld { root, .. } => root,
            root => root.kind(),
        }
    }

    /// Whether a person has to do something before it continues: of several reasons this one is shown first.
    pub fn needs_person(&self) -> bool {
        let root = self.root();
        let is_persons = matches!(root, Self::Person { .. } | Self::Suspended { .. } | Self::Paused { .. });
        is_persons || matches!(root, Self::Withheld { needs_person: true, .. })
    }

    /// Returns the approvals that the reason at the end of the chain waits for.
    pub fn approvals(&self) -> &[JobId] {
        if let Self::Person { approvals } = self.root() { approvals } else { &[] }
    }

    /// Returns what a reader can do about the reason at the end of the chain.
    pub fn advice(&self) -> Option<String> {
        match self.root() {
            Self::QueueAway { .. } => {
                Some("`trellis doctor` says what is wrong with it; what was accepted is kept".to_owned())
            }
            Self::NoWorker { .. } => Some("start one with `trellis worker`; what was accepted is kept".to_owned()),
            Self::SlotsTaken { .. } => Some("start another worker, or raise `worker.slots`".to_owned()),
            Self::AgentLimit { agent, .. } => {
                Some(format!("`trellis agent update {agent} concurrency=N` gives it more"))
            }
            Self::OwnerLimit { .. } => Some("`worker.owner_cap` says how many".to_owned()),
            Self::Suspended { agent, why } if !why.as_ref().is_some_and(|why| why.contains("agent resume")) => {
                Some(format!("`trellis agent resume {agent}` lets it go on"))
            }
            Self::Paused { job, .. } => Some(format!("`trellis job resume {job}` lets it go on")),
            Self::Person { .. } => {
                Some("`trellis approvals` shows what is asked; `approve`, `reject` or `answer` it".to_owned())
            }
            Self::Noted { cause: WaitCause::Damaged, .. } => {
                Some("`trellis audit` names what is damaged; restore it from a backup, or delete it".to_owned())
            }
            Self::Suspended { .. }
            | Self::NotAdmitted
            | Self::Due
            | Self::OwnerShare
            | Self::Behind { .. }
            | Self::Child { .. }
            | Self::ResultDue { .. }
            | Self::Withheld { .. }
            | Self::External { .. }
            | Self::Timer { .. }
            | Self::Noted { .. } => None,
        }
    }

    /// Returns kind and text of the reason at the end of a withheld chain; `None` where the chain has only one kind.
    pub fn withheld_root(&self) -> Option<(&'static str, &'static str)> {
        let Self::Withheld { kind, root, .. } = self else { return None };
        (root != kind).then_some((*root, NOT_READABLE))
    }
}

/// Writes the reason in words, without advice.
impl Display for WaitReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted => f.write_str("its message waits in the queue for a worker"),
            Self::Due => f.write_str("a worker takes it next"),
            Self::QueueAway { since } => {
                write!(f, "the queue has been away since {}, and nothing new runs until it is back", since.rfc3339())
            }
            Self::NoWorker { last: None } => f.write_str("no worker runs"),
            Self::NoWorker { last: Some((name, seen)) } => {
                write!(
                    f,
                    "no worker runs; `{}` gave the last sign of life at {}",
                    cut_error(name.clone()),
                    seen.rfc3339()
                )
            }
            Self::SlotsTaken { slots } => write!(f, "other sessions hold all {slots} slots of the workers"),
            Self::OwnerShare => {
                f.write_str("other sessions of its owner hold their share of the slots (`worker.owner_share`)")
            }
            Self::AgentLimit { agent, limit, owner_limit } => {
                write!(f, "agent `{agent}` runs as many sessions as it may: {limit} (`concurrency`)")?;
                let Some(owner) = owner_limit else { return Ok(()) };
                write!(f, ", or its owner does: {owner} (`worker.owner_cap`)")
            }
            Self::OwnerLimit { limit } => {
                write!(f, "its owner runs as many sessions as it may: {limit} (`worker.owner_cap`)")
            }
            Self::Suspended { agent, why: None } => write!(f, "agent `{agent}` is suspended"),
            Self::Suspended { agent, why: Some(why) } => write!(f, "agent `{agent}` is suspended: {why}"),
            Self::Paused { by: Some(by), job } => write!(f, "job `{job}` was paused by {}", cut_error(by.clone())),
            Self::Paused { by: None, job } => write!(f, "job `{job}` is paused"),
            Self::Behind { job, wait } => {
                write!(f, "job `{job}` of its session comes first")?;
                write_nested(f, wait.as_deref())
            }
            Self::Person { approvals } => match approvals.as_slice() {
                [one] => write!(f, "a person must answer approval `{one}`"),
                [first, rest @ ..] => {
                    write!(f, "people must answer approval `{first}` and {} more", rest.len())
                }
                [] => f.write_str("a person must answer"),
            },
            Self::Child { job, agent, wait, others } => {
                write!(f, "job `{job}` of agent `{agent}`, which it has started, has not ended")?;
                if *others > 0 {
                    write!(f, ", nor have {others} others")?;
                }
                write_nested(f, wait.as_deref())
            }
            Self::ResultDue { job } => {
                write!(f, "job `{job}`, which it has started, has ended, and its result is on its way")
            }
            Self::Withheld { kind, root, .. } => {
                write!(f, "`{kind}`")?;
                if root != kind {
                    write!(f, ", in the end `{root}`")?;
                }
                write!(f, "; {NOT_READABLE}")
            }
            Self::External { queue, begun: false } => {
                write!(f, "no external worker of queue `{queue}` has taken it yet")
            }
            Self::External { queue, begun: true } => write!(f, "an external worker of queue `{queue}` works on it"),
            Self::Timer { until } => write!(f, "nothing is to be done before {}", until.rfc3339()),
            Self::Noted { text, .. } => f.write_str(text),
        }
    }
}

fn write_nested(f: &mut Formatter<'_>, wait: Option<&WaitReason>) -> fmt::Result {
    wait.map_or(Ok(()), |wait| write!(f, ": {wait}"))
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
