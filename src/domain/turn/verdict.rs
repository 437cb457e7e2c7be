//! Decides what a reply means for its task or loose run: it ends, goes on, waits or gets a note.

use super::endings::{self, Ending};
use super::typed_output::parse_typed_reply;
use super::{CallOutcome, RecordedReply, TurnInput};
use crate::agent::CompletionRule;
use crate::job::{ErrorCode, JobResult};
use crate::limits::OUTPUT_REFUSALS;
use crate::session::SessionState;

/// What happens to a task, or to a loose run (turns for messages without a task), after a reply.
pub(super) enum TurnVerdict {
    /// The task has ended with this result.
    Ended(JobResult),
    /// The task goes on, so that the model sees the results of its tools.
    GoOn,
    /// A loose run goes on, so that the model sees the results of its tools.
    Loose,
    /// The session rests until a result arrives.
    Park,
    /// The session waits for a person's approval.
    Await,
    /// The limit of turns is reached; the task gets one more turn to end.
    WindDown,
    /// A text where only a call completes the task, or an empty reply; the model is reminded once.
    Remind,
    /// A text that is no valid output; the model gets the reason.
    Refuse(String),
    /// The session has no open task, and the run ends.
    Idle,
    /// The limit of turns without a task is reached.
    Exhausted,
}

/// Decides the verdict. `state` is the session after the turn, `ending` is what the reply ends.
pub(super) fn decide_verdict(
    turn_input: &TurnInput,
    state: &SessionState,
    recorded: &RecordedReply,
    outcomes: &[CallOutcome],
    ending: Option<&Ending>,
) -> TurnVerdict {
    let open = turn_input.plan.task.is_some();
    let used = state.task.as_ref().map_or(state.loose_turns, |progress| progress.turns);
    if let Some(Ending::Task(result)) = ending {
        return TurnVerdict::Ended(result.clone());
    }
    let limit = turn_input.config.limits.turns;
    let completion = turn_input.completion();
    if let (Some(last), true) = (&turn_input.last, open) {
        // The result of a goal inside the task is not the task's output.
        let is_text = recorded.calls.is_empty() && turn_input.state.goals.top().is_none();
        let output = turn_input.output().filter(|_| is_text);
        if let Some(Ok(value)) = output.map(|output| parse_typed_reply(output, &recorded.reply)) {
            return TurnVerdict::Ended(JobResult::complete(value));
        }
        return TurnVerdict::Ended(last.task_result(&recorded.reply, is_text, completion));
    }
    let refused = state.task.as_ref().map_or(0, |progress| progress.refused);
    if let (Some(wrong), true) =
        (endings::output_error(turn_input, recorded, outcomes), open && refused >= OUTPUT_REFUSALS)
    {
        return TurnVerdict::Ended(invalid_output(wrong));
    }
    if recorded.calls.is_empty() && ending.is_none() {
        return text_verdict(turn_input, state, recorded, used >= limit, limit);
    }
    if used >= limit {
        return match (open, turn_input.config.limits.wind_down) {
            (true, true) => TurnVerdict::WindDown,
            (true, false) => TurnVerdict::Ended(turn_limit_reached(limit, recorded)),
            (false, _) => TurnVerdict::Exhausted,
        };
    }
    if outcomes.iter().any(|outcome| outcome.asked.is_some()) && ending.is_none() {
        return TurnVerdict::Await;
    }
    let all_started = !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.started.is_some());
    match (all_started, open) {
        (true, _) => TurnVerdict::Park,
        (false, true) => TurnVerdict::GoOn,
        (false, false) => TurnVerdict::Loose,
    }
}

/// Decides the verdict on a reply without a call that ends no goal.
fn text_verdict(
    turn_input: &TurnInput,
    state: &SessionState,
    recorded: &RecordedReply,
    at_limit: bool,
    limit: u32,
) -> TurnVerdict {
    let text = &recorded.reply.text;
    let progress = state.task.as_ref();
    let reminded = progress.is_some_and(|progress| progress.reminded);
    match (
        turn_input.plan.task.is_some(),
        is_waiting(state, turn_input.state.goals.active_id()),
        turn_input.completion(),
    ) {
        (false, _, _) => TurnVerdict::Idle,
        (true, true, _) if at_limit => TurnVerdict::Ended(turn_limit_reached(limit, recorded)),
        (true, true, _) => TurnVerdict::Park,
        (true, false, CompletionRule::Implicit) if !text.trim().is_empty() => {
            let truncated = recorded.reply.truncated;
            TurnVerdict::Ended(JobResult { truncated, ..JobResult::complete(text.clone().into()) })
        }
        // The same request would be cut off and paid for again.
        (true, false, CompletionRule::Implicit) if recorded.reply.truncated => {
            TurnVerdict::Ended(reply_cut_off(turn_input, recorded))
        }
        // An empty reply is no answer; the caller would take it for finished work.
        (true, false, CompletionRule::Implicit) if !reminded && !at_limit => TurnVerdict::Remind,
        (true, false, CompletionRule::Implicit) => {
            let text = "the model's reply is empty: no text and no call, also when it was asked again";
            TurnVerdict::Ended(JobResult::failure(ErrorCode::ModelError, text))
        }
        (true, false, CompletionRule::Explicit) if let Some(output) = turn_input.output() => {
            let wrong = match parse_typed_reply(output, &recorded.reply) {
                Ok(value) => return TurnVerdict::Ended(JobResult::complete(value)),
                Err(wrong) => wrong.reason(),
            };
            let refused = progress.map_or(0, |progress| progress.refused);
            match (refused < OUTPUT_REFUSALS, at_limit) {
                (true, false) => TurnVerdict::Refuse(wrong),
                (true, true) => TurnVerdict::Ended(turn_limit_reached(limit, recorded)),
                (false, _) if recorded.reply.truncated => TurnVerdict::Ended(reply_cut_off(turn_input, recorded)),
                (false, _) => TurnVerdict::Ended(invalid_output(&format!("{wrong}; the text was: {text}"))),
            }
        }
        (true, false, CompletionRule::Explicit) if !reminded && !at_limit => TurnVerdict::Remind,
        (true, false, CompletionRule::Explicit) => {
            let text = "the agent ended without calling `complete_task` or `fail_task`";
            TurnVerdict::Ended(JobResult::failure(ErrorCode::NoCompletion, text))
        }
    }
}

fn invalid_output(wrong: &str) -> JobResult {
    let wrong = wrong.trim_start_matches("error: ");
    let text = format!("after {OUTPUT_REFUSALS} refusals there is no output of the type that was asked for: {wrong}");
    JobResult::failure(ErrorCode::OutputInvalid, text)
}

fn reply_cut_off(turn_input: &TurnInput, recorded: &RecordedReply) -> JobResult {
    let limit = recorded.model(turn_input).max_tokens.map_or_else(String::new, |tokens| format!(" ({tokens})"));
    let text = format!("the reply reached its limit of tokens{limit} before an answer: raise `model.maxTokens`");
    JobResult::failure(ErrorCode::LimitReached, text)
}

fn turn_limit_reached(limit: u32, recorded: &RecordedReply) -> JobResult {
    let text = format!("the limit of {limit} turns was reached; the last text was: {}", recorded.reply.text);
    JobResult::failure(ErrorCode::LimitReached, text)
}

/// Whether the goal or conversation waits for children. Jobs that a message has started don't count for the task.
pub(super) fn is_waiting(state: &SessionState, frame: u32) -> bool {
    state.pending.values().any(|pending| pending.under.is_none() && pending.frame == frame)
}
