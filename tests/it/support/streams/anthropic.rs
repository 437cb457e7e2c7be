//! Messages of Claude.

use super::{Ending, Plan, pieces};
use crate::support::dice::Dice;
use serde_json::{Value, json};

pub(super) fn events(plan: &Plan, dice: &mut Dice) -> Vec<Value> {
    let [input, cached, output, _] = plan.tokens.unwrap_or_default();
    let written = dice.below(50);
    let usage = json!({"input_tokens": input, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    let mut index = 0;
    let mut block = |dice: &mut Dice, begin: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begin}));
        for delta in deltas {
            if dice.one_in(9) {
                events.push(json!({"type": "ping"}));
            }
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !plan.thoughts.is_empty() {
        let thought = |text: &String| json!({"type": "thinking_delta", "thinking": text});
        let signature = json!({"type": "signature_delta", "signature": "EqQB"});
        let deltas = plan.thoughts.iter().map(thought).chain([signature]).collect();
        block(dice, json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
    }
    let text = |text: &String| json!({"type": "text_delta", "text": text});
    // One block, or one for each piece.
    let blocks: Vec<&[String]> = if dice.one_in(2) { plan.texts.chunks(1).collect() } else { vec![&plan.texts] };
    for texts in blocks.into_iter().filter(|texts| !texts.is_empty()) {
        block(dice, json!({"type": "text", "text": ""}), texts.iter().map(text).collect());
    }
    for call in &plan.calls {
        let piece = |text: String| json!({"type": "input_json_delta", "partial_json": text});
        let begin = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        let deltas = pieces(&call.arguments, dice).into_iter().map(piece).collect();
        block(dice, begin, deltas);
    }
    let reason = match plan.ending {
        Ending::Whole if plan.calls.is_empty() => *dice.pick(&["end_turn", "stop_sequence"]),
        Ending::Whole => "tool_use",
        Ending::Limit => *dice.pick(&["max_tokens", "model_context_window_exceeded"]),
        Ending::Filter => "refusal",
    };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": output}}));
    events.push(json!({"type": "message_stop"}));
    events
}
