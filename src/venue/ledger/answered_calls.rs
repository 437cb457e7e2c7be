//! Calls of a turn with the answers to their model, and what each call read.

use crate::domain::chat::{Arguments, ChatMessage};
use crate::domain::origin::SourceRead;
use crate::domain::session::{CallRecord, TurnRecord};
use serde_json::Value;
use std::borrow::Cow;

/// A call of a turn with the answer to its model.
#[derive(Clone, Copy)]
pub(super) struct AnsweredCall<'r> {
    /// Index of the answer among the messages of the turn.
    pub at: usize,
    /// Id that the model gave the call.
    pub call: &'r str,
    /// Name of the tool.
    pub tool: &'r str,
    /// Text of the answer.
    pub text: &'r str,
    /// Record of the call.
    pub made: &'r CallRecord,
}

impl<'r> AnsweredCall<'r> {
    /// Returns what the call has read, by its record, else by the paths in its arguments.
    pub fn reads(&self, record: &TurnRecord) -> Cow<'r, [SourceRead]> {
        reads_of_call(record, self.call, self.made)
    }
}

/// Returns the calls of a turn that have an answer, in the order of the answers.
pub(super) fn answered_calls(record: &TurnRecord) -> impl Iterator<Item = AnsweredCall<'_>> {
    let answers = record.said.iter().enumerate().filter_map(|(at, message)| match message {
        ChatMessage::Tool { call, name, text } => Some((at, call, name, text)),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    answers.zip(&record.calls).map(|((at, call, tool, text), made)| AnsweredCall { at, call, tool, text, made })
}

fn reads_of_call<'r>(record: &TurnRecord, call: &str, made: &'r CallRecord) -> Cow<'r, [SourceRead]> {
    if let Some(reads) = &made.reads {
        return reads.into();
    }
    if made.outcome != "ok" {
        return Cow::default();
    }
    let calls = record.said.iter().flat_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.as_slice(),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => &[],
    });
    let arguments = calls.filter(|made| made.id == call).map(|made| match &made.arguments {
        Arguments::Json(arguments) => named_paths(arguments),
        Arguments::Malformed(_) => Vec::new(),
    });
    arguments.flatten().map(SourceRead::new).collect::<Vec<_>>().into()
}

/// Returns the paths that arguments may name: older records of calls have no reads.
fn named_paths(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) if text.contains('/') => vec![text.as_str()],
        Value::Array(items) => items.iter().flat_map(named_paths).collect(),
        Value::Object(map) => map.values().flat_map(named_paths).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::origin::overlap;
    use serde_json::json;

    #[test]
    fn arguments_touch_a_path_wherever_it_stands() {
        for (arguments, expected) in [
            (json!({"path": "w/x/1"}), true),
            (json!({"from": {"paths": ["n/a", "w/x"]}}), true),
            (json!({"path": "w/y", "value": "some w"}), false),
            (json!({"value": "w"}), false),
            (json!(null), false),
        ] {
            assert_eq!(named_paths(&arguments).iter().any(|named| overlap(named, "w/x")), expected, "{arguments}");
        }
    }
}
