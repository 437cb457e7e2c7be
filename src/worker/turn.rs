//! One turn of a leased session: runs the actions that the core decides, until the turn is committed or waits.

use super::context;
use super::ground::Ground;
use super::lease::transcript;
use super::lease::{Leased, Stop, keeper, known, waits};
use super::model::fallback::{self, Asked};
use super::model::media;
use super::model::record;
use super::stage::Stage;
use super::tools::{answers, calls, once};
use super::{Worker, commit, live};
use crate::domain::agent::AgentRecord;
use crate::domain::approval::{Answer, AwaitingCall};
use crate::domain::authority::Authority;
use crate::domain::authority::policy::Policy;
use crate::domain::ids::Owner;
use crate::domain::job::ErrorCode;
use crate::domain::time::Millis;
use crate::domain::turn::run::{Plan, Run};
use crate::domain::turn::{Action, Last, Recorded, Setting, Turn};
use crate::venue::context::begin;
use crate::venue::operation::dispatch;
use serde_json::Value;

/// Input that a turn begins with.
pub(super) enum Start {
    /// Pending events of the mailbox.
    Mailbox,
    /// Answers of people to approvals.
    Answers(Vec<(AwaitingCall, Answer)>),
    /// A checkpoint of an earlier holder of the lease.
    Recorded(Box<Recorded>),
    /// Pending events of the mailbox that the policy allows to start; with a reason, the turn is refused.
    Planned(Box<Plan>, Option<String>),
    /// Events that killed too many workers.
    Dead(Box<Plan>),
}

impl Start {
    /// Prefers a checkpoint to the mailbox, and dead-letters events that killed too many workers.
    fn or(self, worker: &Worker, leased: &mut Leased) -> Self {
        let recorded = leased.checkpoint.take();
        // A task with a recorded reply is continued: its grant dead-letters it if need be.
        let may_die = recorded.as_ref().is_none_or(|recorded| recorded.job.is_none());
        match (leased.run.poisoned(worker.options.crash_limit).filter(|_| may_die), recorded) {
            (_, None) if matches!(self, Self::Answers(_)) => self,
            (Some(dead), _) => Self::Dead(Box::new(dead)),
            (None, Some(recorded)) => Self::Recorded(Box::new(recorded)),
            (None, None) => self,
        }
    }

    /// Restricts the events of the mailbox to those whose grants the policy has not revoked.
    fn under(self, policy: &Policy, leased: &Leased, agent: &AgentRecord) -> Self {
        let Self::Mailbox = self else { return self };
        let (plan, over) = leased.run.plan_under(policy, agent, &leased.lease.session);
        Self::Planned(Box::new(plan), over)
    }

    /// Returns the events that the turn serves, and the upper bound of its authority.
    fn plan<'s>(&'s self, run: &'s Run) -> (Plan, Option<&'s Authority>) {
        match self {
            Self::Mailbox => (run.plan(), None),
            Self::Answers(_) => {
                (run.plan_of_answers(), run.state.awaiting.as_ref().map(|awaiting| &awaiting.authority))
            }
            Self::Recorded(recorded) => (run.plan_of(recorded), Some(&recorded.authority)),
            Self::Dead(plan) | Self::Planned(plan, _) => ((**plan).clone(), None),
        }
    }

    /// Returns why the turn is the last of its task, if the checkpoint says so.
    fn last(&self) -> Option<Last> {
        match self {
            Self::Recorded(recorded) => recorded.last.clone(),
            Self::Mailbox | Self::Planned(..) | Self::Answers(_) | Self::Dead(_) => None,
        }
    }

    async fn turn(self, worker: &Worker, leased: &mut Leased, setting: Box<Setting>) -> Result<(Turn, Action), Stop> {
        let now = worker.venue.now();
        // A checkpoint has its own count of calls.
        let job = setting.plan.job();
        let calls_before = (!matches!(self, Self::Recorded(_))).then(|| waits::calls_before(leased, job));
        let (mut turn, action) = match self {
            Self::Dead(_) => Turn::give_up(setting, now),
            Self::Recorded(recorded) => {
                let outcomes = once::recorded_outcomes(leased, &recorded);
                Turn::resume(setting, *recorded, &outcomes, now)
            }
            Self::Answers(decided) => {
                let outcomes = once::recorded_awaiting_outcomes(leased);
                Turn::settle(setting, answers::exchange(worker, leased).await?, decided, &outcomes)
            }
            Self::Planned(_, Some(reason)) => {
                Turn::refuse(setting, ErrorCode::CapDenied, &format!("CAP_DENIED: {reason}"), now)
            }
            Self::Mailbox | Self::Planned(_, None) => match setting.check_entities() {
                Ok(()) => Turn::begin(setting, now),
                Err(error) => Turn::refuse(setting, ErrorCode::EntityIdsRequired, &error.to_string(), now),
            },
        };
        if let Some(calls) = calls_before {
            turn.pay(calls);
        }
        Ok((turn, action))
    }
}

/// Runs one turn of a leased session. Returns whether the lease is still held.
pub(super) async fn run(worker: &Worker, leased: &mut Leased, agent: &AgentRecord, start: Start) -> Result<bool, Stop> {
    let owner: Owner = leased.lease.owner.clone();
    let (policy, version) = known::policy(worker, &owner, leased.ground.policy).await?;
    let start = start.or(worker, leased).under(&policy, leased, agent);
    let (plan, before) = start.plan(&leased.run);
    let before = before.cloned();
    let bare = plan.bare(agent).map(Box::new);
    let agent = bare.as_deref().unwrap_or(agent);
    let job = plan.job().cloned();
    let setting = setting(worker, leased, agent, plan, &policy, (before, start.last())).await?;
    leased.cancelled = leased.stops.serve(job.as_ref());
    let _served = job.as_ref().map(|job| worker.control.serve(&owner, job, &leased.cancelled));
    let (setting, workspace, pinned) = Box::pin(begin(&worker.venue, agent, setting, leased.expired)).await?;
    // Prompt and calls use the agent with its pins resolved; the commit writes the agent as it is configured.
    let meant = pinned.as_deref().unwrap_or(agent);
    let ground = Ground { workspace, policy: version };
    let approved = matches!(start, Start::Answers(_));
    let (mut turn, mut action) = start.turn(worker, leased, setting).await?;
    loop {
        if matches!(action, Action::Ask(_)) {
            // Renewed before anything is reserved: the reservation is named by the epoch that the next holder knows.
            keeper::assure(worker, leased).await?;
        }
        if let Some(stage) = stage_of(&action) {
            stage.enter_turn(&leased.lease.session, turn.setting().turn);
        }
        let observed = match action {
            Action::Gather => Box::pin(context::gather(worker, leased, &ground, meant, &turn)).await?,
            Action::Ask(mut request) => {
                let _room = media::load(worker, leased, &turn, &mut request).await?;
                match fallback::ask(worker, leased, &turn, *request).await? {
                    Asked::Made(observed, calls) => {
                        turn.pay(calls);
                        *observed
                    }
                    Asked::Wait(wait, calls) => {
                        let deadline = deadline(&turn);
                        turn.pay(calls);
                        waits::remember_calls(worker, leased, &turn).await?;
                        return waits::give_back_until(worker, leased, wait, deadline).await;
                    }
                }
            }
            Action::Record(recorded) => {
                let hide = |path: &str, arguments: &mut Value| {
                    dispatch::hide(&worker.venue.catalog, path, arguments);
                };
                turn.hide(hide);
                record::record(worker, leased, recorded.without_hidden(hide)).await?
            }
            Action::Call(planned) => {
                let tools: Vec<_> = planned.iter().map(|(_, call)| call.tool.as_str()).collect();
                live::calls(worker, job.as_ref(), turn.setting().turn, &tools).await;
                Box::pin(calls::make(worker, leased, &ground, meant, &turn, &planned, approved)).await?
            }
            Action::Suspend { reason } => {
                waits::remember_calls(worker, leased, &turn).await?;
                return Box::pin(waits::suspend(worker, leased, agent, &reason)).await;
            }
            Action::Wait { reason } => {
                let known = (deadline(&turn), &turn);
                return Box::pin(waits::unavailable(worker, leased, &reason, known)).await;
            }
            Action::Commit(decision) => {
                return Box::pin(commit::commit(worker, leased, &ground, agent, &turn, *decision)).await;
            }
        };
        action = turn.step(observed, worker.venue.now());
    }
}

/// Returns the deadline of the request that the turn serves; `None` for the last turn of a task.
fn deadline(turn: &Turn) -> Option<Millis> {
    turn.setting().purse.deadline.filter(|_| turn.setting().last.is_none()).map(|deadline| deadline.at)
}

/// Builds the input of the turn. Its authority is the present one, narrowed to that of the checkpoint if there is one.
async fn setting(
    worker: &Worker,
    leased: &mut Leased,
    agent: &AgentRecord,
    plan: Plan,
    policy: &Policy,
    (before, last): (Option<Authority>, Option<Last>),
) -> Result<Box<Setting>, Stop> {
    let place = (&leased.lease.owner, &leased.lease.session);
    let mut setting = Box::new(Setting::next(place, agent, &leased.run, plan, policy, worker.venue.day()));
    if let Some(before) = &before {
        setting.authority = setting.authority.within(before);
    }
    if let Some((today, counted)) = waits::counted_before(leased, setting.plan.job()) {
        (setting.state.today, setting.counted) = (Some(today), counted);
    }
    if let Some(turn) = setting.state.goals.top().map(|frame| frame.turn) {
        setting.opener = transcript::record(worker, leased, turn).await?.map(Box::new);
    }
    setting.last = last.or(setting.last);
    Ok(setting)
}

const fn stage_of(action: &Action) -> Option<Stage> {
    match action {
        Action::Gather => Some(Stage::Context),
        Action::Ask(_) => Some(Stage::Model),
        Action::Record(_) => Some(Stage::Record),
        Action::Call(_) => Some(Stage::Tools),
        Action::Commit(_) => Some(Stage::Commit),
        Action::Wait { .. } | Action::Suspend { .. } => None,
    }
}
