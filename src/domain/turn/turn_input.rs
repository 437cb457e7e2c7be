//! The fixed inputs of a turn, and the limits that make it the last turn of its task.

use super::fallback::ModelCalls;
use super::final_turn::FinalTurn;
use super::run::{Plan, SessionRun};
use crate::agent::{AgentConfig, AgentRecord, CompletionRule, ServedAgent};
use crate::authority::Authority;
use crate::authority::envelope::Envelope;
use crate::authority::policy::Policy;
use crate::budget::{Deadline, LimitOrigin, Purse};
use crate::call::ReplyStart;
use crate::event::{Mandate, Payload};
use crate::ids::{Owner, SessionKey};
use crate::job::ErrorCode;
use crate::lattice::layout::Scope;
use crate::pipeline::inputs::{self, TaskInputError};
use crate::pipeline::template::StepTemplateError;
use crate::session::{SessionState, TurnRecord};
use crate::time::Millis;
use crate::tools::TurnEnds;
use crate::turn::options;
use crate::values::entities::{self, EntityIdsRequired};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Everything about a turn that doesn't change while it runs.
#[derive(Debug, Clone)]
pub struct TurnInput {
    /// Owner of the session.
    pub owner: Owner,
    /// Key of the session.
    pub session: SessionKey,
    /// Number of the turn, `version + 1`.
    pub turn: u64,
    /// Time at which the turn began.
    pub start: Millis,
    /// Date of the venue at that time.
    pub date: String,
    /// Configuration of the agent at that time.
    pub config: Arc<AgentConfig>,
    /// Version of the configuration.
    pub config_version: u64,
    /// Session state before the turn. If the turn has waited, the use of the day is that of the last wait.
    pub state: SessionState,
    /// Model calls before the last wait, which the session's day includes already.
    pub counted: ModelCalls,
    /// Events that the turn serves.
    pub plan: Plan,
    /// The request that the turn serves without a task; jobs that it starts continue under it.
    pub mandate: Mandate,
    /// Authority of the turn.
    pub authority: Authority,
    /// Accounts that the turn is charged to, and its deadline.
    pub purse: Purse,
    /// Reason why the task ends with this turn: a limit is reached.
    pub last: Option<FinalTurn>,
    /// The turn that opened the current goal; the goal's result is written there.
    pub opener: Option<Box<TurnRecord>>,
}

/// The turn that a session has next.
#[derive(Debug, Clone)]
pub struct NextTurn<'a> {
    /// Owner of the session.
    pub owner: &'a Owner,
    /// Key of the session.
    pub session: &'a SessionKey,
    /// Time at which the turn begins.
    pub start: Millis,
    /// Date of the venue at that time.
    pub date: String,
}

impl TurnInput {
    /// Returns the start of the turn, and when the event that it serves came in: the task, or else the oldest of the
    /// others. A turn that is run again because the store lost it serves that event again.
    pub fn reply_start(&self) -> ReplyStart {
        let start = self.start;
        let Plan { task, messages, results, settled: _, missed: _ } = &self.plan;
        let others = messages.iter().chain(results).map(|pending| pending.event.received).min();
        match task.as_ref().map(|task| task.event.received).or(others) {
            Some(received) => ReplyStart::Served { start, received },
            None => ReplyStart::Dated(start),
        }
    }

    /// Makes the input of a turn that serves `plan`; its authority is the current one.
    pub fn for_next_turn(
        next: NextTurn<'_>,
        agent: &AgentRecord,
        run: &SessionRun,
        plan: Plan,
        policy: &Policy,
    ) -> Self {
        let NextTurn { owner, session, start, date } = next;
        let home = Scope { session: Some(session.clone()), job: plan.job().cloned() };
        let mut mandate = run.mandate(&plan);
        // Jobs that the turn starts also stop if the agent's own request is revoked.
        mandate.envelope = mandate.envelope.with_trail(&agent.made_under);
        let mut state = run.state.clone();
        options::add_requested_loads(&mut state, &plan);
        if plan.job().is_some() || state.task.is_none() {
            state.goals.end_unless_served(plan.job(), &mandate);
        }
        let mut purse = purse(&plan, &agent.config, &mandate.envelope);
        let begun = run.state.task.as_ref().filter(|progress| Some(&progress.job) == plan.job());
        if let Some(begun) = begun {
            // A begun task keeps its first deadline.
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
            last: winding.map(|_| FinalTurn { code: ErrorCode::LimitReached, reason: reason() }),
            opener: None,
        }
    }

    /// Checks that the request names its entities, if the agent requires them.
    pub fn check_entities(&self) -> Result<(), EntityIdsRequired> {
        let config = &self.config;
        if !config.entity_ids_required {
            return Ok(());
        }
        entities::ids(&config.entity_ids_key, &self.mandate.session_context).map(drop)
    }

    /// Returns the limit of time that has passed.
    pub fn overdue_limit(&self, now: Millis) -> Option<FinalTurn> {
        FinalTurn::from_deadline(&self.purse.deadline?, now)
    }

    /// Returns the schema of the open task's output.
    pub fn output(&self) -> Option<&Value> {
        self.plan.output(&self.config)
    }

    /// Returns what completes the open task.
    pub fn completion(&self) -> CompletionRule {
        self.plan.completion(&self.config)
    }

    /// Returns the task and goal that the turn can end.
    pub fn ends(&self) -> TurnEnds<'_> {
        self.plan.ends(&self.state, &self.config)
    }

    /// Whether one more turn may end the task after a limit is reached.
    pub(super) fn may_wind_down(&self) -> bool {
        let waits = self.state.awaiting.is_some();
        self.config.limits.wind_down && self.last.is_none() && self.plan.task.is_some() && !waits
    }
}

/// Returns the accounts and the deadline of a turn: those of its task, or else those of its request.
fn purse(plan: &Plan, config: &AgentConfig, envelope: &Envelope) -> Purse {
    match plan.task.as_ref().and_then(|task| Some((task, task.event.job()?))) {
        Some((task, job)) => {
            let (agent, request) = (config.limits.budget(), &task.event.budget);
            Purse::for_task(job, task.event.received, &agent, request, &envelope.accounts, envelope.deadline)
        }
        None => Purse {
            inherited: envelope.accounts.clone(),
            deadline: envelope.deadline.map(|at| Deadline { at, origin: LimitOrigin::Request }),
            ..Purse::default()
        },
    }
}

impl SessionRun {
    /// Plans the next turn under a policy. With a reason the turn starts nothing, because its request was revoked, and
    /// its events end there.
    pub fn plan_under_policy(
        &self,
        policy: &Policy,
        agent: &AgentRecord,
        session: &SessionKey,
    ) -> (Plan, Option<String>) {
        let plan = self.plan();
        let home = Scope { session: Some(session.clone()), job: plan.job().cloned() };
        self.without_revoked(plan, |envelope| agent.stop_reason(policy, envelope, &home))
    }
}

/// Why a task gets no turn of its agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskRefusal {
    /// The input of the task doesn't fit the agent's schema.
    #[error(transparent)]
    Input(#[from] TaskInputError),
    /// The text of the task can't be rendered.
    #[error("`taskPrompt`: {0}")]
    Prompt(#[from] StepTemplateError),
    /// The pipeline has no such step any more; holds the place of the step.
    #[error("the pipeline was changed: it has no agent of its own at step {0} now; submit the task again")]
    NoStep(String),
}

impl Plan {
    /// Returns the agent that serves the task, if it is not the agent as it is configured: an anonymous one, the agent of a
    /// step, or one with the task's input in its texts. The plan then shows the rendered text as the input. A task that is
    /// refused has an agent without prompt and tools.
    pub fn take_agent(&mut self, agent: &AgentRecord) -> (Option<Box<AgentRecord>>, Option<TaskRefusal>) {
        match self.served_agent(agent) {
            Ok(served) => {
                let (served, missed) = served.map_or((None, Vec::new()), |served| (Some(served.agent), served.missed));
                let prompt = served.as_ref().and_then(|served| served.config.task_prompt.clone());
                if let (Some(prompt), Some(task)) = (prompt, &mut self.task)
                    && let Payload::Task { input, .. } = &mut task.event.payload
                {
                    *input = Value::String(prompt);
                    self.missed = missed;
                }
                (served.map(Box::new), None)
            }
            Err(refusal) => (Some(Box::new(agent.as_anonymous(""))), Some(refusal)),
        }
    }

    /// Returns the values of the task's input by name.
    pub(super) fn input_values(
        &self,
        schema: Option<&Value>,
        input: &Value,
    ) -> Result<Map<String, Value>, TaskInputError> {
        if self.handed_sections().is_some_and(|handed| handed.upstream) {
            return inputs::values(schema, &inputs::keep_known(schema, input));
        }
        inputs::values(schema, input)
    }

    fn served_agent(&self, agent: &AgentRecord) -> Result<Option<ServedAgent>, TaskRefusal> {
        if let Some(prompt) = self.handed_sections().and_then(|handed| handed.anonymous.as_deref()) {
            return Ok(Some(ServedAgent::without_input(agent.as_anonymous(prompt))));
        }
        let of_step = match self.step() {
            Some(step) => Some(agent.as_step(step).ok_or_else(|| TaskRefusal::NoStep(step.to_owned()))?),
            None => None,
        };
        let config = of_step.as_ref().map_or(&agent.config, |of_step| &of_step.config);
        if !config.uses_task_input() {
            return Ok(of_step.map(ServedAgent::without_input));
        }
        let values = match self.input() {
            Some(input) => self.input_values(config.input_schema.as_ref(), input)?,
            None => Map::new(),
        };
        let served = of_step.unwrap_or_else(|| agent.clone());
        Ok(Some(served.with_task_input(&values)?))
    }
}
