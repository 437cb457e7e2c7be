//! Chat Completions.

use super::{Ending, Plan, PlannedCall, pieces};
use crate::support::dice::Dice;
use serde_json::{Value, json};
use std::collections::VecDeque;

fn chunk(choices: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices})
}

fn delta(delta: Value) -> Value {
    chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]))
}

pub(super) fn events(plan: &Plan, dice: &mut Dice) -> Vec<Value> {
    let mut events = vec![delta(json!({"role": "assistant", "content": "", "refusal": null}))];
    if dice.one_in(3) {
        events.push(chunk(json!([])));
    }
    // DeepSeek's and others' key; the SDK keeps what it doesn't know.
    events.extend(plan.thoughts.iter().map(|text| delta(json!({"reasoning_content": text, "content": null}))));
    events.extend(plan.texts.iter().map(|text| delta(json!({"content": text}))));
    events.extend(calls(&plan.calls, dice));
    let reason = match plan.ending {
        Ending::Whole if plan.calls.is_empty() => "stop",
        Ending::Whole => "tool_calls",
        Ending::Limit => "length",
        Ending::Filter => "content_filter",
    };
    events.push(chunk(json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": reason}])));
    if let Some([input, cached, output, reasoned]) = plan.tokens {
        let mut last = chunk(json!([]));
        last["usage"] = json!({
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoned}
        });
        events.push(last);
    }
    events
}

/// Each call begins with its id and its name; the arguments follow, of one call after the other or of all in any order.
fn calls(calls: &[PlannedCall], dice: &mut Dice) -> Vec<Value> {
    let piece = |call: Value| delta(json!({"tool_calls": [call]}));
    let first = |index: usize, call: &PlannedCall| {
        let function = json!({"name": call.name, "arguments": ""});
        piece(json!({"index": index, "id": call.id, "type": "function", "function": function}))
    };
    let rest = |index: usize, text: String| piece(json!({"index": index, "function": {"arguments": text}}));
    let mut waiting: Vec<VecDeque<String>> = calls.iter().map(|call| pieces(&call.arguments, dice).into()).collect();
    let is_mixed = dice.one_in(3);
    let mut events: Vec<Value> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        events.push(first(index, call));
        if !is_mixed {
            events.extend(waiting[index].drain(..).map(|text| rest(index, text)));
        }
    }
    while waiting.iter().any(|pieces| !pieces.is_empty()) {
        let index = usize::try_from(dice.below(calls.len() as u64)).unwrap();
        events.extend(waiting[index].pop_front().map(|text| rest(index, text)));
    }
    events
}
