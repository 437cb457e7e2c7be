//! Stage 6 for resources: each call is made with the grants and the mode of its moment.

use super::answers::{self, Made};
use super::calls::{Round, refused};
use super::once::BegunCall;
use crate::domain::authority::ResourcePath;
use crate::domain::authority::envelope::Mode;
use crate::domain::call::ToolTarget;
use crate::domain::call::{Outcome, PlannedCall};
use crate::domain::context::result::Rest;
use crate::domain::decode;
use crate::domain::ids::{EventId, IdOf};
use crate::domain::limits::OPERATION_TIME;
use crate::domain::origin::Seen;
use crate::domain::resource::memory::MemoryAuthor;
use crate::domain::resource::{Ability, Declared, HeldNamespaces, prefix};
use crate::domain::turn::CallOutcome;
use crate::venue::operation::{Need, OpError};
use crate::venue::resources::{Access, RegisteredProvider, ResourceCall};
use crate::worker::lease::Stop;
use serde_json::Value;
use std::time::Duration;

/// A call of a resource's tool, and its index in the reply.
pub(crate) struct Called<'a> {
    pub(crate) index: u32,
    pub(crate) call: &'a PlannedCall,
    pub(crate) resource: &'a str,
    pub(crate) tool: &'a str,
}

/// Calls a resource's tool. A write that takes effect at once is recorded before and after it; if an earlier holder has
/// begun it and not recorded its end, it is made again under its key.
pub(crate) async fn call(round: &Round<'_>, called: Called<'_>, arguments: &Value) -> Result<CallOutcome, Stop> {
    if let Some(outcome) = round.outcome_before(called.index) {
        return Ok(outcome);
    }
    let (made, begun) = make(round, &called, arguments).await?;
    let used = round.workspace().used().await;
    let needs = used
        .into_iter()
        .filter(|(index, _)| *index == called.index)
        .map(|(_, used)| Need { ability: used.ability.as_str(), resource: ResourcePath::namespace(&used.namespace) });
    let mut used = round.used(&needs.collect::<Vec<_>>());
    used.dedup();
    let made = made.by(used);
    if let Some(begun) = begun {
        round.end(&begun, &made).await?;
    }
    Ok(made)
}

/// Makes the call. Returns its outcome, and its record if it took effect at once.
async fn make(
    round: &Round<'_>,
    called: &Called<'_>,
    arguments: &Value,
) -> Result<(CallOutcome, Option<BegunCall>), Stop> {
    let (made, begun) = match run(round, called, arguments).await {
        Ok(Ran::Done(Ok(value), begun)) => {
            let reads = read(round, called).await;
            // The result of a write at once may hold anything and can't be had again; other calls can be repeated for
            // less.
            let rest = if begun.is_some() { Rest::Lost } else { Rest::Again };
            let text = round.results.show(called.index, decode::shown(value), |_| rest);
            (CallOutcome { reads, ..CallOutcome::plain(Outcome::Ok, text) }, begun)
        }
        Ok(Ran::Done(Err(error), begun)) => (refused(error)?, begun),
        Ok(Ran::Asked(outcome)) => (*outcome, None),
        Err(error) => (refused(error)?, None),
    };
    Ok((if begun.is_some() { made.outward() } else { made }, begun))
}

/// Returns the namespaces that a call has read.
async fn read(round: &Round<'_>, called: &Called<'_>) -> Vec<Seen> {
    let uses = round.workspace().used().await.into_iter();
    let read = uses.filter(|(index, used)| *index == called.index && used.ability == Ability::Read);
    let seen = read.map(|(_, used)| {
        let on = ResourcePath::namespace(&used.namespace);
        let allowed = round.caller.authority.grounds(Ability::Read.as_str(), &on);
        Seen { through: called.call.tool.clone(), allowed, ..Seen::new(on.to_string()) }
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort();
    seen.dedup();
    seen
}

enum Ran {
    /// The call was made; with its record if it took effect at once.
    Done(Result<Value, OpError>, Option<BegunCall>),
    /// The call waits for approval.
    Asked(Box<CallOutcome>),
}

async fn run(round: &Round<'_>, called: &Called<'_>, arguments: &Value) -> Result<Ran, OpError> {
    let Called { index, call, resource, tool } = *called;
    let setting = round.setting();
    let declared = setting.config.resources.get(resource);
    let declared = declared.ok_or_else(|| OpError::NotFound(format!("there is no resource `{resource}` any more")))?;
    let found = round.worker.venue.catalog.resources.of(declared.kind);
    let found = found.ok_or_else(|| OpError::NotFound(format!("nothing provides the kind `{}`", declared.kind)))?;
    let held = HeldNamespaces::of(&round.caller.authority);
    // As it was offered: authority handed on is bound by all resources of the kind together.
    let mode = round.worker.venue.catalog.resources.mode(declared, &setting.mandate.envelope, &held);
    let (arguments, writes) = checked(found, called, mode, arguments)?;
    if writes && let Some(outcome) = ask_person(round, called, &held, &arguments) {
        return Ok(Ran::Asked(Box::new(outcome)));
    }
    let workspace = round.workspace();
    let venue = &round.worker.venue;
    let prefix = prefix(resource);
    let Declared { resource: config, .. } = declared;
    let access = Access {
        workspace,
        held: &held,
        settings: &config.settings,
        resource,
        prefix: &prefix,
        key: &venue.key,
        now: venue.now(),
    };
    let source = MemoryAuthor {
        agent: setting.session.agent.to_string(),
        session: Some(setting.session.session.to_string()),
        job: setting.plan.job().map(ToString::to_string),
    };
    let (owner, session, turn, instance) = (&setting.owner, &setting.session, round.turn(), call.instance.as_deref());
    let start = round.reply_turn.start.in_ids();
    let place = IdOf::Call { owner, session, turn, call: index, instance, start };
    let key = EventId::of_venue(&venue.key, place).to_string();
    let request = ResourceCall { access, name: &call.tool, index, source, key };
    let limit = setting.config.limits.tool_timeout.map_or(OPERATION_TIME, Duration::from_secs).min(OPERATION_TIME);
    let at_once = writes && found.provider.writes_at_once();
    let begun =
        if at_once { Some(round.begin(index, call, &call.tool, true).await.map_err(stop_to_error)?) } else { None };
    let done = tokio::time::timeout(limit, found.provider.call(&request, tool, &arguments)).await;
    let late = |_| {
        let text = format!("`{}` took longer than {} s", call.tool, limit.as_secs());
        Err(if at_once { OpError::OutcomeUnknown(text) } else { OpError::Timeout(text) })
    };
    Ok(Ran::Done(done.unwrap_or_else(late), begun))
}

fn stop_to_error(stop: Stop) -> OpError {
    match stop {
        Stop::Lost => OpError::Fenced,
        Stop::Store(error) => OpError::Store(error),
    }
}

/// Asks for approval where the owner's policy requires it for a granted namespace.
fn ask_person(round: &Round<'_>, called: &Called<'_>, held: &HeldNamespaces, arguments: &Value) -> Option<CallOutcome> {
    let Called { index, call, resource, tool } = *called;
    let target = ToolTarget::Resource { resource: resource.to_owned(), tool: tool.to_owned() };
    let authority = &round.caller.authority;
    let ability = Ability::Write.as_str();
    let needs =
        held.on(Ability::Write).iter().map(|namespace| Need { ability, resource: ResourcePath::namespace(namespace) });
    let needs = needs.filter(|need| authority.permits(need.ability, &need.resource).is_ok()).collect();
    answers::ask_person(round, &Made { index, call, runs: &call.tool, needs, target, arguments })
}

/// Returns the final arguments of a call that the mode permits, and whether it writes. No error shows a bound value.
fn checked(
    found: &RegisteredProvider,
    called: &Called<'_>,
    mode: Mode,
    arguments: &Value,
) -> Result<(Value, bool), OpError> {
    let Called { call: PlannedCall { tool: name, injection, .. }, tool, .. } = *called;
    let known = found.tools.iter().find(|(known, _)| known.name == tool);
    let (known, validator) = known.ok_or_else(|| OpError::NotFound(format!("there is no tool `{name}` any more")))?;
    if known.writes && mode == Mode::Read {
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
