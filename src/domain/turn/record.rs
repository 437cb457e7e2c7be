//! Makes the record of a turn: its line of the timeline and its part of the transcript.

use super::{CallOutcome, RecordedReply, TurnInput};
use crate::call::{PlannedCall, ReplyStart};
use crate::chat::{Arguments, ChatMessage, TokenUsage, ToolCall};
use crate::scope::ScopedSection;
use crate::session::{CallRecord, TurnRecord};
use crate::time::Millis;
use serde_json::Value;

pub(super) fn turn_record(
    turn_input: &TurnInput,
    recorded: Option<&RecordedReply>,
    outcomes: &[CallOutcome],
    now: Millis,
) -> TurnRecord {
    let model = &turn_input.config.model;
    let authority = turn_input.authority.clone().without_home();
    let asked_in = recorded.map(|r| r.start).filter(|_| outcomes.iter().any(|outcome| outcome.asked.is_some()));
    TurnRecord {
        turn: turn_input.turn,
        start: recorded.map_or(turn_input.start, |r| r.start.time()),
        end: now,
        config_version: recorded.map_or(turn_input.config_version, |r| r.config_version),
        worker: String::new(),
        model: model.id(),
        failed_models: Vec::new(),
        usage: recorded.map_or_else(TokenUsage::default, |r| r.reply.usage),
        job: recorded.map_or_else(|| turn_input.plan.job().cloned(), |r| r.job.clone()),
        events: recorded.map(|r| r.events.clone()).unwrap_or_default(),
        heard: recorded.map(|r| r.heard.clone()).unwrap_or_default(),
        failed: None,
        said: recorded.map(|r| said_messages(r, outcomes)).unwrap_or_default(),
        calls: recorded.map(|r| call_records(r, outcomes)).unwrap_or_default(),
        ended: Vec::new(),
        wider: recorded.map(|r| r.authority.clone().without_home()).filter(|asked| *asked != authority),
        authority,
        bound: turn_input.mandate.envelope.bound.clone(),
        used: Some(recorded.map(|r| r.used.clone()).unwrap_or_default()),
        settles: None,
        dated: matches!(asked_in, Some(ReplyStart::Dated(_))),
        served: asked_in.and_then(ReplyStart::received_at),
        frame: recorded.map_or_else(|| turn_input.state.goals.active_id(), |r| r.frame),
        prompt: recorded.map(|r| r.prompt.clone()).unwrap_or_default(),
        erased: false,
        hidden: false,
    }
}

fn said_messages(recorded: &RecordedReply, outcomes: &[CallOutcome]) -> Vec<ChatMessage> {
    let calls = recorded.reply.calls.iter().map(|call| ToolCall {
        // Providers refuse a conversation with malformed arguments.
        arguments: match &call.arguments {
            Arguments::Json(value) => Arguments::Json(value.clone()),
            Arguments::Malformed(_) => Arguments::Json(Value::Object(serde_json::Map::new())),
        },
        ..call.clone()
    });
    let (text, reasoning) = (recorded.reply.text.clone(), recorded.reply.reasoning.clone());
    let assistant = ChatMessage::Assistant { text, calls: calls.collect(), reasoning };
    let results = recorded.calls.iter().zip(outcomes).map(|(call, outcome)| ChatMessage::Tool {
        call: call.id.clone(),
        name: call.tool.clone(),
        text: outcome.text.clone(),
    });
    std::iter::once(assistant).chain(results).collect()
}

fn call_records(recorded: &RecordedReply, outcomes: &[CallOutcome]) -> Vec<CallRecord> {
    recorded.calls.iter().zip(outcomes).map(|(call, outcome)| call_record(call, outcome)).collect()
}

/// Makes the record of a call.
pub(super) fn call_record(call: &PlannedCall, outcome: &CallOutcome) -> CallRecord {
    CallRecord {
        tool: call.tool.clone(),
        operation: call.operation(),
        outcome: outcome.outcome.as_str().to_owned(),
        began: outcome.began,
        decided: outcome.decided.clone(),
        instance: call.instance.clone(),
        // A call that was not made has sent nothing anywhere.
        scoped: call.scoped.iter().filter(|_| outcome.outcome.is_made()).map(ScopedSection::to_record).collect(),
        needs: outcome.needs.clone(),
        went_out: outcome.went_out,
        note: outcome.note.clone(),
        reads: Some(outcome.reads.clone()),
        sent: outcome.sent.clone(),
    }
}

/// Replaces the result of a call of an earlier turn by its final outcome.
pub(super) fn set_call_result(exchange: &mut TurnRecord, call: u32, outcome: &CallOutcome) {
    let Ok(at) = usize::try_from(call) else { return };
    let mut results = exchange.said.iter_mut().filter_map(|message| match message {
        ChatMessage::Tool { text, .. } => Some(text),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    if let Some(text) = results.nth(at) {
        text.clone_from(&outcome.text);
    }
    if let Some(record) = exchange.calls.get_mut(at) {
        outcome.outcome.as_str().clone_into(&mut record.outcome);
        record.began = record.began.or(outcome.began);
        record.decided.clone_from(&outcome.decided);
        record.needs.clone_from(&outcome.needs);
        record.went_out = outcome.went_out;
        record.note.clone_from(&outcome.note);
        record.reads = Some(outcome.reads.clone());
        record.sent.clone_from(&outcome.sent);
    }
}
