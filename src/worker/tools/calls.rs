//! Stage 6: makes the tool calls of a reply, each at most as often as its operation allows.

use super::answers::{self, Made};
use super::once::outcomes_of;
use super::results::Results;
use super::{hand, harness, resources};
use crate::domain::agent::AgentRecord;
use crate::domain::authority::envelope::Envelope;
use crate::domain::authority::{Capability, HIDDEN};
use crate::domain::call::ToolTarget;
use crate::domain::call::{Causes, causes, causes_of};
use crate::domain::call::{Outcome, PlannedCall, ReplyTurn, Resolved};
use crate::domain::context::result::{Rest, ResultRoom};
use crate::domain::external;
use crate::domain::ids::{AgentId, QueueName};
use crate::domain::job::Parent;
use crate::domain::lattice::catalog::RUN;
use crate::domain::lattice::own::localise;
use crate::domain::load::{LoadChange, Loads};
use crate::domain::principal::Principal;
use crate::domain::scope;
use crate::domain::scope::ScopedSection;
use crate::domain::turn::ends;
use crate::domain::turn::{CallOutcome, Observed, Setting, Turn};
use crate::domain::visible::told;
use crate::store::StoreError;
use crate::venue::operation::pin::PinReader;
use crate::venue::operation::{
    Caller, Catalog, Effect, Invocation, Need, OpError, Output, Reads, Site, TurnSite, dispatch,
};
use crate::venue::workspace::Workspace;
use crate::worker::Worker;
use crate::worker::ground::Ground;
use crate::worker::lease::{Leased, Stop, keeper, known};
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Values that all calls of one reply share.
pub(crate) struct Round<'a> {
    pub(crate) worker: &'a Worker,
    pub(super) leased: &'a Leased,
    ground: &'a Ground,
    setting: &'a Setting,
    pub(crate) agent: &'a AgentRecord,
    /// Results of this round, and the bytes left for them.
    pub(super) results: Results,
    pub(crate) caller: Caller,
    parent: Parent,
    turn: u64,
    /// The turn whose reply has the calls.
    pub(super) reply_turn: ReplyTurn,
    children: usize,
    /// Indices of calls that start something elsewhere, and what.
    causes: Vec<(u32, Causes)>,
    /// Loads by level, as changed by the calls before.
    pub(super) loads: Mutex<Loads>,
    /// Outcomes of calls that can't be undone, should the turn be cancelled.
    pub(super) known: Mutex<BTreeMap<u32, CallOutcome>>,
    /// Capabilities that need approval; `None` when these calls are approved.
    consents: Option<&'a [Capability]>,
}

/// Makes the calls of a reply. Calls on the workspace run in the order of the reply, so that each sees the writes of
/// those before it; the others run at the same time.
pub(crate) async fn make(
    worker: &Worker,
    leased: &Leased,
    ground: &Ground,
    agent: &AgentRecord,
    turn: &Turn,
    planned: &[(u32, PlannedCall)],
    approved: bool,
) -> Result<Observed, Stop> {
    let setting = turn.setting();
    let (policy, _) = known::policy(worker, &setting.owner, leased.ground.policy).await?;
    let authority = agent.authority(&policy, &setting.mandate.envelope, ground.workspace.scope());
    let authority = authority.within(&setting.authority);
    let mut request = Envelope { lineage: setting.mandate.lineage(), ..setting.mandate.envelope.clone() };
    request.hides_values |= setting.config.hides_values() && !authority.names(HIDDEN);
    let round = Round {
        worker,
        leased,
        ground,
        setting,
        agent,
        results: Results::new(ResultRoom::of(&setting.config, turn.bytes_left()), planned.len()),
        caller: Caller {
            owner: setting.owner.clone(),
            name: format!("agent:{}", setting.session.agent),
            authority,
            operator: false,
            // Delegates are bound by the modes of this agent's resources.
            envelope: worker.venue.catalog.resources.clamped(request, &setting.config).paid_from(&setting.purse),
            principal: Principal::ANYBODY,
        },
        parent: parent(turn),
        turn: setting.turn,
        reply_turn: turn.reply_turn(),
        children: setting.state.pending.len(),
        causes: planned.iter().filter_map(|(index, call)| Some((*index, causes(call)?))).collect(),
        loads: Mutex::new(Loads {
            agent: agent.state.loads.clone(),
            session: setting.state.loads.clone(),
            frame: setting.state.goals.top().map(|frame| frame.loads.clone()),
        }),
        known: Mutex::new(
            outcomes_of(leased, planned.iter().map(|(index, call)| (*index, call))).into_iter().collect(),
        ),
        consents: (!approved).then_some(&policy.approvals),
    };
    let outcomes = tokio::select! {
        biased;
        () = leased.stops.lost.cancelled() => return Err(Stop::Lost),
        () = leased.cancelled.cancelled() => return Ok(Observed::Cancelled(round.known_outcomes())),
        outcomes = round.all(planned) => outcomes?,
    };
    Ok(Observed::Called(outcomes))
}

/// Returns the parent of jobs that this turn starts.
fn parent(turn: &Turn) -> Parent {
    let setting = turn.setting();
    Parent { session: setting.session.clone(), job: setting.plan.job().cloned() }
}

/// Groups of operations that read or write the workspace.
const TREE: [&str; 4] = ["v/ops/lattice/", "v/ops/asset/", "v/ops/json/", "v/ops/schema/"];

/// Whether a call belongs to the ordered ones; a call that can't be made does.
fn on_the_tree(catalog: &Catalog, call: &PlannedCall) -> bool {
    let Ok(Resolved { target, arguments }) = &call.what else { return true };
    let Some(path) = target.operation() else { return !matches!(target, ToolTarget::Delegate(_)) };
    let on_tree = |path: &str| TREE.iter().any(|group| path.starts_with(group));
    if path != RUN {
        return on_tree(path);
    }
    let settled = dispatch::settle(catalog, path, arguments.clone(), false);
    settled.map_or(true, |settled| on_tree(settled.found.spec.path))
}

impl Round<'_> {
    pub(crate) const fn workspace(&self) -> &Workspace {
        &self.ground.workspace
    }

    pub(crate) const fn setting(&self) -> &Setting {
        self.setting
    }

    /// Returns the entities of the request, if the agent uses them.
    pub(crate) fn entities(&self) -> Option<Vec<String>> {
        self.setting.config.entities(&self.setting.mandate.session_context)
    }

    /// Returns the number of the turn.
    pub(crate) const fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the capabilities that need approval; `None` when these calls are approved.
    pub(crate) const fn consents(&self) -> Option<&[Capability]> {
        self.consents
    }

    /// Applies a change of the loads, which later calls of the reply see.
    pub(crate) fn change(&self, change: &LoadChange) {
        self.loads.lock().apply(change);
    }

    async fn all(&self, planned: &[(u32, PlannedCall)]) -> Result<Vec<CallOutcome>, Stop> {
        let catalog = &self.worker.venue.catalog;
        let ordered = async {
            let mut outcomes = Vec::new();
            for (index, call) in planned.iter().filter(|(_, call)| on_the_tree(catalog, call)) {
                outcomes.push((*index, self.make_one(*index, call).await?));
            }
            Ok::<_, Stop>(outcomes)
        };
        let beside = planned.iter().filter(|(_, call)| !on_the_tree(catalog, call));
        let beside = join_all(
            beside.map(|(index, call)| async move { Ok::<_, Stop>((*index, self.make_one(*index, call).await?)) }),
        );
        let (ordered, beside) = tokio::join!(ordered, beside);
        let mut outcomes = ordered?;
        for outcome in beside {
            outcomes.push(outcome?);
        }
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(self.results.fit(outcomes))
    }

    /// Makes a call, and records when it was first made.
    async fn make_one(&self, index: u32, call: &PlannedCall) -> Result<CallOutcome, Stop> {
        let now = self.worker.venue.now();
        let outcome = self.make_now(index, call).await?;
        let is_made = outcome.outcome.is_made() && outcome.asked.is_none() && call.what.is_ok();
        let began = outcome.began.or_else(|| is_made.then(|| self.began_before(index).unwrap_or(now)));
        Ok(CallOutcome { began, ..outcome })
    }

    async fn make_now(&self, index: u32, call: &PlannedCall) -> Result<CallOutcome, Stop> {
        // Sections are handed on as they were shown, if the authority still allows to read them.
        let lost = call.scoped.iter().find_map(|scoped| scoped.held(&self.caller.authority).err());
        let outcome = match &call.what {
            Ok(_) if let Some(denied) = &lost => CallOutcome::plain(Outcome::Denied, denied),
            Err(unmade) => unmade.into(),
            Ok(Resolved {
                target:
                    target @ (ToolTarget::Complete
                    | ToolTarget::Fail
                    | ToolTarget::CompleteGoal
                    | ToolTarget::FailGoal
                    | ToolTarget::Subgoal
                    | ToolTarget::Compact),
                arguments,
            }) => ends::outcome(self.setting, target, arguments),
            Ok(Resolved { target: ToolTarget::Load, arguments }) => harness::load(self, arguments),
            Ok(Resolved { target: ToolTarget::Unload, arguments }) => harness::unload(self, arguments),
            Ok(Resolved { target: ToolTarget::MoreTools, arguments }) => harness::more_tools(self, arguments),
            Ok(Resolved { target: ToolTarget::Latent(focus), arguments }) => {
                hand::latent(self, index, call, arguments, focus)
            }
            Ok(Resolved { target: ToolTarget::Delegate(to), arguments }) => {
                Box::pin(hand::delegate(self, index, call, to, arguments)).await?
            }
            Ok(Resolved { target: ToolTarget::Resource { resource, tool }, arguments }) => {
                let called = resources::Called { index, call, resource, tool };
                resources::call(self, called, arguments).await?
            }
            Ok(Resolved { target: ToolTarget::Operation(path), arguments }) => {
                let catalog = &self.worker.venue.catalog;
                match dispatch::inject(catalog, path, arguments.clone(), &call.injection) {
                    Ok(arguments) => self.operation(index, call, path, arguments).await?,
                    Err(error) => refused(error)?,
                }
            }
        };
        self.worker.venue.metrics.tool_call(outcome.outcome.as_str());
        let outcome = if outcome.outcome == Outcome::Ok {
            outcome
        } else {
            CallOutcome { text: call.injection.without_values(outcome.text), ..outcome }
        };
        // A delegate reports its sections with its result.
        let is_operation = matches!(&call.what, Ok(Resolved { target: ToolTarget::Operation(_), .. }));
        Ok(match scope::told(&call.scoped).filter(|_| is_operation && outcome.outcome == Outcome::Ok) {
            Some(told) => CallOutcome { text: format!("{}\n{told}", outcome.text), ..outcome },
            None => outcome,
        })
    }

    /// Runs an operation with its final arguments, bound ones included.
    async fn operation(
        &self,
        index: u32,
        call: &PlannedCall,
        path: &str,
        arguments: Value,
    ) -> Result<CallOutcome, Stop> {
        let masked = !call.injection.is_empty() || self.consents.is_none();
        let mut arguments = arguments;
        if let Err(error) = localise(&self.setting.owner, &mut arguments) {
            return refused(OpError::Denied(error.to_string()));
        }
        let pins = PinReader {
            venue: &self.worker.venue,
            owner: &self.setting.owner,
            authority: &self.caller.authority,
            workspace: self.workspace(),
        };
        let pinned = match pins.resolve_inner(path, &mut arguments).await {
            Ok(pinned) => pinned,
            Err(error) => return refused(error),
        };
        let settled = match dispatch::settle(&self.worker.venue.catalog, path, arguments, masked) {
            Ok(settled) => settled,
            Err(OpError::NotFound(text)) => return Ok(CallOutcome::plain(Outcome::Unknown, text)),
            Err(error) => return refused(error),
        };
        // The approval is asked for by the session that makes the call.
        let needs = match settled.needs() {
            Ok(needs) => needs,
            Err(error) => return refused(error),
        };
        let dispatch::Settled { found, arguments, inner, .. } = settled;
        if pinned && causes_of(found.spec.path).is_some() {
            // The number of children of a reply is known before its first call, when pins aren't resolved.
            let text = format!(
                "error: a pin of `{}` isn't run by its path; call that operation, or have the pin among your tools",
                found.spec.path
            );
            return Ok(CallOutcome::plain(Outcome::Arguments, text));
        }
        let named = inner.as_deref().unwrap_or(&call.tool);
        let used = self.used(&needs);
        let (runs, target) = (found.spec.path, ToolTarget::Operation(found.spec.path.to_owned()));
        if let Some(asked) =
            answers::ask_person(self, &Made { index, call, runs, needs, target, arguments: &arguments })
        {
            return Ok(asked.by(used));
        }
        let made = match found.spec.effect {
            Effect::Once => {
                let made = self.invoke(index, call, (named, found.spec.path), &arguments);
                self.once(index, call, found.spec.path, &used, made).await?
            }
            Effect::Idempotent => {
                let made = self.invoke(index, call, (named, found.spec.path), &arguments);
                keeper::held(self.worker, self.leased, made).await??.outward()
            }
            Effect::Read | Effect::Buffered => self.invoke(index, call, (named, found.spec.path), &arguments).await?,
        };
        Ok(made.by(used))
    }

    /// Returns the capabilities that meet these needs.
    pub(crate) fn used(&self, needs: &[Need]) -> Vec<Capability> {
        needs.iter().filter_map(|need| self.caller.authority.used(need.ability, &need.resource)).collect()
    }

    async fn invoke(
        &self,
        index: u32,
        call: &PlannedCall,
        (named, path): (&str, &str),
        arguments: &Value,
    ) -> Result<CallOutcome, Stop> {
        let scoped = scope::map(&call.scoped);
        let reads = Reads::default();
        let invocation = Invocation { named, ..self.invocation(index, call, &scoped, &reads) };
        let called = dispatch::invoke(&invocation, path, arguments.clone()).await;
        let is_read = self.worker.venue.catalog.resolve(path).is_some_and(|found| found.spec.effect == Effect::Read);
        let rest = |result: &Value| Rest::of(Some(path), arguments, result, is_read);
        let made = self.returned(index, called, &reads, (|| server(path, arguments), rest))?;
        // Its result may show the sections beside its arguments.
        let beside = call.scoped.iter().flat_map(ScopedSection::seen);
        Ok(CallOutcome { reads: made.reads.iter().cloned().chain(beside).collect(), ..made })
    }

    /// Returns the invocation that operations receive.
    pub(crate) fn invocation<'a>(
        &'a self,
        index: u32,
        call: &'a PlannedCall,
        scoped: &'a Map<String, Value>,
        reads: &'a Reads,
    ) -> Invocation<'a> {
        // Children that earlier calls start count, in whatever order the calls are made.
        let before = || self.causes.iter().filter(|(at, _)| *at < index);
        let children = before().filter(|(_, causes)| *causes == Causes::Child).count();
        let started = usize::try_from(self.setting.state.children).unwrap_or(usize::MAX);
        Invocation {
            named: &call.tool,
            venue: &self.worker.venue,
            caller: &self.caller,
            workspace: &self.ground.workspace,
            scoped,
            site: Site::Turn(TurnSite {
                lease: &self.leased.lease,
                turn: self.turn,
                call: index,
                instance: call.instance.as_deref(),
                start: self.reply_turn.start,
                handed: &call.scoped,
                mandate: &self.setting.mandate,
                parent: &self.parent,
                children: self.children + children,
                run_children: started.saturating_add(before().count()),
                delegable: self.setting.config.delegable.as_deref(),
                time: self.setting.config.limits.tool_timeout.map(Duration::from_secs),
                hides_values: self.setting.config.hides_values(),
            }),
            reads,
        }
    }

    /// Makes the outcome of an operation's result. `agent`: the agent that serves a child job; `rest`: where the rest
    /// of a large result is.
    pub(crate) fn returned(
        &self,
        index: u32,
        called: Result<Output, OpError>,
        reads: &Reads,
        (agent, rest): (impl FnOnce() -> AgentId, impl FnOnce(&Value) -> Rest),
    ) -> Result<CallOutcome, Stop> {
        match called {
            Ok(output) => Ok(CallOutcome {
                started: output.started.map(|job| (job, agent())),
                reads: reads.seen(),
                ..CallOutcome::plain(Outcome::Ok, self.results.show(index, output.value, rest))
            }),
            // An error may reveal what was read.
            Err(error) => Ok(CallOutcome { reads: reads.seen(), ..refused(error)? }),
        }
    }
}

/// Makes the outcome of an error, or stops the turn.
pub(crate) fn refused(error: OpError) -> Result<CallOutcome, Stop> {
    match error {
        OpError::Fenced => Err(Stop::Lost),
        // The contended write changed nothing, and the model can read what earlier writes left: a turn that began anew
        // couldn't know either.
        OpError::Store(error @ StoreError::Contended { .. }) => Ok(wrong(Outcome::Error, &error)),
        // A retry would not repair a damaged value.
        OpError::Store(error) if error.is_transient() => Err(Stop::Store(error)),
        OpError::Store(error @ (StoreError::Over(_) | StoreError::Oversized(_))) => Ok(wrong(Outcome::Limit, &error)),
        OpError::Store(error) => Ok(wrong(Outcome::Error, &error)),
        OpError::Denied(_) => Ok(CallOutcome::plain(Outcome::Denied, told(error.to_string()))),
        OpError::Invalid(_) | OpError::Arguments { .. } => Ok(wrong(Outcome::Arguments, &error)),
        OpError::Limit(_) => Ok(wrong(Outcome::Limit, &error)),
        OpError::OutcomeUnknown(_) => Ok(CallOutcome::plain(Outcome::OutcomeUnknown, told(error.to_string()))),
        OpError::NotFound(_)
        | OpError::Conflict(_)
        | OpError::Failed(_)
        | OpError::Upstream(_)
        | OpError::Timeout(_) => Ok(wrong(Outcome::Error, &error)),
    }
}

fn wrong(outcome: Outcome, error: &dyn std::fmt::Display) -> CallOutcome {
    CallOutcome::plain(outcome, told(format!("error: {error}")))
}

/// Returns the agent that serves the child job of a call.
fn server(path: &str, arguments: &Value) -> AgentId {
    if path == external::PUBLISH
        && let Some(queue) = arguments["queue"].as_str().and_then(|name| QueueName::new(name).ok())
    {
        return external::server(&queue);
    }
    let named = arguments["agentId"].as_str().and_then(|id| AgentId::new(id).ok());
    named.unwrap_or_else(|| AgentId::new("unknown").expect("a legal id"))
}
