//! One turn of a leased session: runs the actions that the core decides, until the turn is committed or waits.

use super::context;
use super::lease::transcript;
use super::lease::{LeasedSession, RunStop, keeper, records, waits};
use super::model::fallback::{self, FallbackResult};
use super::model::media;
use super::model::record;
use super::spans::{SpanGuard, TurnSpans};
use super::stage::Stage;
use super::state::Worker;
use super::tools::{answers, calls, recorded_calls};
use super::turn_base::TurnBase;
use super::{commit, live_text};
use crate::domain::agent::AgentRecord;
use crate::domain::approval::{ApprovalAnswer, AwaitingCall};
use crate::domain::authority::Authority;
use crate::domain::authority::policy::Policy;
use crate::domain::context::ledger::RowStatus;
use crate::domain::ids::Owner;
use crate::domain::job::ErrorCode;
use crate::domain::rate::RateWait;
use crate::domain::time::Millis;
use crate::domain::turn::run::{Plan, SessionRun};
use crate::domain::turn::{Action, FinalTurn, NextTurn, RecordedReply, TaskRefusal, Turn, TurnInput};
use crate::process::telemetry::Metrics;
use crate::venue::context::begin_turn;
use crate::venue::operation::{CatalogView, dispatch};
use crate::venue::outside_tools;
use serde_json::Value;

/// Input that a turn begins with.
pub(super) enum TurnStart {
    /// Pending events of the mailbox.
    Mailbox,
    /// Answers of people to approvals.
    Answers(Vec<(AwaitingCall, ApprovalAnswer)>),
    /// A checkpoint of an earlier holder of the lease.
    Checkpoint(Box<RecordedReply>),
    /// Pending events of the mailbox that the policy allows to start; with a reason, the turn is refused.
    Planned(Box<Plan>, Option<String>),
    /// Events that killed too many workers.
    Dead(Box<Plan>),
}

impl TurnStart {
    /// Prefers a checkpoint to the mailbox, and dead-letters events that killed too many workers.
    fn with_checkpoint(self, worker: &Worker, leased: &mut LeasedSession) -> Self {
        let recorded = leased.checkpoint.take();
        // A task with a recorded reply is continued: its grant dead-letters it if need be.
        let may_die = recorded.as_ref().is_none_or(|recorded| recorded.job.is_none());
        match (leased.run.poisoned_events(worker.options.crash_limit).filter(|_| may_die), recorded) {
            (_, None) if matches!(self, Self::Answers(_)) => self,
            (Some(dead), _) => Self::Dead(Box::new(dead)),
            (None, Some(recorded)) => Self::Checkpoint(Box::new(recorded)),
            (None, None) => self,
        }
    }

    /// Restricts the events of the mailbox to those whose grants the policy has not revoked.
    fn restrict(self, policy: &Policy, leased: &LeasedSession, agent: &AgentRecord) -> Self {
        let Self::Mailbox = self else { return self };
        let (plan, over) = leased.run.plan_under_policy(policy, agent, &leased.lease.session);
        Self::Planned(Box::new(plan), over)
    }

    /// Returns the events that the turn serves, and the upper bound of its authority.
    fn plan<'s>(&'s self, run: &'s SessionRun) -> (Plan, Option<&'s Authority>) {
        match self {
            Self::Mailbox => (run.plan(), None),
            Self::Answers(_) => {
                (run.plan_for_answers(), run.state.awaiting.as_ref().map(|awaiting| &awaiting.authority))
            }
            Self::Checkpoint(recorded) => (run.plan_for_recorded(recorded), Some(&recorded.authority)),
            Self::Dead(plan) | Self::Planned(plan, _) => ((**plan).clone(), None),
        }
    }

    /// Returns why the turn is the last of its task, if the checkpoint says so.
    fn final_reason(&self) -> Option<FinalTurn> {
        match self {
            Self::Checkpoint(recorded) => recorded.last.clone(),
            Self::Mailbox | Self::Planned(..) | Self::Answers(_) | Self::Dead(_) => None,
        }
    }

    async fn turn(
        self,
        worker: &Worker,
        leased: &mut LeasedSession,
        turn_input: Box<TurnInput>,
        refusal: Option<TaskRefusal>,
    ) -> Result<(Turn, Action), RunStop> {
        let now = worker.venue.now();
        // A checkpoint has its own count of calls.
        let job = turn_input.plan.job();
        let calls_before = (!matches!(self, Self::Checkpoint(_))).then(|| waits::earlier_calls(leased, job));
        let (mut turn, action) = match self {
            Self::Dead(_) => Turn::give_up(turn_input, now),
            Self::Checkpoint(recorded) => {
                let outcomes = recorded_calls::recorded_outcomes(leased, &recorded);
                Turn::resume(turn_input, *recorded, &outcomes, now)
            }
            Self::Answers(decided) => {
                let outcomes = recorded_calls::recorded_awaiting_outcomes(leased);
                Turn::settle(turn_input, answers::awaiting_turn(worker, leased).await?, decided, &outcomes)
            }
            Self::Planned(_, Some(reason)) => {
                Turn::refuse(turn_input, ErrorCode::CapDenied, &format!("CAP_DENIED: {reason}"), now)
            }
            Self::Mailbox | Self::Planned(_, None) => match (refusal, turn_input.check_entities()) {
                (Some(refusal), _) => Turn::refuse(turn_input, ErrorCode::Refused, &refusal.to_string(), now),
                (None, Ok(())) => Turn::begin(turn_input, now),
                (None, Err(error)) => Turn::refuse(turn_input, ErrorCode::EntityIdsRequired, &error.to_string(), now),
            },
        };
        if let Some(calls) = calls_before {
            turn.add_model_calls(calls);
        }
        Ok((turn, action))
    }
}

/// Runs one turn of a leased session. Returns whether the lease is still held. Prompt and calls use the agent with its
/// pins resolved; the commit writes the agent as it is configured.
pub(super) async fn run(
    worker: &Worker,
    leased: &mut LeasedSession,
    agent: &AgentRecord,
    start: TurnStart,
) -> Result<bool, RunStop> {
    let (owner, is_expired): (Owner, bool) = (leased.lease.owner.clone(), leased.is_expired);
    let (policy, version) = records::load_policy(worker, &owner, leased.versions.policy).await?;
    let start = start.with_checkpoint(worker, leased).restrict(&policy, leased, agent);
    let (mut plan, before) = start.plan(&leased.run);
    let bounds = TurnBounds { authority: before.cloned(), last: start.final_reason() };
    let (served, refusal) = plan.take_agent(agent);
    let agent = served.as_deref().unwrap_or(agent);
    let (job, mut view) = (plan.job().cloned(), operations(worker, leased, agent).await?);
    let input = turn_input(worker, leased, agent, plan, &policy, bounds).await?;
    leased.cancelled = leased.stops.serve(job.as_ref());
    let _served = job.as_ref().map(|job| worker.tasks.serve(&owner, job, &leased.cancelled));
    let (input, workspace, pinned) = Box::pin(begin_turn(&worker.venue, &mut view, agent, input, is_expired)).await?;
    let meant = pinned.as_deref().unwrap_or(agent);
    let turn_base = TurnBase { workspace, catalog: view, policy: version };
    let approved = matches!(start, TurnStart::Answers(_));
    let (mut turn, mut action) = start.turn(worker, leased, input, refusal).await?;
    begin_trace(worker, leased, &turn);
    loop {
        if matches!(action, Action::Ask(_)) {
            // Renewed before anything is reserved: the reservation is named by the epoch that the next holder knows.
            keeper::ensure_lease(worker, leased).await?;
        }
        let _stage = enter_stage(worker, &action, leased, &turn);
        let observed = match action {
            Action::Gather => Box::pin(context::gather(worker, leased, &turn_base, meant, &turn)).await?,
            Action::Decide => Box::pin(context::offer(worker, &turn_base, meant, &turn)).await?,
            Action::Ask(mut request) => {
                let _room = media::load(worker, leased, &turn, &mut request).await?;
                match fallback::call_models(worker, leased, &turn, *request).await? {
                    FallbackResult::Finished(observed, calls) => {
                        turn.add_model_calls(calls);
                        *observed
                    }
                    FallbackResult::Wait(wait, calls) => {
                        turn.add_model_calls(calls);
                        return wait_for_model(worker, leased, &turn, wait).await;
                    }
                }
            }
            Action::Record(recorded) => {
                let hide = |path: &str, value: &mut Value| dispatch::hide(&turn_base.catalog, path, value);
                turn.hide_secrets(hide);
                record::record(worker, leased, recorded.without_secrets(hide)).await?
            }
            Action::Call(planned) => {
                let tools: Vec<_> = planned.iter().map(|(_, call)| call.tool.as_str()).collect();
                live_text::calls(worker, job.as_ref(), turn.input().turn, &tools).await;
                let requested = calls::RequestedCalls { planned: &planned, approved };
                Box::pin(calls::make_calls(worker, leased, &turn_base, meant, &turn, requested)).await?
            }
            Action::Suspend { reason } => {
                waits::remember_calls(worker, leased, &turn).await?;
                return Box::pin(waits::suspend(worker, leased, agent, &reason)).await;
            }
            Action::Wait { reason } => {
                return Box::pin(waits::release_unavailable(worker, leased, &turn, &reason, deadline(&turn))).await;
            }
            Action::Commit(decision) => {
                return Box::pin(commit::commit(worker, leased, &turn_base, agent, &turn, *decision)).await;
            }
        };
        action = turn.step(observed, worker.venue.now());
    }
}

/// Counts a prompt: its bytes, its parts that were cut, and whether it continues the one before.
fn count_prompt(metrics: &Metrics, turn: &Turn) {
    #[expect(clippy::cast_precision_loss, reason = "a prompt has fewer than 2^53 bytes")]
    metrics.progress.prompt_bytes.observe(turn.prompt_bytes() as f64);
    for row in turn.prompt_rows() {
        match row.status {
            RowStatus::Full | RowStatus::Missing => {}
            RowStatus::Shrunk => metrics.progress.count_prompt_part("shrunk"),
            RowStatus::Dropped => metrics.progress.count_prompt_part("dropped"),
            RowStatus::Denied => metrics.progress.count_prompt_part("denied"),
            RowStatus::Failed => metrics.progress.count_prompt_part("failed"),
        }
    }
    if let Some(is_kept) = turn.keeps_prefix() {
        metrics.progress.count_prefix(is_kept);
    }
}

/// Returns the operations that the turn may name, with the tools of the servers and of the agents elsewhere
/// that its agent uses.
async fn operations(worker: &Worker, leased: &LeasedSession, agent: &AgentRecord) -> Result<CatalogView, RunStop> {
    let (owner, id) = (&leased.lease.owner, &leased.lease.session.agent);
    if agent.config.pipeline.is_some() && agent.config.tools.is_empty() {
        // Its servers are those of its steps, whose turns ask them.
        return Ok(worker.venue.catalog_of_agent(owner, id));
    }
    Box::pin(outside_tools::prepare_turn(&worker.venue, owner, agent, &leased.run.state.tools)).await?;
    Ok(worker.venue.catalog_of_agent(owner, id))
}

/// Releases the session until the model can be called again.
async fn wait_for_model(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn: &Turn,
    wait: RateWait,
) -> Result<bool, RunStop> {
    waits::remember_calls(worker, leased, turn).await?;
    waits::release_until(worker, leased, wait, deadline(turn)).await
}

/// Returns the deadline of the request that the turn serves; `None` for the last turn of a task.
fn deadline(turn: &Turn) -> Option<Millis> {
    turn.input().purse.deadline.filter(|_| turn.input().last.is_none()).map(|deadline| deadline.at)
}

/// Bounds of a turn that was begun before: under another lease, or before a person's answer.
struct TurnBounds {
    /// Authority that it was begun with.
    authority: Option<Authority>,
    /// Reason why it is the last of its task.
    last: Option<FinalTurn>,
}

/// Builds the input of the turn. Its authority is the present one, narrowed to that of the bounds if there is one.
async fn turn_input(
    worker: &Worker,
    leased: &mut LeasedSession,
    agent: &AgentRecord,
    plan: Plan,
    policy: &Policy,
    bounds: TurnBounds,
) -> Result<Box<TurnInput>, RunStop> {
    let (start, date) = worker.venue.day();
    let next = NextTurn { owner: &leased.lease.owner, session: &leased.lease.session, start, date };
    let mut turn_input = Box::new(TurnInput::for_next_turn(next, agent, &leased.run, plan, policy));
    if let Some(before) = &bounds.authority {
        turn_input.authority = turn_input.authority.limit_to(before);
    }
    if let Some((today, counted)) = waits::earlier_counts(leased, turn_input.plan.job()) {
        (turn_input.state.today, turn_input.counted) = (Some(today), counted);
    }
    if let Some(turn) = turn_input.state.goals.top().map(|frame| frame.turn) {
        turn_input.opener = transcript::load_turn(worker, leased, turn).await?.map(Box::new);
    }
    turn_input.last = bounds.last.or(turn_input.last);
    Ok(turn_input)
}

/// Begins the trace of a turn, if it is recorded.
fn begin_trace(worker: &Worker, leased: &mut LeasedSession, turn: &Turn) {
    let (asked, before) = (leased.asked.take(), leased.run.state.trace);
    leased.spans = TurnSpans::begin(worker, &leased.lease, turn, asked, before);
}

/// Logs the stage of an action. Returns its span, if the turn has a trace; calls of models and tools have spans of their
/// own.
fn enter_stage(worker: &Worker, action: &Action, leased: &LeasedSession, turn: &Turn) -> Option<SpanGuard> {
    let stage = action_stage(action)?;
    stage.enter_turn(&leased.lease.session, turn.input().turn);
    if stage == Stage::Model {
        count_prompt(&worker.venue.metrics, turn);
    }
    let spans = leased.spans.as_ref()?;
    if stage == Stage::Model {
        spans.note_prompt(turn.prompt_hash());
    }
    if matches!(stage, Stage::Model | Stage::Tools) {
        return None;
    }
    Some(spans.stage(stage.as_str()))
}

const fn action_stage(action: &Action) -> Option<Stage> {
    match action {
        Action::Gather => Some(Stage::Context),
        Action::Decide => Some(Stage::Decide),
        Action::Ask(_) => Some(Stage::Model),
        Action::Record(_) => Some(Stage::Record),
        Action::Call(_) => Some(Stage::Tools),
        Action::Commit(_) => Some(Stage::Commit),
        Action::Wait { .. } | Action::Suspend { .. } => None,
    }
}
