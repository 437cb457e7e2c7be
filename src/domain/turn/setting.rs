//! What a turn serves and runs with, and which limit makes it the last of its task.

use super::run::Plan;
use crate::agent::{AgentConfig, Completion};
use crate::authority::Authority;
use crate::budget::{Deadline, Origin, Purse};
use crate::event::Mandate;
use crate::ids::SessionKey;
use crate::job::{ErrorCode, JobResult};
use crate::session::{SessionState, TurnRecord};
use crate::time::Millis;
use crate::tools::Ends;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Everything about a turn that doesn't change while it runs.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Whose.
    pub owner: crate::ids::Owner,
    /// The session.
    pub session: SessionKey,
    /// The turn's number, `version + 1`.
    pub turn: u64,
    /// When it began.
    pub start: Millis,
    /// The venue's date then.
    pub date: String,
    /// The agent's configuration as of now.
    pub config: Arc<AgentConfig>,
    /// Its version.
    pub config_version: u64,
    /// Session state before the turn.
    pub state: SessionState,
    /// What the turn serves.
    pub plan: Plan,
    /// Whose request it serves, when no task is: what it starts goes on under that.
    pub mandate: Mandate,
    /// What it may do.
    pub authority: Authority,
    /// What it pays from, and until when.
    pub purse: Purse,
    /// The task ends with this turn: a limit is reached.
    pub last: Option<Last>,
    /// The turn that opened the goal that is worked on: its result is put there.
    pub opener: Option<Box<TurnRecord>>,
}

/// Why a turn is the last of its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// What the task fails with, unless it ends itself.
    pub code: ErrorCode,
    /// Which limit.
    pub reason: String,
}

impl Last {
    /// A limit of time that is passed.
    pub fn of_time(deadline: &Deadline, now: Millis) -> Option<Self> {
        let reason = || format!("its time was over at {}", deadline.at.rfc3339());
        (now >= deadline.at).then(|| Self { code: code_of(deadline.origin), reason: reason() })
    }

    /// How the task ends that hasn't ended itself.
    pub(super) fn ending(&self, text: &str, is_text: bool, completion: Completion) -> JobResult {
        if is_text && !text.trim().is_empty() && completion == Completion::Implicit {
            return JobResult::complete(text.into());
        }
        JobResult::failed(self.code, format!("{}; the last text was: {text}", self.reason))
    }
}

impl Setting {
    /// The limit of time that is passed.
    pub fn overdue(&self, now: Millis) -> Option<Last> {
        Last::of_time(&self.purse.deadline?, now)
    }

    /// What the open task's output must be.
    pub fn output(&self) -> Option<&Value> {
        self.plan.output(&self.config)
    }

    /// What completes the open task.
    pub fn completion(&self) -> Completion {
        self.plan.completion(&self.config)
    }

    /// What the turn can end.
    pub fn ends(&self) -> Ends<'_> {
        self.plan.ends(&self.state, &self.config)
    }

    /// A limit is reached: whether there is another turn to end the task in.
    pub(super) fn may_wind_down(&self) -> bool {
        let waits = self.state.awaiting.is_some();
        self.config.limits.wind_down && self.last.is_none() && self.plan.task.is_some() && !waits
    }
}

/// What a task fails with at a limit.
pub const fn code_of(origin: Origin) -> ErrorCode {
    match origin {
        Origin::Agent | Origin::Cap => ErrorCode::LimitReached,
        Origin::Request => ErrorCode::BudgetExceeded,
    }
}
