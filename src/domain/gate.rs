//! The gate of an agent: the facts of it that admission and leasing need, as the store reads them.

/// Facts of an agent that admission and leasing need, as one line of text: `STATUS CONCURRENCY MAILBOX BUSY`, e.g.
/// `ACTIVE 8 1000 queue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// Whether it takes and runs work.
    pub status: GateStatus,
    /// Sessions that run at once; [`Gate::UNLIMITED`] = any number.
    pub concurrency: u32,
    /// Pending events per session at most.
    pub mailbox: u32,
    /// Treatment of a task that arrives at a session with an unfinished one.
    pub busy: BusyPolicy,
}

/// Whether an agent takes and runs work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateStatus {
    /// `ACTIVE`: the agent takes and runs work.
    Active,
    /// `SUSPENDED`: the agent takes work and doesn't run it.
    Suspended,
    /// `TERMINATED`: the agent refuses work.
    Terminated,
}

/// Treatment of a task that arrives at a busy session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BusyPolicy {
    /// The task waits in the mailbox.
    #[default]
    Queue,
    /// The task replaces the one before it, which is cancelled.
    Replace,
    /// The task is refused.
    Reject,
}

impl Gate {
    /// Concurrency of an agent without a limit of its own.
    pub const UNLIMITED: u32 = u32::MAX;

    /// Returns the stored line.
    pub fn encode(&self) -> String {
        let status = match self.status {
            GateStatus::Active => "ACTIVE",
            GateStatus::Suspended => "SUSPENDED",
            GateStatus::Terminated => "TERMINATED",
        };
        let busy = match self.busy {
            BusyPolicy::Queue => "queue",
            BusyPolicy::Replace => "replace",
            BusyPolicy::Reject => "reject",
        };
        format!("{status} {} {} {busy}", self.concurrency, self.mailbox)
    }

    /// Reads the stored line of [`Gate::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let status = match words.next()? {
            "ACTIVE" => GateStatus::Active,
            "SUSPENDED" => GateStatus::Suspended,
            "TERMINATED" => GateStatus::Terminated,
            _ => return None,
        };
        let concurrency = words.next()?.parse().ok()?;
        let mailbox = words.next()?.parse().ok()?;
        let busy = match words.next()? {
            "queue" => BusyPolicy::Queue,
            "replace" => BusyPolicy::Replace,
            "reject" => BusyPolicy::Reject,
            _ => return None,
        };
        Some(Self { status, concurrency, mailbox, busy })
    }
}
