//! Limits the calls of a reply to those whose results the next prompt can show.
//!
//! The model must see what its calls have done. Without room for that the task would fail after its effects, so a call
//! without room isn't made.

use crate::call::{CallRefusal, Outcome, PlannedCall, ToolTarget};
use crate::chat::{Arguments, Reply};
use crate::context::ledger::PromptLedger;
use crate::context::transcript_turn::reasoning_bytes;
use crate::limits::{ENTRY_FLOOR, REPLY_CALLS};
use crate::tools::ToolTable;

/// Part of a budget that stays free (1/20): names and marks around results, a map that grows.
const SLACK_SHARE: usize = 20;

/// Returns the bytes that the next prompt has for a reply and the results of its calls: all but the sections that stay.
/// The transcript may leave the prompt.
pub(super) fn next_prompt_room(ledger: &PromptLedger) -> usize {
    let transcript: usize = ledger.rows.iter().filter(|row| row.key == "transcript").map(|row| row.rendered).sum();
    let budget = ledger.budget.bytes;
    (budget - budget / SLACK_SHARE).saturating_sub(ledger.used.saturating_sub(transcript))
}

/// Removes the calls without room from a reply. The first of them stays without its arguments; the reason why it is not
/// made is returned.
pub(super) fn leave_out_calls(reply: &mut Reply, tools: &ToolTable, room: usize) -> Option<CallRefusal> {
    let mut left = room.saturating_sub(reply.text.len() + reasoning_bytes(reply.reasoning.as_ref()));
    // The call that reports the removed ones needs room for a result, too.
    let fitting = reply.calls.iter().take_while(|call| {
        let takes = if is_an_end(&call.name, tools) { 0 } else { call.bytes() + ENTRY_FLOOR };
        let fits = left >= takes;
        left = left.saturating_sub(takes);
        fits
    });
    let (all, fitting) = (reply.calls.len(), fitting.count());
    if all <= fitting.min(REPLY_CALLS) {
        return None;
    }
    let made = fitting.min(REPLY_CALLS).saturating_sub(1);
    let reason = if fitting > made + 1 {
        format!("a reply makes at most {REPLY_CALLS} calls")
    } else {
        format!("with their arguments and results they don't fit into the {room} bytes that the context has for them")
    };
    let text = if all == 1 {
        format!(
            "this call was not made: with its result its arguments, {} bytes, don't fit into the {room} bytes that the \
             context has for them; make it again with shorter arguments, or in parts",
            reply.calls[0].bytes()
        )
    } else {
        format!(
            "of the {all} calls of this reply the first {made} were made, this one and those behind it were not: \
             {reason}; make them again in your next turns"
        )
    };
    reply.calls.truncate(made + 1);
    if let Some(call) = reply.calls.last_mut() {
        call.arguments = Arguments::Malformed(String::new());
    }
    Some(CallRefusal::new(Outcome::Limit, text))
}

/// Whether a tool ends the task or goal, or is itself the result: no prompt has to show its result.
fn is_an_end(name: &str, tools: &ToolTable) -> bool {
    match tools.target(name) {
        Some(
            ToolTarget::Complete
            | ToolTarget::Fail
            | ToolTarget::CompleteGoal
            | ToolTarget::FailGoal
            | ToolTarget::Latent(_),
        ) => true,
        Some(
            ToolTarget::Operation(_)
            | ToolTarget::Resource { .. }
            | ToolTarget::Load
            | ToolTarget::Unload
            | ToolTarget::MoreTools
            | ToolTarget::Subgoal
            | ToolTarget::Compact
            | ToolTarget::Delegate(_),
        )
        | None => false,
    }
}

/// Refuses the last call, if there is a reason.
pub(super) fn with_last_unmade(mut calls: Vec<PlannedCall>, unmade: Option<CallRefusal>) -> Vec<PlannedCall> {
    if let (Some(last), Some(unmade)) = (calls.last_mut(), unmade) {
        last.what = Err(unmade);
        last.scoped.clear();
    }
    calls
}
