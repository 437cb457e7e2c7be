//! Stage 6 for resources: each call is made with the grants and the mode of its moment.

use super::answers::{self, ReadyCall};
use super::errors::error_outcome;
use super::recorded_calls::BegunCall;
use super::round::CallRound;
use crate::domain::authority::ResourcePath;
use crate::domain::authority::envelope::AccessMode;
use crate::domain::call::ToolTarget;
use crate::domain::call::{Outcome, PlannedCall, SentMarks};
use crate::domain::context::result::ResultRest;
use crate::domain::decode;
use crate::domain::ids::{EventId, VenueIdSubject};
use crate::domain::limits::OPERATION_TIME;
use crate::domain::origin::SourceRead;
use crate::domain::resource::memory::MemoryAuthor;
use crate::domain::resource::{Ability, HeldNamespaces, NamedResource, prefix};
use crate::domain::turn::CallOutcome;
use crate::venue::operation::{NO_SECTIONS, Need, OpError, Reads};
use crate::venue::resources::{RegisteredProvider, ResourceAccess, ResourceCall};
use crate::worker::lease::RunStop;
use serde_json::Value;
use std::time::Duration;

/// A call of a resource's tool, and its index in the reply.
pub(crate) struct ResourceToolCall<'a> {
    pub(crate) index: u32,
    pub(crate) call: &'a PlannedCall,
    pub(crate) resource: &'a str,
    pub(crate) tool: &'a str,
}

/// Calls a resource's tool. A write that takes effect at once is recorded before and after it; if an earlier holder has
/// begun it and not recorded its end, it is made again under its key.
pub(crate) async fn call(
    round: &CallRound<'_>,
    called: ResourceToolCall<'_>,
    arguments: &Value,
) -> Result<CallOutcome, RunStop> {
    if let Some(outcome) = round.earlier_outcome(called.index) {
        return Ok(outcome);
    }
    let (made, begun) = make_call(round, &called, arguments).await?;
    let used = round.workspace().all_uses().await;
    let needs = used
        .into_iter()
        .filter(|(index, _)| *index == called.index)
        .map(|(_, used)| Need { ability: used.ability.as_str(), resource: ResourcePath::namespace(&used.namespace) });
    let mut used = round.used_capabilities(&needs.collect::<Vec<_>>());
    used.dedup();
    let made = made.with_needs(used);
    if let Some(begun) = begun {
        round.end(&begun, &made).await?;
    }
    Ok(made)
}

/// Makes the call. Returns its outcome, and its record if it took effect at once.
async fn make_call(
    round: &CallRound<'_>,
    called: &ResourceToolCall<'_>,
    arguments: &Value,
) -> Result<(CallOutcome, Option<BegunCall>), RunStop> {
    let (made, begun) = match run(round, called, arguments).await {
        Ok(ResourceCallResult::Done(Ok(value), begun)) => {
            let reads = read_namespaces(round, called).await;
            // The result of a write at once may hold anything and can't be had again; other calls can be repeated for
            // less.
            let rest = if begun.is_some() { ResultRest::Lost } else { ResultRest::CallAgain };
            let text = round.results.show(called.index, decode::limit_depth(value), |_| rest);
            (CallOutcome { reads, ..CallOutcome::from_text(Outcome::Ok, text) }, begun)
        }
        Ok(ResourceCallResult::Done(Err(error), begun)) => (error_outcome(error)?, begun),
        Ok(ResourceCallResult::AwaitsApproval(outcome)) => (*outcome, None),
        Err(error) => (error_outcome(error)?, None),
    };
    if begun.is_none() {
        return Ok((made, None));
    }
    let sent = round.marks.lock().get(&called.index).cloned();
    Ok((CallOutcome { sent, ..made.with_outward_effect() }, begun))
}

/// Returns the namespaces that a call has read.
async fn read_namespaces(round: &CallRound<'_>, called: &ResourceToolCall<'_>) -> Vec<SourceRead> {
    let uses = round.workspace().all_uses().await.into_iter();
    let read = uses.filter(|(index, used)| *index == called.index && used.ability == Ability::Read);
    let seen = read.map(|(_, used)| {
        let on = ResourcePath::namespace(&used.namespace);
        let allowed = round.caller.authority.justification(Ability::Read.as_str(), &on);
        SourceRead { through: called.call.tool.clone(), allowed, ..SourceRead::new(on.to_string()) }
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort();
    seen.dedup();
    seen
}

enum ResourceCallResult {
    /// The call was made; with its record if it took effect at once.
    Done(Result<Value, OpError>, Option<BegunCall>),
    /// The call waits for approval.
    AwaitsApproval(Box<CallOutcome>),
}

async fn run(
    round: &CallRound<'_>,
    called: &ResourceToolCall<'_>,
    arguments: &Value,
) -> Result<ResourceCallResult, OpError> {
    let ResourceToolCall { index, call, resource, tool } = *called;
    let turn_input = round.turn_input();
    let declared = turn_input.config.resources.get(resource);
    let declared = declared.ok_or_else(|| OpError::NotFound(format!("there is no resource `{resource}` any more")))?;
    let found = round.worker.venue.catalog.resources.find(declared.kind);
    let found = found.ok_or_else(|| OpError::NotFound(format!("nothing provides the kind `{}`", declared.kind)))?;
    let held = HeldNamespaces::from_authority(&round.caller.authority);
    // As it was offered: authority handed on is bound by all resources of the kind together.
    let mode = round.worker.venue.catalog.resources.mode(declared, &turn_input.mandate.envelope, &held);
    let (arguments, writes) = check_arguments(found, called, mode, arguments)?;
    if writes && let Some(outcome) = ask_person(round, called, &held, &arguments) {
        return Ok(ResourceCallResult::AwaitsApproval(Box::new(outcome)));
    }
    let workspace = round.workspace();
    let venue = &round.worker.venue;
    let prefix = prefix(resource);
    let NamedResource { resource: config, .. } = declared;
    let access = ResourceAccess {
        workspace,
        held: &held,
        settings: &config.settings,
        resource,
        prefix: &prefix,
        key: &venue.key,
        now: venue.now(),
    };
    let source = MemoryAuthor {
        agent: turn_input.session.agent.to_string(),
        session: Some(turn_input.session.session.to_string()),
        job: turn_input.plan.job().map(ToString::to_string),
    };
    let (owner, session, turn, instance) =
        (&turn_input.owner, &turn_input.session, round.turn(), call.instance.as_deref());
    let start = round.reply_turn.start.time_in_ids();
    let place = VenueIdSubject::Call { owner, session, turn, call: index, instance, start };
    let key = EventId::of_venue(&venue.key, place).to_string();
    let reads = Reads::default();
    let marks = round.invocation(index, call, &NO_SECTIONS, &reads).sent_marks();
    let marks = SentMarks { key: Some(key.clone()), ..marks };
    let request = ResourceCall { access, name: &call.tool, index, source, key, marks: marks.clone() };
    let limit = turn_input.config.limits.tool_timeout.map_or(OPERATION_TIME, Duration::from_secs).min(OPERATION_TIME);
    let at_once = writes && found.provider.writes_at_once();
    if at_once {
        round.marks.lock().insert(index, marks);
    }
    let begun =
        if at_once { Some(round.begin(index, call, &call.tool, true).await.map_err(stop_to_error)?) } else { None };
    let done = tokio::time::timeout(limit, found.provider.call(&request, tool, &arguments)).await;
    let late = |_| {
        let text = format!("`{}` took longer than {} s", call.tool, limit.as_secs());
        Err(if at_once { OpError::OutcomeUnknown(text) } else { OpError::Timeout(text) })
    };
    Ok(ResourceCallResult::Done(done.unwrap_or_else(late), begun))
}

fn stop_to_error(stop: RunStop) -> OpError {
    match stop {
        RunStop::Lost => OpError::Fenced,
        RunStop::Store(error) => OpError::Store(error),
    }
}

/// Asks for approval where the owner's policy requires it for a granted namespace.
fn ask_person(
    round: &CallRound<'_>,
    called: &ResourceToolCall<'_>,
    held: &HeldNamespaces,
    arguments: &Value,
) -> Option<CallOutcome> {
    let ResourceToolCall { index, call, resource, tool } = *called;
    let target = ToolTarget::Resource { resource: resource.to_owned(), tool: tool.to_owned() };
    let authority = &round.caller.authority;
    let ability = Ability::Write.as_str();
    let needs = held
        .with_ability(Ability::Write)
        .iter()
        .map(|namespace| Need { ability, resource: ResourcePath::namespace(namespace) });
    let needs = needs.filter(|need| authority.permits(need.ability, &need.resource).is_ok()).collect();
    answers::ask_person(
        round,
        &ReadyCall { index, call, operation: &call.tool, capabilities: needs, target, arguments },
    )
}

/// Returns the final arguments of a call that the mode permits, and whether it writes. No error shows a bound value.
fn check_arguments(
    found: &RegisteredProvider,
    called: &ResourceToolCall<'_>,
    mode: AccessMode,
    arguments: &Value,
) -> Result<(Value, bool), OpError> {
    let ResourceToolCall { call: PlannedCall { tool: name, injection, .. }, tool, .. } = *called;
    let known = found.tools.iter().find(|(known, _)| known.name == tool);
    let (known, validator) = known.ok_or_else(|| OpError::NotFound(format!("there is no tool `{name}` any more")))?;
    if known.writes && mode == AccessMode::Read {
        return Err(OpError::Denied(format!(
            "Capability denied: {name} writes, and this resource can only be read here. Retrying the same call will \
             not help."
        )));
    }
    let mut arguments = if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments.clone() };
    injection.strip(&mut arguments);
    let arguments = injection.apply(arguments).map_err(|unresolved| OpError::Failed(unresolved.to_string()))?;
    let problems: Vec<String> = validator
        .iter_errors(&arguments)
        .take(5)
        .map(|error| {
            let place = error.instance_path().to_string();
            let text = if injection.is_empty() { error.to_string() } else { error.masked().to_string() };
            if place.is_empty() { text } else { format!("at `{place}`: {text}") }
        })
        .collect();
    if problems.is_empty() {
        return Ok((arguments, known.writes));
    }
    Err(OpError::Invalid(format!("arguments of `{name}` are not valid: {}", problems.join("; "))))
}
