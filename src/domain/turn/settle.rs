//! Settles calls on which a person has decided: their outcomes are written to the turn that made the calls.

use super::decide::{CANCELLED, Decision, count_children, record_started};
use super::pipeline;
use super::record::{call_record, set_call_result, turn_record};
use super::{CallOutcome, TurnInput};
use crate::approval::{AwaitingCall, DecidedCall, Ruling};
use crate::call::Outcome;
use crate::event::Payload;
use crate::ids::JobId;
use crate::job::JobStatus;
use crate::session::TurnRecord;
use crate::time::Millis;

/// Calls of an earlier reply on which a person has decided.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SettlingCalls {
    /// The turn with the reply that has the calls.
    pub(crate) exchange: TurnRecord,
    /// The ruling on each call, and who decided.
    pub(crate) rulings: Vec<(DecidedCall, AwaitingCall, Ruling)>,
}

/// Decides a turn that has made the approved calls; `outcomes` are theirs, in order.
pub(super) fn on_outcomes(
    turn_input: &TurnInput,
    settling: SettlingCalls,
    outcomes: Vec<CallOutcome>,
    now: Millis,
) -> Decision {
    let mut made = outcomes.into_iter();
    let lost = || CallOutcome::from_text(Outcome::Error, "error: the call has no outcome");
    let outcome = |(decided, call, ruling): (DecidedCall, AwaitingCall, Ruling)| {
        let outcome = match ruling {
            Ruling::Say(outcome, text) => CallOutcome::from_text(outcome, text),
            Ruling::Make { note, .. } => CallOutcome { note, ..made.next().unwrap_or_else(lost) },
        };
        (call, CallOutcome { decided: Some(decided), ..outcome })
    };
    let outcomes: Vec<_> = settling.rulings.into_iter().map(outcome).collect();
    decision(turn_input, settling.exchange, &outcomes, now)
}

/// Decides a turn whose task was cancelled, with the known outcomes of calls that can't be undone, by their index.
pub(super) fn on_cancellation(
    turn_input: &TurnInput,
    settling: SettlingCalls,
    noted: &[(u32, CallOutcome)],
    now: Millis,
) -> Decision {
    let waiting = turn_input.state.awaiting.iter().flat_map(|awaiting| awaiting.calls.iter().cloned());
    let outcome = |call: AwaitingCall| {
        let known = noted.iter().find(|(at, _)| *at == call.call).map(|(_, outcome)| outcome.clone());
        (call, known.unwrap_or_else(|| CallOutcome::from_text(Outcome::Cancelled, CANCELLED)))
    };
    let outcomes: Vec<_> = waiting.map(outcome).collect();
    decision(turn_input, settling.exchange, &outcomes, now).cancel(turn_input)
}

fn decision(
    turn_input: &TurnInput,
    mut exchange: TurnRecord,
    outcomes: &[(AwaitingCall, CallOutcome)],
    now: Millis,
) -> Decision {
    let mut state = turn_input.state.clone();
    let plain: Vec<_> = outcomes.iter().map(|(_, outcome)| outcome.clone()).collect();
    record_started(turn_input, &mut state, &plain, now);
    count_children(&mut state, outcomes.iter().map(|(call, outcome)| (&call.planned, outcome)));
    if let Some(run) = &mut state.pipeline {
        for (call, outcome) in outcomes {
            pipeline::note_outcome(run, exchange.turn, call.call, outcome);
        }
    }
    let all_started = plain.iter().all(|outcome| outcome.started.is_some());
    if let Some(awaiting) = &mut state.awaiting {
        awaiting.calls.retain(|call| !outcomes.iter().any(|(decided, _)| decided.call == call.call));
        awaiting.all_started &= all_started;
    }
    let done = state.awaiting.take_if(|awaiting| awaiting.calls.is_empty());
    for (call, outcome) in outcomes {
        show_outcome(&mut exchange, call, outcome);
    }
    let mut record = turn_record(turn_input, None, &[], now);
    record.calls = outcomes.iter().map(|(call, outcome)| call_record(&call.planned, outcome)).collect();
    record.settles = Some(exchange.turn);
    let mut decision = Decision { amended_record: Some(exchange), ..Decision::new(record, state) };
    if let Some(done) = done {
        decision.status = turn_input.plan.job().map(|job| (job.clone(), JobStatus::Started));
        if done.all_started {
            // The model needs no turn before a result arrives.
            decision.state.parked = true;
            decision.consume = std::mem::take(&mut decision.state.shown);
            decision.state.under = None;
        }
    }
    let awaited = |approval: &JobId| outcomes.iter().any(|(call, _)| call.approval == *approval);
    decision.consume.extend(turn_input.plan.settled.iter().filter_map(|pending| match &pending.event.payload {
        Payload::Decision { approval } if awaited(approval) => Some(pending.key.clone()),
        Payload::Decision { .. } | Payload::Task { .. } | Payload::Message { .. } | Payload::Result { .. } => None,
    }));
    decision
}

/// Replaces the note of a waiting call by its outcome.
fn show_outcome(exchange: &mut TurnRecord, call: &AwaitingCall, outcome: &CallOutcome) {
    set_call_result(exchange, call.call, outcome);
    let record = usize::try_from(call.call).ok().and_then(|at| exchange.calls.get_mut(at));
    if let Some(record) = record {
        // An approval may have left sections out.
        record.scoped = call_record(&call.planned, outcome).scoped;
    }
}
