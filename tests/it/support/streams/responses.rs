//! Responses of OpenAI.

use super::{Ending, Plan, pieces};
use crate::support::dice::Dice;
use serde_json::{Value, json};

/// The events so far, and the items that are whole.
#[derive(Default)]
struct Writing {
    events: Vec<Value>,
    output: Vec<Value>,
}

impl Writing {
    fn push(&mut self, kind: &str, rest: Value) {
        let mut event = json!({"type": format!("response.{kind}"), "sequence_number": self.events.len()});
        for (key, value) in rest.as_object().unwrap() {
            event[key] = value.clone();
        }
        self.events.push(event);
    }

    /// An event about the item that is being written.
    fn push_of(&mut self, kind: &str, id: &str, rest: Value) {
        let mut rest = rest;
        rest["item_id"] = id.into();
        rest["output_index"] = self.output.len().into();
        self.push(kind, rest);
    }

    fn add(&mut self, item: &Value) {
        self.push("output_item.added", json!({"output_index": self.output.len(), "item": item}));
    }

    fn finish(&mut self, item: Value) {
        self.push("output_item.done", json!({"output_index": self.output.len(), "item": item}));
        self.output.push(item);
    }
}

pub(super) fn events(plan: &Plan, dice: &mut Dice) -> Vec<Value> {
    let mut writing = Writing::default();
    let begun = response("in_progress", &[], &Value::Null);
    writing.push("created", json!({"response": begun}));
    writing.push("in_progress", json!({"response": begun}));
    if !plan.thoughts.is_empty() {
        reason(&mut writing, &plan.thoughts);
    }
    let is_cut = plan.ending != Ending::Whole;
    if !plan.texts.is_empty() {
        say(&mut writing, &plan.texts, is_cut && plan.calls.is_empty());
    }
    for (at, call) in plan.calls.iter().enumerate() {
        let id = format!("fc_{at}");
        let item = |arguments: &str, status: &str| {
            json!({"type": "function_call", "id": id, "call_id": call.id, "name": call.name,
                "arguments": arguments, "status": status})
        };
        writing.add(&item("", "in_progress"));
        for piece in pieces(&call.arguments, dice) {
            writing.push_of("function_call_arguments.delta", &id, json!({"delta": piece}));
        }
        let is_last = at + 1 == plan.calls.len();
        writing.push_of("function_call_arguments.done", &id, json!({"arguments": call.arguments, "name": call.name}));
        writing.finish(item(&call.arguments, if is_cut && is_last { "incomplete" } else { "completed" }));
    }
    let usage = plan.tokens.map_or(Value::Null, |[input, cached, output, reasoned]| {
        json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": reasoned}, "total_tokens": input + output})
    });
    let (kind, details) = match plan.ending {
        Ending::Whole => ("completed", Value::Null),
        Ending::Limit => ("incomplete", json!({"reason": "max_output_tokens"})),
        Ending::Filter => ("incomplete", json!({"reason": "content_filter"})),
    };
    let mut last = response(kind, &writing.output, &usage);
    last["incomplete_details"] = details;
    writing.push(kind, json!({"response": last}));
    writing.events
}

fn response(status: &str, output: &[Value], usage: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "error": null,
        "incomplete_details": null, "instructions": null, "metadata": {}, "model": "m", "output": output,
        "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "usage": usage})
}

fn reason(writing: &mut Writing, thoughts: &[String]) {
    let item = |summary: Value, encrypted: Value| json!({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": encrypted});
    writing.add(&item(json!([]), Value::Null));
    let part = |text: &str| json!({"type": "summary_text", "text": text});
    writing.push_of("reasoning_summary_part.added", "rs_1", json!({"summary_index": 0, "part": part("")}));
    for text in thoughts {
        writing.push_of("reasoning_summary_text.delta", "rs_1", json!({"summary_index": 0, "delta": text}));
    }
    let whole = thoughts.concat();
    writing.push_of("reasoning_summary_text.done", "rs_1", json!({"summary_index": 0, "text": whole}));
    writing.push_of("reasoning_summary_part.done", "rs_1", json!({"summary_index": 0, "part": part(&whole)}));
    writing.finish(item(json!([part(&whole)]), "ZW5j".into()));
}

fn say(writing: &mut Writing, texts: &[String], is_cut: bool) {
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    let item = |content: Value, status: &str| json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content});
    writing.add(&item(json!([]), "in_progress"));
    writing.push_of("content_part.added", "msg_1", json!({"content_index": 0, "part": part("")}));
    for text in texts {
        writing.push_of("output_text.delta", "msg_1", json!({"content_index": 0, "delta": text, "logprobs": []}));
    }
    let whole = texts.concat();
    writing.push_of("output_text.done", "msg_1", json!({"content_index": 0, "text": whole, "logprobs": []}));
    writing.push_of("content_part.done", "msg_1", json!({"content_index": 0, "part": part(&whole)}));
    writing.finish(item(json!([part(&whole)]), if is_cut { "incomplete" } else { "completed" }));
}
