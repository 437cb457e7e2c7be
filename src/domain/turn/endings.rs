//! Calls of the harness that end a task or a goal, open a goal, or compact: their results for the model, and their
//! effects on the session.

use super::typed_output::{find_json, parse_typed_text};
use super::{CallOutcome, RecordedReply, TurnInput};
use crate::call::CallRefusal;
use crate::call::Outcome;
use crate::call::ResolvedCall;
use crate::call::ToolTarget;
use crate::context::result::{self, ResultRest, ResultRoom};
use crate::context::text;
use crate::goal::Goal;
use crate::job::{ErrorCode, JobResult};
use crate::limits::SUMMARY_BYTES;
use crate::outputs;
use crate::tools::harness;
use crate::visible::{quote_foreign, quote_names};
use serde_json::Value;

/// Keys that the refusal of a missing result names.
const KEYS_SHOWN: usize = 5;

/// The task or goal that a reply ends.
pub(super) enum Ending {
    /// The open task.
    Task(JobResult),
    /// The goal that the turn worked on, with the outcome of the call that opened it.
    Goal(Box<CallOutcome>),
}

/// Checks the arguments of a harness call against the schema that its turn shows. Typed results are checked later,
/// because models write them in more than one way.
pub fn check_arguments(turn_input: &TurnInput, target: &ToolTarget, arguments: &Value) -> Option<CallOutcome> {
    let inner = turn_input.state.goals.top();
    let is_typed = (*target == ToolTarget::Complete && turn_input.output().is_some())
        || (*target == ToolTarget::CompleteGoal
            && inner.map_or(turn_input.output(), |goal| goal.output.as_ref()).is_some())
        || (*target == ToolTarget::FailGoal && inner.is_none() && turn_input.config.outputs.fail.is_some());
    // Covia's agents name the cause `reason`, with any fields beside it.
    let is_covias = *target == ToolTarget::FailGoal && arguments["reason"].is_string() && arguments["error"].is_null();
    if is_typed || is_covias {
        return None;
    }
    let wrong = harness::argument_error(&turn_input.config, turn_input.ends(), target, arguments)?;
    Some(CallOutcome::from_text(Outcome::Arguments, format!("error: {wrong}")))
}

/// Returns the outcome of a harness call for the model.
pub fn call_outcome(turn_input: &TurnInput, target: &ToolTarget, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = check_arguments(turn_input, target, arguments) {
        return misfit;
    }
    let open = turn_input.plan.task.is_some();
    let said = match (target, turn_input.state.goals.top()) {
        (ToolTarget::Complete | ToolTarget::Fail, _) if !open => {
            Err(CallRefusal::new(Outcome::Error, "no task is open: there is nothing to end, answer with text"))
        }
        (ToolTarget::Complete, _) => {
            let result = task_result(turn_input, arguments);
            check_typed_result(turn_input.output(), &result, arguments, "the task is completed")
        }
        (ToolTarget::Fail, _) => Ok("the task is failed".to_owned()),
        (ToolTarget::CompleteGoal, Some(goal)) => {
            let output = goal.output.as_ref();
            check_typed_result(output, &outputs::value(output, arguments), arguments, "the goal is completed")
        }
        (ToolTarget::CompleteGoal, None) if open => check_typed_result(
            turn_input.output(),
            &outputs::value(turn_input.output(), arguments),
            arguments,
            "the task is completed",
        ),
        (ToolTarget::CompleteGoal, None) => {
            Ok(compaction_text(turn_input).unwrap_or_else(|| "there is nothing to complete".into()))
        }
        (ToolTarget::FailGoal, Some(_)) => Ok("the goal is failed".to_owned()),
        (ToolTarget::FailGoal, None) if open => check_failure(turn_input, arguments),
        (ToolTarget::FailGoal, None) => {
            Err(CallRefusal::new(Outcome::Error, "there is nothing to fail: no task is open"))
        }
        (ToolTarget::Subgoal, _) => parse_goal(turn_input, arguments)
            .map(|_| "opened; as long as this stands here, it has not ended".to_owned()),
        (ToolTarget::Compact, _) => parse_summary(arguments).and_then(|_| {
            let nothing = || CallRefusal::new(Outcome::Error, "there are no turns to compact yet");
            compaction_text(turn_input).ok_or_else(nothing)
        }),
        (
            ToolTarget::Operation(_)
            | ToolTarget::Resource { .. }
            | ToolTarget::Load
            | ToolTarget::Unload
            | ToolTarget::MoreTools
            | ToolTarget::Delegate(_)
            | ToolTarget::Latent(_),
            _,
        ) => Err(CallRefusal::new(Outcome::Error, "this call ends nothing; it is a bug of the venue")),
    };
    match said {
        Ok(text) => CallOutcome::from_text(Outcome::Ok, text),
        Err(CallRefusal { outcome, text }) => CallOutcome::from_text(outcome, format!("error: {text}")),
    }
}

/// Returns the result in the arguments of `complete_task`.
fn task_result(turn_input: &TurnInput, arguments: &Value) -> Value {
    let given = arguments.get("result").cloned().unwrap_or(Value::Null);
    match (turn_input.output(), given) {
        // Models often write JSON as a text.
        (Some(schema), Value::String(text)) if outputs::misfit_text(schema, &Value::String(text.clone())).is_some() => {
            find_json(&text).unwrap_or(Value::String(text))
        }
        (_, given) => given,
    }
}

fn check_typed_result(
    output: Option<&Value>,
    result: &Value,
    arguments: &Value,
    done: &str,
) -> Result<String, CallRefusal> {
    match output.and_then(|schema| outputs::misfit_text(schema, result)) {
        None => Ok(done.to_owned()),
        Some(wrong) => Err(refuse_typed_value("result", &wrong, result, arguments)),
    }
}

fn check_failure(turn_input: &TurnInput, arguments: &Value) -> Result<String, CallRefusal> {
    let Some(output) = &turn_input.config.outputs.fail else { return Ok("the task is failed".to_owned()) };
    let error = outputs::value(Some(&output.schema), arguments);
    match outputs::misfit_text(&output.schema, &error) {
        None => Ok("the task is failed".to_owned()),
        Some(wrong) => Err(refuse_typed_value("error", &wrong, &error, arguments)),
    }
}

/// Makes the refusal of a value that is not of its type. One that is taken from `result` may be missing there: then what
/// is wrong is a key and not the value.
fn refuse_typed_value(what: &str, wrong: &str, value: &Value, arguments: &Value) -> CallRefusal {
    let refused = format!("refused: the {what} is not what it must be");
    let given = arguments.as_object().filter(|given| value.is_null() && !given.contains_key("result"));
    CallRefusal::arguments(match given {
        None => format!("{refused}: {wrong}; give it again"),
        Some(given) if given.is_empty() => format!("{refused}: `result` is missing; give the {what} as `result`"),
        Some(given) => {
            let keys: Vec<_> = given.keys().take(KEYS_SHOWN).map(|key| quote_foreign(key)).collect();
            format!("{refused}: `result` is missing, got {}; give the {what} as `result`", quote_names(&keys))
        }
    })
}

fn parse_goal(turn_input: &TurnInput, arguments: &Value) -> Result<Goal, CallRefusal> {
    turn_input.state.goals.check_depth().map_err(|deep| CallRefusal::new(Outcome::Limit, deep.to_string()))?;
    Goal::parse(arguments).map_err(CallRefusal::arguments)
}

fn parse_summary(arguments: &Value) -> Result<&str, CallRefusal> {
    let summary = arguments["summary"].as_str().unwrap_or_default();
    match summary.len() {
        0 => Err(CallRefusal::arguments("`summary`: expected what is to be known of the turns so far, got nothing")),
        bytes if bytes > SUMMARY_BYTES => {
            Err(CallRefusal::arguments(format!("`summary`: expected at most {SUMMARY_BYTES} bytes, got {bytes}")))
        }
        _ => Ok(summary),
    }
}

/// Returns the result of a compaction; `None` if there is nothing to compact.
fn compaction_text(turn_input: &TurnInput) -> Option<String> {
    match turn_input.state.goals.live_turns().turns {
        0 => None,
        turns => Some(format!("{turns} turns are compacted; from the next turn on the summary stands for them")),
    }
}

/// Iterates over the calls that succeeded, with their index in the reply.
fn successful_calls<'r>(
    recorded: &'r RecordedReply,
    outcomes: &'r [CallOutcome],
) -> impl Iterator<Item = (u32, &'r ToolTarget, &'r Value)> {
    (0..).zip(recorded.calls.iter().zip(outcomes)).filter_map(|(at, (call, outcome))| match &call.what {
        Ok(ResolvedCall { target, arguments }) if outcome.outcome == Outcome::Ok => Some((at, target, arguments)),
        Ok(_) | Err(_) => None,
    })
}

/// Returns what the reply ends; the first call that ends something decides. A text ends a goal too, unless the goal
/// still `waits` for children.
pub(super) fn find_ending(
    turn_input: &TurnInput,
    recorded: &RecordedReply,
    outcomes: &[CallOutcome],
    waits: bool,
) -> Option<Ending> {
    let goal = turn_input.state.goals.top();
    let (inner, output) = (goal.is_some(), goal.and_then(|goal| goal.output.as_ref()));
    let open = turn_input.plan.task.is_some();
    if recorded.calls.is_empty() {
        return (inner && !waits)
            .then(|| Ending::Goal(Box::new(goal_text_outcome(turn_input, output, &recorded.reply.text))));
    }
    successful_calls(recorded, outcomes).find_map(|(_, target, arguments)| match target {
        ToolTarget::Complete if open => Some(Ending::Task(JobResult::complete(task_result(turn_input, arguments)))),
        ToolTarget::CompleteGoal if inner => {
            Some(Ending::Goal(Box::new(goal_value_outcome(turn_input, &outputs::value(output, arguments)))))
        }
        ToolTarget::CompleteGoal if open => {
            Some(Ending::Task(JobResult::complete(outputs::value(turn_input.output(), arguments))))
        }
        ToolTarget::FailGoal if inner => {
            let text = format!("error: the goal was not reached: {}", error_text(arguments));
            Some(Ending::Goal(Box::new(CallOutcome::from_text(Outcome::Error, text))))
        }
        ToolTarget::Fail | ToolTarget::FailGoal if open => {
            let typed = matches!(target, ToolTarget::FailGoal) && turn_input.config.outputs.fail.is_some();
            let error = if typed { arguments.to_string() } else { error_text(arguments) };
            Some(Ending::Task(JobResult::failure(ErrorCode::TaskFailed, error)))
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
fn goal_text_outcome(turn_input: &TurnInput, output: Option<&Value>, text: &str) -> CallOutcome {
    if text.trim().is_empty() {
        return CallOutcome::from_text(Outcome::Error, "error: the goal ended with an empty reply, without a result");
    }
    let Some(schema) = output else { return goal_value_outcome(turn_input, &Value::String(text.to_owned())) };
    let wrong = match parse_typed_text(schema, text) {
        Ok(value) => return goal_value_outcome(turn_input, &value),
        Err(wrong) => wrong.reason(),
    };
    let text = format!("error: the goal ended without a result of the type that was asked for: {wrong}");
    CallOutcome::from_text(
        Outcome::Error,
        result::shorten_text(&text, ResultRoom::for_agent(&turn_input.config, 0).for_one()),
    )
}

fn goal_value_outcome(turn_input: &TurnInput, given: &Value) -> CallOutcome {
    let limit = ResultRoom::for_agent(&turn_input.config, 0).for_one();
    CallOutcome::from_text(Outcome::Ok, result::tool_result(given, limit, &ResultRest::Lost))
}

fn error_text(arguments: &Value) -> String {
    match &arguments["error"] {
        Value::String(error) => error.clone(),
        Value::Null if arguments.as_object().is_some_and(|map| !map.is_empty()) => arguments.to_string(),
        Value::Null => "the agent gave no reason".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the error of the output with which the reply tried to end the task.
pub(super) fn output_error<'o>(
    turn_input: &TurnInput,
    recorded: &RecordedReply,
    outcomes: &'o [CallOutcome],
) -> Option<&'o str> {
    if turn_input.state.goals.top().is_some() {
        // The invalid output belongs to a goal inside the task.
        return None;
    }
    let refused = recorded.calls.iter().zip(outcomes).find(|(call, outcome)| {
        let ends = matches!(
            &call.what,
            Ok(ResolvedCall { target: ToolTarget::Complete | ToolTarget::CompleteGoal | ToolTarget::FailGoal, .. })
        );
        ends && matches!(outcome.outcome, Outcome::Error | Outcome::Arguments)
    });
    refused.map(|(_, outcome)| outcome.text.as_str())
}

/// Returns the goals that the reply opens, with the index of their call.
pub(super) fn opened_goals(recorded: &RecordedReply, outcomes: &[CallOutcome]) -> Vec<(u32, Goal)> {
    let goal = |(at, target, arguments): (u32, &ToolTarget, &Value)| {
        Some((at, Goal::parse(arguments).ok().filter(|_| *target == ToolTarget::Subgoal)?))
    };
    successful_calls(recorded, outcomes).filter_map(goal).collect()
}

/// Returns the summary that replaces the turns so far.
pub(super) fn compaction_summary(
    turn_input: &TurnInput,
    recorded: &RecordedReply,
    outcomes: &[CallOutcome],
) -> Option<String> {
    let goals = &turn_input.state.goals;
    let loose = goals.top().is_none() && turn_input.plan.task.is_none();
    if goals.live_turns().is_empty() {
        return None;
    }
    successful_calls(recorded, outcomes).find_map(|(_, target, arguments)| {
        if *target == ToolTarget::Compact {
            return parse_summary(arguments).ok().map(str::to_owned);
        }
        // At the root of a chat there is nothing to complete, so the result is kept as a summary and the turns are
        // compacted.
        (loose && *target == ToolTarget::CompleteGoal).then(|| text::value(arguments, SUMMARY_BYTES))
    })
}

/// Cancels the calls that open goals, because the reply ends the task or goal that they belong to.
pub(super) fn cancel_opened_goals(recorded: &RecordedReply, outcomes: &mut [CallOutcome]) {
    for (call, outcome) in recorded.calls.iter().zip(outcomes) {
        if matches!(&call.what, Ok(ResolvedCall { target: ToolTarget::Subgoal, .. })) && outcome.outcome == Outcome::Ok
        {
            *outcome = CallOutcome::from_text(Outcome::Cancelled, "not opened: this reply ends what it is for");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_that_is_missing_is_told_as_missing() {
        let map = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let list = json!({"type": "array"});
        let nullable = json!({"type": ["object", "null"]});
        for (schema, arguments, expected) in [
            (&map, json!({"result": {"n": 3}}), None),
            (&map, json!({"n": 3}), Some("`result` is missing, got `n`; give the result as `result`")),
            (&list, json!({"n": 3, "m": 4}), Some("`result` is missing, got `n`, `m`; ")),
            (&map, json!({}), Some("`result` is missing; give")),
            (&map, json!({"result": null}), Some("null is not of type \"object\"; give it again")),
            (&map, json!({"result": 3, "n": 3}), Some("3 is not of type")),
            (&map, json!([1]), Some("null is not of type")),
            (&nullable, json!({"n": 3}), None),
        ] {
            let result = arguments.get("result").cloned().unwrap_or(Value::Null);
            let refused = check_typed_result(Some(schema), &result, &arguments, "done").map_err(|error| error.text);
            let text = refused.as_ref().err().map(String::as_str);
            assert_eq!(text.is_some(), expected.is_some(), "{arguments}: {text:?}");
            assert!(text.unwrap_or_default().contains(expected.unwrap_or_default()), "{arguments}: {text:?}");
        }
    }
}
