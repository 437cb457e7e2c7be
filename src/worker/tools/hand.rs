//! Tools without an operation: delegates, and calls whose arguments are their result.

use super::answers::{self, Made};
use super::calls::Round;
use crate::domain::call::ToolTarget;
use crate::domain::call::{Outcome, PlannedCall};
use crate::domain::context::result::Rest;
use crate::domain::lattice::Path;
use crate::domain::scope::{Delegate, Scopes};
use crate::domain::turn::CallOutcome;
use crate::ops::agent::send;
use crate::venue::operation::{NOTHING, Need, Reads};
use crate::worker::lease::Stop;
use serde_json::Value;

/// Makes a call of a delegate.
pub(crate) async fn delegate(
    round: &Round<'_>,
    index: u32,
    call: &PlannedCall,
    to: &Delegate,
    arguments: &Value,
) -> Result<CallOutcome, Stop> {
    let arguments = match call.injection.apply(arguments.clone()) {
        Ok(arguments) => arguments,
        Err(unresolved) => return Ok(CallOutcome::plain(Outcome::Error, format!("error: {unresolved}"))),
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
    let (used, target) = (round.used(&needs), ToolTarget::Delegate(to.clone()));
    let made = Made { index, call, runs: &runs, needs, target, arguments: &arguments };
    if let Some(asked) = answers::ask_person(round, &made) {
        return Ok(asked.by(used));
    }
    let reads = Reads::default();
    let started = send::delegate(&round.invocation(index, call, &NOTHING, &reads), to, arguments).await;
    let served = || to.agent.clone().unwrap_or_else(|| round.setting().session.agent.clone());
    let rest = |result: &Value| Rest::of(None, &Value::Null, result, false);
    let made = round.returned(index, started, &reads, (served, rest))?;
    Ok(made.outward().by(used))
}

/// Makes a call whose arguments are its result.
pub(crate) fn latent(
    round: &Round<'_>,
    index: u32,
    call: &PlannedCall,
    arguments: &Value,
    focus: &[String],
) -> CallOutcome {
    let target = ToolTarget::Latent(focus.to_vec());
    let made = |arguments| Made { index, call, runs: &call.tool, needs: Vec::new(), target, arguments };
    match call.injection.apply(arguments.clone()) {
        Err(unresolved) => CallOutcome::plain(Outcome::Error, format!("error: {unresolved}")),
        Ok(arguments) if let Some(asked) = answers::ask_person(round, &made(&arguments)) => asked,
        Ok(arguments) if focus.is_empty() => CallOutcome::plain(Outcome::Ok, arguments.to_string()),
        Ok(arguments) => CallOutcome::plain(Outcome::Ok, format!("{arguments}\n{}", Scopes::focus(focus))),
    }
}
