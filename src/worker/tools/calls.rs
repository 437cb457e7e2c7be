//! Stage 6: makes the tool calls of a reply, each at most as often as its operation allows.

use super::answers::{self, ReadyCall};
use super::errors::error_outcome;
use super::recorded_calls::recorded_call_outcomes;
use super::results::CallResults;
use super::round::CallRound;
use super::{delegates, harness, resources};
use crate::domain::a2a::name::{agent_of_path, server_id};
use crate::domain::agent::AgentRecord;
use crate::domain::authority::HIDDEN;
use crate::domain::authority::envelope::Envelope;
use crate::domain::call::ToolTarget;
use crate::domain::call::{Outcome, PlannedCall, PublishedVersion, ResolvedCall};
use crate::domain::call::{call_effect, operation_effect};
use crate::domain::context::result::{ResultRest, ResultRoom};
use crate::domain::external;
use crate::domain::ids::{AgentId, QueueName};
use crate::domain::job::Parent;
use crate::domain::lattice::address::localise;
use crate::domain::lattice::catalog::{DECLARED_JOBS, RUN};
use crate::domain::load::LoadsByLevel;
use crate::domain::mcp::name::{split_path, tool_server_id};
use crate::domain::principal::Principal;
use crate::domain::scope;
use crate::domain::scope::ScopedSection;
use crate::domain::trace::TraceParent;
use crate::domain::turn::endings;
use crate::domain::turn::{CallOutcome, Observation, Turn, TurnInput};
use crate::venue::operation::pin::PinReader;
use crate::venue::operation::{
    Caller, CatalogView, Effect, Invocation, NO_SECTIONS, OpError, Reads, RegisteredOperation, StaleOperationError,
    dispatch,
};
use crate::venue::outbound;
use crate::worker::lease::{LeasedSession, RunStop, keeper, records};
use crate::worker::state::Worker;
use crate::worker::turn_base::TurnBase;
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;

/// The calls of a reply.
#[derive(Clone, Copy)]
pub(crate) struct RequestedCalls<'a> {
    /// Calls, each with its index in the reply.
    pub(crate) planned: &'a [(u32, PlannedCall)],
    /// Whether a person has approved them.
    pub(crate) approved: bool,
}

/// Makes the calls of a reply. Calls on the workspace run in the order of the reply, so that each sees the writes of
/// those before it; the others run at the same time.
pub(crate) async fn make_calls(
    worker: &Worker,
    leased: &LeasedSession,
    turn_base: &TurnBase,
    agent: &AgentRecord,
    turn: &Turn,
    calls: RequestedCalls<'_>,
) -> Result<Observation, RunStop> {
    let RequestedCalls { planned, approved } = calls;
    let turn_input = turn.input();
    let (policy, _) = records::load_policy(worker, &turn_input.owner, leased.versions.policy).await?;
    let authority = agent.authority(&policy, &turn_input.mandate.envelope, turn_base.workspace.scope());
    let authority = authority.limit_to(&turn_input.authority);
    let mut request = Envelope { lineage: turn_input.mandate.lineage(), ..turn_input.mandate.envelope.clone() };
    request.hides_values |= turn_input.config.hides_values() && !authority.names_place(HIDDEN);
    let round = CallRound {
        worker,
        leased,
        turn_base,
        turn_input,
        agent,
        results: CallResults::new(ResultRoom::for_agent(&turn_input.config, turn.bytes_left()), planned.len()),
        caller: Caller {
            owner: turn_input.owner.clone(),
            name: format!("agent:{}", turn_input.session.agent),
            authority,
            operator: false,
            // Delegates are bound by the modes of this agent's resources.
            envelope: worker
                .venue
                .catalog
                .resources
                .clamp_envelope(request, &turn_input.config)
                .charge_to(&turn_input.purse),
            principal: Principal::ANYBODY,
        },
        parent: parent(turn),
        reply_turn: turn.reply_turn(),
        effects: planned.iter().filter_map(|(index, call)| Some((*index, call_effect(call)?))).collect(),
        loads: Mutex::new(LoadsByLevel {
            agent: agent.state.loads.clone(),
            session: turn_input.state.loads.clone(),
            frame: turn_input.state.goals.top().map(|frame| frame.loads.clone()),
        }),
        known_outcomes: Mutex::new(
            recorded_call_outcomes(leased, planned.iter().map(|(index, call)| (*index, call))).into_iter().collect(),
        ),
        marks: Mutex::default(),
        needs_approval: (!approved).then_some(&policy.approvals),
    };
    let outcomes = tokio::select! {
        biased;
        () = leased.stops.lost.cancelled() => return Err(RunStop::Lost),
        () = leased.cancelled.cancelled() => return Ok(Observation::Cancelled(round.known_outcomes())),
        outcomes = round.make_all(planned) => outcomes?,
    };
    Ok(Observation::Called(outcomes))
}

/// Returns the parent of jobs that this turn starts.
fn parent(turn: &Turn) -> Parent {
    let turn_input = turn.input();
    Parent { session: turn_input.session.clone(), job: turn_input.plan.job().cloned() }
}

/// Groups of operations that read or write the workspace.
const WORKSPACE_GROUPS: [&str; 4] = ["v/ops/lattice/", "v/ops/asset/", "v/ops/json/", "v/ops/schema/"];

/// Whether a call belongs to the ordered ones; a call that can't be made does.
fn is_workspace_call(catalog: &CatalogView, call: &PlannedCall) -> bool {
    let Ok(ResolvedCall { target, arguments }) = &call.what else { return true };
    let Some(path) = target.operation() else { return !matches!(target, ToolTarget::Delegate(_)) };
    let on_tree = |path: &str| WORKSPACE_GROUPS.iter().any(|group| path.starts_with(group));
    if path != RUN {
        return on_tree(path);
    }
    let settled = dispatch::resolve_call(catalog, path, arguments.clone(), false);
    settled.map_or(true, |settled| on_tree(&settled.found.spec.path))
}

impl CallRound<'_> {
    async fn make_all(&self, planned: &[(u32, PlannedCall)]) -> Result<Vec<CallOutcome>, RunStop> {
        let catalog = self.catalog();
        let (on_tree, beside): (Vec<_>, Vec<_>) =
            planned.iter().partition(|(_, call)| is_workspace_call(catalog, call));
        let ordered = async {
            let mut outcomes = Vec::new();
            for (index, call) in on_tree {
                outcomes.push((*index, self.make_one(*index, call).await?));
            }
            Ok::<_, RunStop>(outcomes)
        };
        let beside = join_all(
            beside
                .into_iter()
                .map(|(index, call)| async move { Ok::<_, RunStop>((*index, self.make_one(*index, call).await?)) }),
        );
        let (ordered, beside) = tokio::join!(ordered, beside);
        let mut outcomes = ordered?;
        for outcome in beside {
            outcomes.push(outcome?);
        }
        outcomes.sort_by_key(|(index, _)| *index);
        Ok(self.results.fit_to_room(outcomes))
    }

    /// Makes a call, and records when it was first made.
    async fn make_one(&self, index: u32, call: &PlannedCall) -> Result<CallOutcome, RunStop> {
        let now = self.worker.venue.now();
        let mut span = self.leased.spans.as_ref().map(|spans| spans.tool(index, call, self.span_place(index, call)));
        let outcome = self.make_now(index, call).await?;
        if let Some(span) = &mut span {
            span.finish_call(outcome.outcome);
        }
        let is_made = outcome.outcome.is_made() && outcome.asked.is_none() && call.what.is_ok();
        let began = outcome.began.or_else(|| is_made.then(|| self.earlier_start(index).unwrap_or(now)));
        Ok(CallOutcome { began, ..outcome })
    }

    async fn make_now(&self, index: u32, call: &PlannedCall) -> Result<CallOutcome, RunStop> {
        // Sections are handed on as they were shown, if the authority still allows to read them.
        let lost = call.scoped.iter().find_map(|scoped| scoped.check_authority(&self.caller.authority).err());
        let outcome = match &call.what {
            Ok(_) if let Some(denied) = &lost => CallOutcome::from_text(Outcome::Denied, denied.to_string()),
            Err(unmade) => unmade.into(),
            Ok(ResolvedCall {
                target:
                    target @ (ToolTarget::Complete
                    | ToolTarget::Fail
                    | ToolTarget::CompleteGoal
                    | ToolTarget::FailGoal
                    | ToolTarget::Subgoal
                    | ToolTarget::Compact),
                arguments,
            }) => endings::call_outcome(self.turn_input, target, arguments),
            Ok(ResolvedCall { target: ToolTarget::Load, arguments }) => harness::load(self, arguments),
            Ok(ResolvedCall { target: ToolTarget::Unload, arguments }) => harness::unload(self, arguments),
            Ok(ResolvedCall { target: ToolTarget::MoreTools, arguments }) => harness::more_tools(self, arguments),
            Ok(ResolvedCall { target: ToolTarget::Latent(focus), arguments }) => {
                delegates::call_latent(self, index, call, arguments, focus)
            }
            Ok(ResolvedCall { target: ToolTarget::Delegate(to), arguments }) => {
                Box::pin(delegates::delegate(self, index, call, to, arguments)).await?
            }
            Ok(ResolvedCall { target: ToolTarget::Resource { resource, tool }, arguments }) => {
                let called = resources::ResourceToolCall { index, call, resource, tool };
                resources::call(self, called, arguments).await?
            }
            Ok(ResolvedCall { target: ToolTarget::Operation(_), .. })
                if let Some(stale) = self.stale_outcome(index, call) =>
            {
                stale
            }
            Ok(ResolvedCall { target: ToolTarget::Operation(path), arguments }) => {
                match dispatch::inject(self.catalog(), path, arguments.clone(), &call.injection) {
                    Ok(arguments) => self.operation(index, call, path, arguments).await?,
                    Err(error) => error_outcome(error)?,
                }
            }
        };
        self.worker.venue.metrics.count_tool_call(outcome.outcome.as_str());
        if outcome.outcome == Outcome::Denied {
            self.worker.venue.metrics.progress.count_denial("tool");
        }
        let outcome = if outcome.outcome == Outcome::Ok {
            outcome
        } else {
            CallOutcome { text: call.injection.without_values(outcome.text, outbound::spellings), ..outcome }
        };
        // A delegate reports its sections with its result.
        let is_operation = matches!(&call.what, Ok(ResolvedCall { target: ToolTarget::Operation(_), .. }));
        Ok(match scope::empty_hand_off_note(&call.scoped).filter(|_| is_operation && outcome.outcome == Outcome::Ok) {
            Some(told) => CallOutcome { text: format!("{}\n{told}", outcome.text), ..outcome },
            None => outcome,
        })
    }

    /// Returns the outcome of a call whose published operation was withdrawn or changed after the call was decided:
    /// before this turn began, or until now. `None` if the call may be made.
    fn stale_outcome(&self, index: u32, call: &PlannedCall) -> Option<CallOutcome> {
        let shown = call.published.as_ref()?;
        let stale = self.check_version(shown).err()?;
        Some(self.earlier_or(index, CallOutcome::from_text(Outcome::Unknown, stale.to_string())))
    }

    /// Checks that a published operation has this version in the turn, and has it still.
    fn check_version(&self, shown: &PublishedVersion) -> Result<(), StaleOperationError> {
        self.catalog().check_version(shown)?;
        if self.catalog().is_of_view(&shown.path) {
            return Ok(());
        }
        let TurnInput { owner, session, .. } = self.turn_input;
        self.worker.venue.catalog_of_agent(owner, &session.agent).check_version(shown)
    }

    /// Checks an operation whose version the call doesn't record: it was published after the decision, or a pin stands
    /// for it, and which operation that is is known only when the call is made.
    fn check_unrecorded(
        &self,
        call: &PlannedCall,
        found: &RegisteredOperation,
        pinned: bool,
    ) -> Result<(), StaleOperationError> {
        match found.published_version() {
            Some(shown) if call.published.is_none() && pinned => self.check_version(&shown),
            Some(shown) if call.published.is_none() => Err(shown.into()),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the outcome of a call that can't be made now: that of an earlier holder who has begun it, or this one.
    fn earlier_or(&self, index: u32, outcome: CallOutcome) -> CallOutcome {
        self.lock().get(&index).cloned().unwrap_or(outcome)
    }

    /// Runs an operation with its final arguments, bound ones included.
    async fn operation(
        &self,
        index: u32,
        call: &PlannedCall,
        path: &str,
        arguments: Value,
    ) -> Result<CallOutcome, RunStop> {
        let masked = !call.injection.is_empty() || self.needs_approval.is_none();
        let mut arguments = arguments;
        if let Err(error) = localise(&self.turn_input.owner, &mut arguments) {
            return error_outcome(OpError::Denied(error.to_string()));
        }
        let pins = PinReader {
            venue: &self.worker.venue,
            catalog: self.catalog(),
            owner: &self.turn_input.owner,
            authority: &self.caller.authority,
            workspace: self.workspace(),
        };
        let pinned = match pins.resolve_inner(path, &mut arguments).await {
            Ok(pinned) => pinned,
            Err(error) => return Ok(self.earlier_or(index, error_outcome(error)?)),
        };
        let settled = match dispatch::resolve_call(self.catalog(), path, arguments, masked) {
            Ok(settled) => settled,
            Err(OpError::NotFound(text)) => {
                return Ok(self.earlier_or(index, CallOutcome::from_text(Outcome::Unknown, text)));
            }
            Err(error) => return Ok(self.earlier_or(index, error_outcome(error)?)),
        };
        // The approval is asked for by the session that makes the call.
        let needs = match settled.needs() {
            Ok(needs) => needs,
            Err(error) => return error_outcome(error),
        };
        let dispatch::ResolvedOperation { found, arguments, .. } = &settled;
        let runs: &str = &found.spec.path;
        if pinned && operation_effect(runs).is_some() {
            // The number of children of a reply is known before its first call, when pins aren't resolved.
            let text = format!(
                "error: a pin of `{runs}` isn't run by its path; call that operation, or have the pin among your tools"
            );
            return Ok(CallOutcome::from_text(Outcome::Arguments, text));
        }
        if let Err(stale) = self.check_unrecorded(call, found, pinned) {
            return Ok(self.earlier_or(index, CallOutcome::from_text(Outcome::Unknown, stale.to_string())));
        }
        let (used, target) = (self.used_capabilities(&needs), ToolTarget::Operation(runs.to_owned()));
        if let Some(asked) = answers::ask_person(
            self,
            &ReadyCall { index, call, operation: runs, capabilities: needs, target, arguments },
        ) {
            return Ok(asked.with_needs(used));
        }
        self.note_marks(index, call, &settled);
        let made = self.invoke(index, call, &settled);
        let made = match found.spec.effect {
            Effect::Idempotent if call.published.is_some() => self.make_repeatable(index, call, runs, made).await?,
            Effect::Idempotent if found.version.is_none() => {
                keeper::while_leased(self.worker, self.leased, made).await??.with_outward_effect()
            }
            // The version that an earlier holder has begun behind a pin is recorded nowhere.
            Effect::Once | Effect::Idempotent => self.make_once(index, call, runs, &used, made).await?,
            Effect::Read | Effect::Buffered => made.await?,
        };
        Ok(made.with_needs(used))
    }

    /// Returns the place of a call's span, as its request outside the venue names it.
    fn span_place(&self, index: u32, call: &PlannedCall) -> Option<TraceParent> {
        let reads = Reads::default();
        self.invocation(index, call, &NO_SECTIONS, &reads).span_place()
    }

    /// Notes the marks of a call with an effect that leaves the venue, for the record of its begin.
    fn note_marks(&self, index: u32, call: &PlannedCall, settled: &dispatch::ResolvedOperation) {
        let effect = settled.found.spec.effect;
        if settled.goes_outside() && matches!(effect, Effect::Once | Effect::Idempotent) {
            let reads = Reads::default();
            let marks = self.invocation(index, call, &NO_SECTIONS, &reads).sent_marks();
            self.marks.lock().insert(index, marks);
        }
    }

    async fn invoke(
        &self,
        index: u32,
        call: &PlannedCall,
        settled: &dispatch::ResolvedOperation,
    ) -> Result<CallOutcome, RunStop> {
        let dispatch::ResolvedOperation { found, arguments, inner, .. } = settled;
        let (path, named): (&str, &str) = (&found.spec.path, inner.as_deref().unwrap_or(&call.tool));
        let scoped = scope::contents_by_key(&call.scoped);
        let reads = Reads::default();
        let invocation = Invocation { named, ..self.invocation(index, call, &scoped, &reads) };
        let mut called = dispatch::invoke_resolved(&invocation, settled.clone()).await;
        // The answer of a publish names its queue, whatever the outcome of the job.
        if let (Ok(output), external::PUBLISH, Some(shown)) = (&mut called, path, call.injection.placeholder("queue")) {
            output.value["queue"] = shown.into();
        }
        let is_read = found.spec.effect == Effect::Read;
        let started = called.as_ref().ok().and_then(|output| output.value["queue"].as_str()).map(str::to_owned);
        let rest = |result: &Value| ResultRest::for_result(Some(path), arguments, result, is_read);
        let made = self.result_outcome(index, called, &reads, || server(path, arguments, started.as_deref()), rest)?;
        // Its result may show the sections beside its arguments.
        let beside = call.scoped.iter().flat_map(ScopedSection::reads_with_source);
        Ok(CallOutcome { reads: made.reads.iter().cloned().chain(beside).collect(), ..made })
    }
}

/// Returns the agent that serves the child job of a call; `queue` is the one that a result names.
fn server(path: &str, arguments: &Value, queue: Option<&str>) -> AgentId {
    let queue = if path.starts_with(DECLARED_JOBS) { queue } else { arguments["queue"].as_str() };
    if (path == external::PUBLISH || path.starts_with(DECLARED_JOBS))
        && let Some(queue) = queue.and_then(|name| QueueName::new(name).ok())
    {
        return external::server_id(&queue);
    }
    if let Some(name) = agent_of_path(path) {
        return server_id(&name);
    }
    if let Some((name, _)) = split_path(path) {
        return tool_server_id(&name);
    }
    let named = arguments["agentId"].as_str().and_then(|id| AgentId::new(id).ok());
    named.unwrap_or_else(|| AgentId::new("unknown").expect("a legal id"))
}
