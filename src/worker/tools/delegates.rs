//! Tools without an operation: delegates, and calls whose arguments are their result.

use super::answers::{self, ReadyCall};
use super::round::CallRound;
use crate::domain::call::ToolTarget;
use crate::domain::call::{Outcome, PlannedCall};
use crate::domain::context::result::ResultRest;
use crate::domain::lattice::Path;
use crate::domain::scope::{Delegate, Scopes};
use crate::domain::turn::CallOutcome;
use crate::ops::agent::send;
use crate::venue::operation::{NO_SECTIONS, Need, Reads};
use crate::worker::lease::RunStop;
use serde_json::Value;

/// Makes a call of a delegate.
pub(crate) async fn delegate(
    round: &CallRound<'_>,
    index: u32,
    call: &PlannedCall,
    to: &Delegate,
    arguments: &Value,
) -> Result<CallOutcome, RunStop> {
    let arguments = match call.injection.apply(arguments.clone()) {
        Ok(arguments) => arguments,
        Err(unresolved) => return Ok(CallOutcome::from_text(Outcome::Error, format!("error: {unresolved}"))),
    };
    let (runs, mut needs) = match &to.agent {
        Some(agent) => {
            let (ability, resource) = send::request_needs(agent);
            (format!("g/{agent}"), vec![Need { ability, resource }])
        }
        None => (call.tool.clone(), Vec::new()),
    };
    let left_at = to.output_path.as_deref().and_then(|path| Path::parse_output(path).ok());
    needs.extend(left_at.map(|path| Need::new("crud/write", &path)));
    let (used, target) = (round.used_capabilities(&needs), ToolTarget::Delegate(to.clone()));
    let made = ReadyCall { index, call, operation: &runs, capabilities: needs, target, arguments: &arguments };
    if let Some(asked) = answers::ask_person(round, &made) {
        return Ok(asked.with_needs(used));
    }
    let reads = Reads::default();
    let started = send::delegate(&round.invocation(index, call, &NO_SECTIONS, &reads), to, arguments).await;
    let served = || to.agent.clone().unwrap_or_else(|| round.turn_input().session.agent.clone());
    let rest = |result: &Value| ResultRest::for_result(None, &Value::Null, result, false);
    let made = round.result_outcome(index, started, &reads, served, rest)?;
    Ok(made.with_outward_effect().with_needs(used))
}

/// Makes a call whose arguments are its result.
pub(crate) fn call_latent(
    round: &CallRound<'_>,
    index: u32,
    call: &PlannedCall,
    arguments: &Value,
    focus: &[String],
) -> CallOutcome {
    let target = ToolTarget::Latent(focus.to_vec());
    let made =
        |arguments| ReadyCall { index, call, operation: &call.tool, capabilities: Vec::new(), target, arguments };
    match call.injection.apply(arguments.clone()) {
        Err(unresolved) => CallOutcome::from_text(Outcome::Error, format!("error: {unresolved}")),
        Ok(arguments) if let Some(asked) = answers::ask_person(round, &made(&arguments)) => asked,
        Ok(arguments) if focus.is_empty() => CallOutcome::from_text(Outcome::Ok, arguments.to_string()),
        Ok(arguments) => CallOutcome::from_text(Outcome::Ok, format!("{arguments}\n{}", Scopes::focus_text(focus))),
    }
}
