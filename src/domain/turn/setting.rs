//! What a turn serves and runs with, and which limit makes it the last of its task.

use super::fallback::ModelCalls;
use super::run::{Plan, Run};
use crate::agent::{AgentConfig, AgentRecord, CompletedBy};
use crate::authority::Authority;
use crate::authority::envelope::Envelope;
use crate::authority::policy::Policy;
use crate::budget::{Deadline, LimitOrigin, Purse};
use crate::chat::Reply;
use crate::event::Mandate;
use crate::ids::{Owner, SessionKey};
use crate::job::{ErrorCode, JobResult};
use crate::lattice::layout::Scope;
use crate::session::{SessionState, TurnRecord};
use crate::time::Millis;
use crate::tools::Ends;
use crate::turn::options;
use crate::values::entities::{self, EntityIdsRequired};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Everything about a turn that doesn't change while it runs.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Whose.
    pub owner: Owner,
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
    /// Session state before the turn. What the session has used today is of its last wait, where the turn has waited.
    pub state: SessionState,
    /// Calls of the turn before it waited last, which the session's day has already.
    pub counted: ModelCalls,
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
    pub(super) fn ending(&self, reply: &Reply, is_text: bool, completion: CompletedBy) -> JobResult {
        let text = reply.text.as_str();
        if is_text && !text.trim().is_empty() && completion == CompletedBy::Implicit {
            return JobResult { truncated: reply.truncated, ..JobResult::complete(text.into()) };
        }
        JobResult::failed(self.code, format!("{}; the last text was: {text}", self.reason))
    }
}

impl Setting {
    /// Of the next turn of a session, at `start`, that serves `plan`. Its authority is that of the moment.
    pub fn next(
        (owner, session): (&Owner, &SessionKey),
        agent: &AgentRecord,
        run: &Run,
        plan: Plan,
        policy: &Policy,
        (start, date): (Millis, String),
    ) -> Self {
        let home = Scope { session: Some(session.clone()), job: plan.job().cloned() };
        let mut mandate = run.mandate(&plan);
        // What it starts stops with what it was made under, too.
        mandate.envelope = mandate.envelope.under(&agent.made_under);
        let mut state = run.state.clone();
        options::take_loads(&mut state, &plan);
        if plan.job().is_some() || state.task.is_none() {
            state.goals.serve(plan.job(), &mandate);
        }
        let mut purse = purse(&plan, &agent.config, &mandate.envelope);
        let begun = run.state.task.as_ref().filter(|progress| Some(&progress.job) == plan.job());
        if let Some(begun) = begun {
            // A begun task keeps the time that it was given.
            purse.deadline = begun.deadline;
        }
        let reason = || format!("the limit of {} turns was reached", agent.config.limits.turns);
        let winding = begun.filter(|begun| begun.winding);
        Self {
            owner: owner.clone(),
            session: session.clone(),
            turn: run.version + 1,
            start,
            date,
            config: Arc::new(agent.config.clone()),
            config_version: agent.config_version,
            state,
            counted: ModelCalls::default(),
            authority: agent.authority(policy, &mandate.envelope, &home),
            plan,
            mandate,
            purse,
            last: winding.map(|_| Last { code: ErrorCode::LimitReached, reason: reason() }),
            opener: None,
        }
    }

    /// Whether it may begin: a request to an agent with a mandate names its entities.
    pub fn check_entities(&self) -> Result<(), EntityIdsRequired> {
        let config = &self.config;
        if !config.entity_ids_required {
            return Ok(());
        }
        entities::ids(&config.entity_ids_key, &self.mandate.session_context).map(drop)
    }

    /// The limit of time that is passed.
    pub fn overdue(&self, now: Millis) -> Option<Last> {
        Last::of_time(&self.purse.deadline?, now)
    }

    /// What the open task's output must be.
    pub fn output(&self) -> Option<&Value> {
        self.plan.output(&self.config)
    }

    /// What completes the open task.
    pub fn completion(&self) -> CompletedBy {
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

/// What a turn pays from: its task's, or what stands above its message.
fn purse(plan: &Plan, config: &AgentConfig, envelope: &Envelope) -> Purse {
    let above = (envelope.accounts.as_slice(), envelope.deadline);
    match plan.task.as_ref().and_then(|task| Some((task, task.event.job()?))) {
        Some((task, job)) => {
            Purse::of_task(job, task.event.received, &config.limits.budget(), &task.event.budget, above)
        }
        None => Purse {
            inherited: envelope.accounts.clone(),
            deadline: envelope.deadline.map(|at| Deadline { at, origin: LimitOrigin::Request }),
            ..Purse::default()
        },
    }
}

impl Run {
    /// What the next turn serves under a policy: nothing starts under what was revoked. With a reason the turn starts
    /// nothing, and what it serves ends there.
    pub fn plan_under(&self, policy: &Policy, agent: &AgentRecord, session: &SessionKey) -> (Plan, Option<String>) {
        let plan = self.plan();
        let home = Scope { session: Some(session.clone()), job: plan.job().cloned() };
        self.standing(plan, |envelope| agent.stopped(policy, envelope, &home))
    }
}

impl Plan {
    /// The agent that serves it when its task has none of its own.
    pub fn bare(&self, agent: &AgentRecord) -> Option<AgentRecord> {
        let anonymous = self.handed().and_then(|handed| handed.anonymous.as_deref());
        anonymous.map(|prompt| agent.bare(prompt))
    }
}

/// What a task fails with at a limit.
pub const fn code_of(origin: LimitOrigin) -> ErrorCode {
    match origin {
        LimitOrigin::Agent | LimitOrigin::Cap => ErrorCode::LimitReached,
        LimitOrigin::Request => ErrorCode::BudgetExceeded,
    }
}
