//! Calls that wait for a person: what the turn that asks leaves, and what the decided ones come to.

use super::*;
use crate::approval::{Approval, ApprovalSubject, ApprovalVerdict, CallPlace};

pub(super) fn asked(owner: &crate::ids::Owner, session: &SessionKey, call: u32) -> CallOutcome {
    let place = CallPlace { owner, session, turn: 5, call, start: Some(Millis(1)) };
    let subject = ApprovalSubject::Call {
        operation: "v/ops/lattice/read".into(),
        arguments: json!({}),
        fixed: Vec::new(),
        scopes: Vec::new(),
    };
    let approval = Approval::new(b"key", place, READ, subject, NOW, NOW.plus(std::time::Duration::from_mins(1)));
    let resolved =
        ResolvedCall { target: ToolTarget::Operation("v/ops/lattice/read".into()), arguments: json!({"n": call}) };
    let planned = PlannedCall {
        id: format!("c{call}"),
        tool: READ.into(),
        what: Ok(resolved),
        injection: Injection::default(),
        instance: None,
        scoped: Vec::new(),
        published: None,
    };
    let asked = Some(Box::new(ApprovalRequest { approval, planned }));
    CallOutcome { asked, ..CallOutcome::from_text(Outcome::Awaiting, "awaiting a person") }
}

/// A turn with two calls that are asked about and one that isn't.
fn waiting() -> (TurnInput, Decision) {
    let turn_input = turn_input("implicit", begun(1, 1, false), vec![task(1), message(4)]);
    let reply = calls(&[(READ, json!({})), (READ, json!({})), (READ, json!({}))]);
    let outcomes =
        vec![asked(&turn_input.owner, &turn_input.session, 0), ok(), asked(&turn_input.owner, &turn_input.session, 2)];
    (turn_input.clone(), drive(turn_input, reply, outcomes))
}

pub(super) fn after(turn_input: &TurnInput, decision: &Decision, inbox: Vec<PendingEvent>) -> (SessionRun, TurnInput) {
    let run = SessionRun::new(5, decision.state.clone(), inbox, false);
    let plan = run.plan_for_answers();
    let next = TurnInput { turn: 6, state: run.state.clone(), plan, ..turn_input.clone() };
    (run, next)
}

pub(super) fn answer(verdict: ApprovalVerdict) -> ApprovalAnswer {
    ApprovalAnswer { by: "a person".into(), at: NOW, verdict }
}

pub(super) fn approved() -> ApprovalAnswer {
    answer(ApprovalVerdict::Approved { arguments: None, scopes: None })
}

fn results(record: &TurnRecord) -> Vec<String> {
    let text = |message: &_| match message {
        crate::chat::ChatMessage::Tool { text, .. } => Some(String::clone(text)),
        _ => None,
    };
    record.said.iter().filter_map(text).collect()
}

#[test]
fn a_reply_with_a_call_to_approve_waits_and_its_task_says_so() {
    let (turn_input, decision) = waiting();
    assert_eq!(decision.status, Some((job(1), JobStatus::InputRequired)));
    assert_eq!(decision.approvals.len(), 2);
    let awaiting = decision.state.awaiting.clone().unwrap();
    assert_eq!(awaiting.calls.iter().map(|call| call.call).collect::<Vec<_>>(), [0, 2]);
    let until = awaiting.first_expiry();
    // Nothing but an answer wakes it, and messages wait.
    let (run, _) = after(&turn_input, &decision, vec![task(1), message(5)]);
    assert_eq!(run.next_step(5), NextStep::Await { news: false, until });
    let approval = awaiting.calls[0].approval.clone();
    let (run, _) = after(&turn_input, &decision, vec![pending(7, Payload::Decision { approval }), task(1)]);
    assert_eq!(run.next_step(5), NextStep::Await { news: true, until });
    let (run, _) = after(&turn_input, &decision, vec![pending(7, Payload::Decision { approval: job(9) }), task(1)]);
    assert!(matches!(run.next_step(5), NextStep::Settle(_)), "an answer that nobody awaits");
}

#[test]
fn a_task_that_ends_with_the_reply_asks_nobody() {
    for reply in [
        calls(&[(READ, json!({})), ("complete_task", json!({"result": 7}))]),
        calls(&[(READ, json!({})), ("fail_task", json!({"error": "x"}))]),
    ] {
        let turn_input = turn_input("implicit", begun(1, 1, false), vec![task(1)]);
        let outcomes = vec![asked(&turn_input.owner, &turn_input.session, 0), ok()];
        let decision = drive(turn_input, reply, outcomes);
        assert!(decision.ended_task.is_some() && decision.approvals.is_empty() && decision.state.awaiting.is_none());
        assert!(results(&decision.record)[0].starts_with("not made"), "{:?}", results(&decision.record));
    }
}

#[test]
fn decided_calls_are_made_and_stand_in_the_turn_that_asked() {
    let (turn_input, first) = waiting();
    let calls = first.state.awaiting.clone().unwrap().calls;
    let event = pending(7, Payload::Decision { approval: calls[1].approval.clone() });
    let (_, next) = after(&turn_input, &first, vec![event, task(1), message(5)]);
    let decided = vec![(calls[1].clone(), approved())];
    let (mut turn, action) = Turn::settle(next, first.record.clone(), decided, &[]);
    // At its own place in the reply, whatever else was decided: ids of effects depend on it.
    assert_eq!(action, Action::Call(vec![(2, calls[1].planned.clone())]));
    let Action::Commit(decision) = turn.step(Observation::Called(vec![ok()]), NOW) else { panic!("expected a commit") };
    assert_eq!(results(decision.amended_record.as_ref().unwrap()), ["awaiting a person", "fine", "fine"]);
    assert_eq!((decision.record.settles, decision.record.said.len(), decision.record.calls.len()), (Some(5), 0, 1));
    assert_eq!(decision.consume, ["k7"]);
    assert_eq!(decision.state.awaiting.as_ref().unwrap().calls.len(), 1);
    assert_eq!((decision.status.clone(), decision.ended_task.clone()), (None, None));
    assert_eq!(decision.state.task, first.state.task, "it is no turn of the task's");
    let (_, last) = after(&turn_input, &decision, vec![task(1), message(5)]);
    let rejected = answer(ApprovalVerdict::Rejected { reason: Some("no".into()) });
    let (mut turn, action) =
        Turn::settle(last, decision.amended_record.clone().unwrap(), vec![(calls[0].clone(), rejected)], &[]);
    assert_eq!(action, Action::Call(Vec::new()));
    let Action::Commit(decision) = turn.step(Observation::Called(Vec::new()), NOW) else { panic!("expected a commit") };
    assert!(results(decision.amended_record.as_ref().unwrap())[0].starts_with("rejected by a person: no."));
    assert_eq!(decision.status, Some((job(1), JobStatus::Started)));
    let (run, _) = after(&turn_input, &decision, vec![task(1), message(5)]);
    assert!(matches!(run.next_step(5), NextStep::Turn(_)), "the model is asked again");
}

#[test]
fn a_task_that_ended_from_outside_withdraws_its_calls() {
    let (turn_input, first) = waiting();
    let (run, next) = after(&turn_input, &first, vec![message(5)]);
    let until = first.state.awaiting.as_ref().unwrap().first_expiry();
    assert_eq!((run.is_withdrawn(), run.next_step(5)), (true, NextStep::Await { news: true, until }));
    let calls = first.state.awaiting.clone().unwrap().calls;
    let withdrawn = calls.into_iter().map(|call| (call, answer(ApprovalVerdict::Withdrawn))).collect();
    let (mut turn, _) = Turn::settle(next, first.record.clone(), withdrawn, &[]);
    let Action::Commit(decision) = turn.step(Observation::Called(Vec::new()), NOW) else { panic!("expected a commit") };
    let shown = results(decision.amended_record.as_ref().unwrap());
    assert!(shown[0].starts_with("cancelled") && shown[1] == "fine" && shown[2].starts_with("cancelled"), "{shown:?}");
    assert_eq!((decision.state.awaiting.clone(), decision.status.clone()), (None, None));
}

#[test]
fn a_cancellation_keeps_the_known_results_of_decided_calls() {
    let (turn_input, first) = waiting();
    let calls = first.state.awaiting.clone().unwrap().calls;
    let (_, next) = after(&turn_input, &first, vec![task(1)]);
    let (mut turn, _) = Turn::settle(next, first.record.clone(), vec![(calls[0].clone(), approved())], &[]);
    let noted = vec![(0, CallOutcome { text: "noted".into(), ..ok() })];
    let Action::Commit(decision) = turn.step(Observation::Cancelled(noted), NOW) else { panic!("expected a commit") };
    let shown = results(decision.amended_record.as_ref().unwrap());
    assert_eq!((shown[0].as_str(), shown[2].as_str()), ("noted", "cancelled: the task was cancelled"));
    assert!(decision.cancelled && decision.state.awaiting.is_none() && decision.state.task.is_none());
}

#[test]
fn calls_that_have_all_started_jobs_park_the_session() {
    let turn_input = turn_input("implicit", begun(1, 1, false), vec![task(1)]);
    let reply = calls(&[(READ, json!({})), (READ, json!({}))]);
    let first = drive(turn_input.clone(), reply, vec![asked(&turn_input.owner, &turn_input.session, 0), started(8)]);
    let calls = first.state.awaiting.clone().unwrap().calls;
    let (_, next) = after(&turn_input, &first, vec![task(1)]);
    let (mut turn, _) = Turn::settle(next, first.record.clone(), vec![(calls[0].clone(), approved())], &[]);
    let Action::Commit(decision) = turn.step(Observation::Called(vec![started(9)]), NOW) else { panic!("a commit") };
    assert!(decision.state.parked && decision.state.pending.contains_key(&job(9)));
}

#[test]
fn a_predecessors_effects_of_a_withdrawn_call_stay_known() {
    let (turn_input, first) = waiting();
    let calls = first.state.awaiting.clone().unwrap().calls;
    let (_, next) = after(&turn_input, &first, vec![]);
    let withdrawn = calls.into_iter().map(|call| (call, answer(ApprovalVerdict::Withdrawn))).collect();
    let noted = [(2, CallOutcome { text: "it was done".into(), ..ok() })];
    let (mut turn, _) = Turn::settle(next, first.record.clone(), withdrawn, &noted);
    let Action::Commit(decision) = turn.step(Observation::Called(Vec::new()), NOW) else { panic!("expected a commit") };
    let shown = results(decision.amended_record.as_ref().unwrap());
    assert!(shown[0].starts_with("cancelled") && shown[2] == "it was done", "{shown:?}");
}

#[test]
fn answers_go_first_so_that_a_turn_keeps_its_number() {
    let (turn_input, first) = waiting();
    let awaiting = first.state.awaiting.clone().unwrap();
    let event = || pending(7, Payload::Decision { approval: awaiting.calls[0].approval.clone() });
    let ended = PendingEvent { status: Some(JobStatus::Cancelled), ..task(9) };
    let (run, _) = after(&turn_input, &first, vec![event(), task(1), ended.clone()]);
    assert!(run.has_answers(NOW), "also beside what needs no model");
    let (run, _) = after(&turn_input, &first, vec![task(1), ended]);
    assert!(!run.has_answers(NOW) && run.has_answers(awaiting.first_expiry()));
    let (run, _) = after(&turn_input, &first, vec![]);
    assert!(run.has_answers(NOW), "withdrawn");
}
