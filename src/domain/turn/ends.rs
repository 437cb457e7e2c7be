//! Calls of the harness that end a task or a goal, open a goal, or compact: their results for the model, and their
//! effects on the session.

use super::typed::{json_in, typed_text};
use super::{CallOutcome, Recorded, Setting};
use crate::call::Outcome;
use crate::call::Resolved;
use crate::call::ToolTarget;
use crate::call::Unmade;
use crate::context::result::{self, Rest, ResultRoom};
use crate::context::text;
use crate::goal::Goal;
use crate::job::{ErrorCode, JobResult};
use crate::limits::SUMMARY_BYTES;
use crate::outputs;
use crate::tools::harness;
use serde_json::Value;

/// The task or goal that a reply ends.
pub(super) enum Ending {
    /// The open task.
    Task(JobResult),
    /// The goal that the turn worked on, with the outcome of the call that opened it.
    Goal(Box<CallOutcome>),
}

/// Checks the arguments of a harness call against the schema that its turn shows. Typed results are checked later,
/// because models write them in more than one way.
pub fn misfits(setting: &Setting, target: &ToolTarget, arguments: &Value) -> Option<CallOutcome> {
    let inner = setting.state.goals.top();
    let is_typed = (*target == ToolTarget::Complete && setting.output().is_some())
        || (*target == ToolTarget::CompleteGoal
            && inner.map_or(setting.output(), |goal| goal.output.as_ref()).is_some())
        || (*target == ToolTarget::FailGoal && inner.is_none() && setting.config.outputs.fail.is_some());
    if is_typed {
        return None;
    }
    let wrong = harness::misfit(&setting.config, setting.ends(), target, arguments)?;
    Some(CallOutcome::plain(Outcome::Arguments, format!("error: {wrong}")))
}

/// Returns the outcome of a harness call for the model.
pub fn outcome(setting: &Setting, target: &ToolTarget, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = misfits(setting, target, arguments) {
        return misfit;
    }
    let open = setting.plan.task.is_some();
    let said = match (target, setting.state.goals.top()) {
        (ToolTarget::Complete | ToolTarget::Fail, _) if !open => {
            Err(Unmade::new(Outcome::Error, "no task is open: there is nothing to end, answer with text"))
        }
        (ToolTarget::Complete, _) => typed(setting.output(), &result(setting, arguments), "the task is completed"),
        (ToolTarget::Fail, _) => Ok("the task is failed".to_owned()),
        (ToolTarget::CompleteGoal, Some(goal)) => {
            let output = goal.output.as_ref();
            typed(output, &outputs::value(output, arguments), "the goal is completed")
        }
        (ToolTarget::CompleteGoal, None) if open => {
            typed(setting.output(), &outputs::value(setting.output(), arguments), "the task is completed")
        }
        (ToolTarget::CompleteGoal, None) => {
            Ok(compacted(setting).unwrap_or_else(|_| "there is nothing to complete".into()))
        }
        (ToolTarget::FailGoal, Some(_)) => Ok("the goal is failed".to_owned()),
        (ToolTarget::FailGoal, None) if open => failing(setting, arguments),
        (ToolTarget::FailGoal, None) => Err(Unmade::new(Outcome::Error, "there is nothing to fail: no task is open")),
        (ToolTarget::Subgoal, _) => {
            goal_of(setting, arguments).map(|_| "opened; as long as this stands here, it has not ended".to_owned())
        }
        (ToolTarget::Compact, _) => summary(arguments)
            .map_err(Unmade::arguments)
            .and_then(|_| compacted(setting).map_err(|why| Unmade::new(Outcome::Error, why))),
        (
            ToolTarget::Operation(_)
            | ToolTarget::Resource { .. }
            | ToolTarget::Load
            | ToolTarget::Unload
            | ToolTarget::MoreTools
            | ToolTarget::Delegate(_)
            | ToolTarget::Latent(_),
            _,
        ) => Err(Unmade::new(Outcome::Error, "this call ends nothing; it is a bug of the venue")),
    };
    match said {
        Ok(text) => CallOutcome::plain(Outcome::Ok, text),
        Err(Unmade { outcome, text }) => CallOutcome::plain(outcome, format!("error: {text}")),
    }
}

/// Returns the result in the arguments of `complete_task`.
fn result(setting: &Setting, arguments: &Value) -> Value {
    let given = arguments.get("result").cloned().unwrap_or(Value::Null);
    match (setting.output(), given) {
        // Models often write JSON as a text.
        (Some(schema), Value::String(text)) if outputs::wrong(schema, &Value::String(text.clone())).is_some() => {
            json_in(&text).unwrap_or(Value::String(text))
        }
        (_, given) => given,
    }
}

fn typed(output: Option<&Value>, result: &Value, done: &str) -> Result<String, Unmade> {
    match output.and_then(|schema| outputs::wrong(schema, result)) {
        None => Ok(done.to_owned()),
        Some(wrong) => {
            let text = format!("refused: the result is not what it must be: {wrong}; give it again");
            Err(Unmade::arguments(text))
        }
    }
}

fn failing(setting: &Setting, arguments: &Value) -> Result<String, Unmade> {
    let schema = setting.config.outputs.fail.as_ref().map(|output| &output.schema);
    match schema.and_then(|schema| outputs::wrong(schema, &outputs::value(Some(schema), arguments))) {
        None => Ok("the task is failed".to_owned()),
        Some(wrong) => {
            Err(Unmade::arguments(format!("refused: the error is not what it must be: {wrong}; give it again")))
        }
    }
}

fn goal_of(setting: &Setting, arguments: &Value) -> Result<Goal, Unmade> {
    setting.state.goals.check_depth().map_err(|deep| Unmade::new(Outcome::Limit, deep))?;
    Goal::of(arguments).map_err(Unmade::arguments)
}

fn summary(arguments: &Value) -> Result<&str, String> {
    let summary = arguments["summary"].as_str().unwrap_or_default();
    match summary.len() {
        0 => Err("`summary`: expected what is to be known of the turns so far, got nothing".into()),
        bytes if bytes > SUMMARY_BYTES => {
            Err(format!("`summary`: expected at most {SUMMARY_BYTES} bytes, got {bytes}"))
        }
        _ => Ok(summary),
    }
}

fn compacted(setting: &Setting) -> Result<String, String> {
    match setting.state.goals.live().turns {
        0 => Err("there are no turns to compact yet".to_owned()),
        turns => Ok(format!("{turns} turns are compacted; from the next turn on the summary stands for them")),
    }
}

/// Iterates over the calls that succeeded, with their index in the reply.
fn made<'r>(
    recorded: &'r Recorded,
    outcomes: &'r [CallOutcome],
) -> impl Iterator<Item = (u32, &'r ToolTarget, &'r Value)> {
    (0..).zip(recorded.calls.iter().zip(outcomes)).filter_map(|(at, (call, outcome))| match &call.what {
        Ok(Resolved { target, arguments }) if outcome.outcome == Outcome::Ok => Some((at, target, arguments)),
        Ok(_) | Err(_) => None,
    })
}

/// Returns what the reply ends; the first call that ends something decides. A text ends a goal too, unless the goal
/// still `waits` for children.
pub(super) fn ending(setting: &Setting, recorded: &Recorded, outcomes: &[CallOutcome], waits: bool) -> Option<Ending> {
    let goal = setting.state.goals.top();
    let (inner, output) = (goal.is_some(), goal.and_then(|goal| goal.output.as_ref()));
    let open = setting.plan.task.is_some();
    if recorded.calls.is_empty() {
        return (inner && !waits).then(|| Ending::Goal(Box::new(said(setting, output, &recorded.reply.text))));
    }
    made(recorded, outcomes).find_map(|(_, target, arguments)| match target {
        ToolTarget::Complete if open => Some(Ending::Task(JobResult::complete(result(setting, arguments)))),
        ToolTarget::CompleteGoal if inner => {
            Some(Ending::Goal(Box::new(returned(setting, &outputs::value(output, arguments)))))
        }
        ToolTarget::CompleteGoal if open => {
            Some(Ending::Task(JobResult::complete(outputs::value(setting.output(), arguments))))
        }
        ToolTarget::FailGoal if inner => {
            let text = format!("error: the goal was not reached: {}", error(arguments));
            Some(Ending::Goal(Box::new(CallOutcome::plain(Outcome::Error, text))))
        }
        ToolTarget::Fail | ToolTarget::FailGoal if open => {
            let typed = matches!(target, ToolTarget::FailGoal) && setting.config.outputs.fail.is_some();
            let error = if typed { arguments.to_string() } else { error(arguments) };
            Some(Ending::Task(JobResult::failed(ErrorCode::TaskFailed, error)))
        }
        ToolTarget::Complete
        | ToolTarget::Fail
        | ToolTarget::CompleteGoal
        | ToolTarget::FailGoal
        | ToolTarget::Subgoal
        | ToolTarget::Compact
        | ToolTarget::Operation(_)
        | ToolTarget::Resource { .. }
        | ToolTarget::Load
        | ToolTarget::Unload
        | ToolTarget::MoreTools
        | ToolTarget::Delegate(_)
        | ToolTarget::Latent(_) => None,
    })
}

/// Returns the outcome of a goal that ends with a text: data of the requested type, or an error.
fn said(setting: &Setting, output: Option<&Value>, text: &str) -> CallOutcome {
    if text.trim().is_empty() {
        return CallOutcome::plain(Outcome::Error, "error: the goal ended with an empty reply, without a result");
    }
    let Some(schema) = output else { return returned(setting, &Value::String(text.to_owned())) };
    let wrong = match typed_text(schema, text) {
        Ok(value) => return returned(setting, &value),
        Err(wrong) => wrong.reason(),
    };
    let text = format!("error: the goal ended without a result of the type that was asked for: {wrong}");
    CallOutcome::plain(Outcome::Error, result::shortened(&text, ResultRoom::of(&setting.config, 0).one()))
}

fn returned(setting: &Setting, given: &Value) -> CallOutcome {
    let limit = ResultRoom::of(&setting.config, 0).one();
    CallOutcome::plain(Outcome::Ok, result::tool_result(given, limit, &Rest::Lost))
}

fn error(arguments: &Value) -> String {
    match &arguments["error"] {
        Value::String(error) => error.clone(),
        Value::Null if arguments.as_object().is_some_and(|map| !map.is_empty()) => arguments.to_string(),
        Value::Null => "the agent gave no reason".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the error of the output with which the reply tried to end the task.
pub(super) fn misfit<'o>(setting: &Setting, recorded: &Recorded, outcomes: &'o [CallOutcome]) -> Option<&'o str> {
    if setting.state.goals.top().is_some() {
        // The invalid output belongs to a goal inside the task.
        return None;
    }
    let refused = recorded.calls.iter().zip(outcomes).find(|(call, outcome)| {
        let ends = matches!(
            &call.what,
            Ok(Resolved { target: ToolTarget::Complete | ToolTarget::CompleteGoal | ToolTarget::FailGoal, .. })
        );
        ends && matches!(outcome.outcome, Outcome::Error | Outcome::Arguments)
    });
    refused.map(|(_, outcome)| outcome.text.as_str())
}

/// Returns the goals that the reply opens, with the index of their call.
pub(super) fn opened(recorded: &Recorded, outcomes: &[CallOutcome]) -> Vec<(u32, Goal)> {
    let goal = |(at, target, arguments): (u32, &ToolTarget, &Value)| {
        Some((at, Goal::of(arguments).ok().filter(|_| *target == ToolTarget::Subgoal)?))
    };
    made(recorded, outcomes).filter_map(goal).collect()
}

/// Returns the summary that replaces the turns so far.
pub(super) fn compaction(setting: &Setting, recorded: &Recorded, outcomes: &[CallOutcome]) -> Option<String> {
    let goals = &setting.state.goals;
    let loose = goals.top().is_none() && setting.plan.task.is_none();
    if goals.live().is_empty() {
        return None;
    }
    made(recorded, outcomes).find_map(|(_, target, arguments)| {
        if *target == ToolTarget::Compact {
            return summary(arguments).ok().map(str::to_owned);
        }
        // At the root of a chat there is nothing to complete, so the result is kept as a summary and the turns are
        // compacted.
        (loose && *target == ToolTarget::CompleteGoal).then(|| text::value(arguments, SUMMARY_BYTES))
    })
}

/// Cancels the calls that open goals, because the reply ends the task or goal that they belong to.
pub(super) fn unopened(recorded: &Recorded, outcomes: &mut [CallOutcome]) {
    for (call, outcome) in recorded.calls.iter().zip(outcomes) {
        if matches!(&call.what, Ok(Resolved { target: ToolTarget::Subgoal, .. })) && outcome.outcome == Outcome::Ok {
            *outcome = CallOutcome::plain(Outcome::Cancelled, "not opened: this reply ends what it is for");
        }
    }
}
