//! Turns of a pipeline: its manifest decides the calls, no model is asked, and the State says how far the run has come.

use super::settle::{after, answer, approved, asked};
use super::*;
use crate::approval::ApprovalVerdict;
use crate::pipeline_run::{PipelineState, StepFailure};

fn flow(pipeline: &Value, state: SessionState, inbox: Vec<PendingEvent>) -> TurnInput {
    let config = AgentConfig::parse(&json!({"pipeline": pipeline})).unwrap();
    TurnInput { config: Arc::new(config), ..turn_input("implicit", state, inbox) }
}

fn steps(kind: &str) -> Value {
    json!({"kind": kind, "steps": [{"stateKey": "one", "ref": "x"}, {"stateKey": "two", "ref": "x"}]})
}

/// A pipeline that calls a tool.
fn tool_flow() -> TurnInput {
    let config = json!({
        "pipeline": {"kind": "tool", "tool": "keep"}, "tools": [{"operation": "v/ops/lattice/write", "name": "keep"}]
    });
    let config = Arc::new(AgentConfig::parse(&config).unwrap());
    TurnInput { config, ..turn_input("implicit", SessionState::default(), vec![task(1)]) }
}

/// The turn after a decision.
fn next(before: &TurnInput, decision: &Decision, inbox: Vec<PendingEvent>) -> TurnInput {
    let run = SessionRun::new(before.turn, decision.state.clone(), inbox, false);
    let plan = run.plan();
    TurnInput { turn: before.turn + 1, mandate: run.mandate(&plan), plan, state: run.state, ..before.clone() }
}

fn offered() -> Observation {
    Observation::Offered(Arc::new(ToolTable::new(Vec::new(), Vec::new(), Vec::new())))
}

/// Drives a turn to its commit; `outcomes` are those of its calls.
fn drive_flow(turn_input: TurnInput, outcomes: Vec<CallOutcome>) -> Decision {
    let (mut turn, action) = Turn::begin(turn_input, NOW);
    assert_eq!(action, Action::Decide);
    let mut action = turn.step(offered(), NOW);
    if let Action::Record(_) = action {
        let Action::Call(planned) = turn.step(Observation::Recorded, NOW) else { panic!("expected calls") };
        assert_eq!(planned.len(), outcomes.len());
        action = turn.step(Observation::Called(outcomes), NOW);
    } else {
        assert!(outcomes.is_empty(), "no call is made: {action:?}");
    }
    let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
    *decision
}

fn run_of(decision: &Decision) -> &PipelineState {
    decision.state.pipeline.as_deref().unwrap()
}

/// Child jobs of the steps that run.
fn running(decision: &Decision) -> Vec<Option<JobId>> {
    run_of(decision).running.iter().map(|step| step.job.clone()).collect()
}

fn failed_result(n: u8) -> PendingEvent {
    pending(n, Payload::Result { job: job(n), result: JobResult::failure(ErrorCode::ModelError, "no") })
}

fn error_text(decision: &Decision) -> &str {
    decision.ended_task.as_ref().and_then(|(_, result)| result.error.as_deref()).unwrap_or_default()
}

#[test]
fn each_step_of_a_sequence_has_a_turn_and_the_last_ends_it() {
    let first = flow(&steps("sequential"), SessionState::default(), vec![task(1)]);
    let decision = drive_flow(first.clone(), vec![started(2)]);
    assert_eq!((ended(&decision), decision.state.parked, running(&decision)), (None, true, vec![Some(job(2))]));
    let waits = SessionRun::new(5, decision.state.clone(), vec![task(1)], false);
    assert_eq!(waits.next_step(5), NextStep::Rest, "it rests until the result arrives");
    let second = next(&first, &decision, vec![task(1), result(2)]);
    let decision = drive_flow(second.clone(), vec![started(3)]);
    assert_eq!((ended(&decision), running(&decision)), (None, vec![Some(job(3))]));
    assert_eq!(decision.consume, ["k2"]);
    assert_eq!(run_of(&decision).values["one"], json!("done"));
    let decision = drive_flow(next(&second, &decision, vec![task(1), result(3)]), Vec::new());
    assert_eq!(ended(&decision), Some((JobStatus::Complete, None)));
    assert_eq!(decision.ended_task.as_ref().unwrap().1.output, Some(json!("done")));
    assert!(decision.state.task.is_none() && decision.state.pending.is_empty());
    assert_eq!(run_of(&decision).begun, 2, "the State stays until the next run");
}

#[test]
fn a_call_that_starts_no_step_fails_the_task_and_names_it() {
    for (outcome, expected) in [
        (Outcome::Denied, ErrorCode::CapDenied),
        (Outcome::Scope, ErrorCode::CapDenied),
        (Outcome::Limit, ErrorCode::LimitReached),
        (Outcome::Cancelled, ErrorCode::Cancelled),
        (Outcome::OutcomeUnknown, ErrorCode::OutcomeUnknown),
        (Outcome::Error, ErrorCode::TaskFailed),
    ] {
        let first = flow(&steps("sequential"), SessionState::default(), vec![task(1)]);
        let decision = drive_flow(first, vec![CallOutcome::from_text(outcome, "error: so it is")]);
        assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(expected))), "{outcome:?}");
        assert_eq!(error_text(&decision), "step `one` (1 of 2): so it is");
    }
}

#[test]
fn a_failed_branch_ends_the_task_while_others_run() {
    let first = flow(&steps("parallel"), SessionState::default(), vec![task(1)]);
    let decision = drive_flow(first.clone(), vec![started(2), started(3)]);
    assert_eq!(running(&decision), [Some(job(2)), Some(job(3))], "both begin in one turn");
    let decision = drive_flow(next(&first, &decision, vec![task(1), failed_result(3)]), Vec::new());
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::ModelError))));
    assert_eq!(error_text(&decision), "step `two` (2 of 2): no");
    assert_eq!(running(&decision), [Some(job(2))], "the commit cancels what still runs");
}

#[test]
fn a_result_of_one_branch_leaves_the_others_running() {
    let first = flow(&steps("parallel"), SessionState::default(), vec![task(1)]);
    let decision = drive_flow(first.clone(), vec![started(2), started(3)]);
    let second = next(&first, &decision, vec![task(1), result(3)]);
    let decision = drive_flow(second.clone(), Vec::new());
    assert_eq!((ended(&decision), decision.state.parked, running(&decision)), (None, true, vec![Some(job(2))]));
    let decision = drive_flow(next(&second, &decision, vec![task(1), result(2)]), Vec::new());
    let output = decision.ended_task.as_ref().unwrap().1.output.clone();
    assert_eq!(output, Some(json!({"one": "done", "two": "done"})));
}

#[test]
fn a_step_that_a_person_must_approve_waits_for_the_answer() {
    let first = flow(&steps("parallel"), SessionState::default(), vec![task(1)]);
    let outcomes = vec![asked(&first.owner, &first.session, 0), started(3)];
    let waits = drive_flow(first.clone(), outcomes);
    assert_eq!(waits.status, Some((job(1), JobStatus::InputRequired)));
    assert_eq!(running(&waits), [None, Some(job(3))]);
    let call = waits.state.awaiting.clone().unwrap().calls.remove(0);
    let rejected = answer(ApprovalVerdict::Rejected { reason: Some("no".into()) });
    for (ruling, outcomes) in [(approved(), vec![started(2)]), (rejected, Vec::new())] {
        let (_, answered) = after(&first, &waits, vec![task(1)]);
        let (mut turn, _) = Turn::settle(answered.clone(), waits.record.clone(), vec![(call.clone(), ruling)], &[]);
        let is_approved = !outcomes.is_empty();
        let action = turn.step(Observation::Called(outcomes), NOW);
        let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
        assert_eq!((decision.state.awaiting.is_none(), decision.state.parked), (true, is_approved));
        if is_approved {
            assert_eq!(running(&decision), [Some(job(2)), Some(job(3))]);
            continue;
        }
        assert_eq!(running(&decision), [Some(job(3))]);
        let decision = drive_flow(next(&answered, &decision, vec![task(1)]), Vec::new());
        assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::CapDenied))));
        assert!(error_text(&decision).starts_with("step `one` (1 of 2): rejected by a person"), "{decision:?}");
    }
}

#[test]
fn a_changed_manifest_fails_the_run_that_began_before() {
    let first = flow(&steps("sequential"), SessionState::default(), vec![task(1)]);
    let decision = drive_flow(first.clone(), vec![started(2)]);
    let changed = flow(&steps("parallel"), SessionState::default(), Vec::new());
    let second = TurnInput { config: changed.config, ..next(&first, &decision, vec![task(1), result(2)]) };
    let decision = drive_flow(second, Vec::new());
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::Conflict))));
    assert!(error_text(&decision).contains("(step `one` (1 of 2))"), "{}", error_text(&decision));
}

#[test]
fn a_message_is_consumed_with_a_note_and_starts_nothing() {
    let first = flow(&steps("sequential"), SessionState::default(), vec![message(4)]);
    let decision = drive_flow(first, Vec::new());
    assert_eq!((decision.record.failed, decision.consume.clone()), (Some(ErrorCode::Refused), vec!["k4".to_owned()]));
    assert!(decision.ended_task.is_none() && decision.state.pipeline.is_none());
}

#[test]
fn a_successor_makes_the_recorded_calls_and_no_others() {
    let first = flow(&steps("parallel"), SessionState::default(), vec![task(1)]);
    let (mut turn, _) = Turn::begin(first.clone(), NOW);
    let Action::Record(recorded) = turn.step(offered(), NOW) else { panic!("expected a record") };
    let stored = serde_json::to_string(&*recorded).unwrap();
    let recorded: RecordedReply = serde_json::from_str(&stored).unwrap();
    let Action::Call(planned) = turn.step(Observation::Recorded, NOW) else { panic!("expected calls") };
    let run = SessionRun::new(4, SessionState::default(), vec![task(1)], false);
    let plan = run.plan_for_recorded(&recorded);
    let (mut turn, action) = Turn::resume(TurnInput { plan, ..first.clone() }, recorded, &[], NOW);
    assert_eq!(action, Action::Call(planned));
    let Action::Commit(decision) = turn.step(Observation::Called(vec![started(2), started(3)]), NOW) else {
        panic!("expected a commit")
    };
    assert_eq!(decision.state, drive_flow(first, vec![started(2), started(3)]).state);
}

#[test]
fn a_run_stays_hidden_under_the_widest_authority_it_had() {
    let first = flow(&steps("sequential"), SessionState::default(), vec![task(1)]);
    let decision = drive_flow(first.clone(), vec![started(2)]);
    let narrow = Authority::new(Some(Vec::new()));
    let second = next(&first, &decision, vec![task(1), result(2)]);
    let decision = drive_flow(TurnInput { authority: narrow.clone(), ..second }, vec![started(3)]);
    assert_eq!(run_of(&decision).authority, Authority::default());
    let decision = drive_flow(TurnInput { authority: narrow.clone(), ..first }, vec![started(2)]);
    assert_eq!(run_of(&decision).authority, narrow);
}

#[test]
fn a_step_with_an_agent_of_its_own_is_named_by_place_and_key() {
    let agent = json!({"model": {"provider": "scripted", "name": "x"}});
    let inline = json!({"kind": "sequential", "steps": [{"stateKey": "one", "agent": agent}]});
    let (mut turn, _) = Turn::begin(flow(&inline, SessionState::default(), vec![task(1)]), NOW);
    let Action::Record(recorded) = turn.step(offered(), NOW) else { panic!("expected a record") };
    let Ok(ResolvedCall { target: ToolTarget::Delegate(to), .. }) = &recorded.calls[0].what else {
        panic!("expected a child job, got {:?}", recorded.calls)
    };
    assert_eq!((to.step.as_deref(), to.agent.as_ref()), (Some("0:one"), None));
}

#[test]
fn a_caller_writes_no_output_of_a_step() {
    let mut first = flow(&steps("sequential"), SessionState::default(), vec![task(1)]);
    let mut config = (*first.config).clone();
    config.input_schema = Some(json!({"type": "object", "properties": {"topic": {}}}));
    first.config = Arc::new(config);
    let input = json!({"topic": "bees", "more": 1, "two": {"approved": true}});
    let given = PendingEvent { status: Some(JobStatus::Started), ..pending(1, Payload::Task { job: job(1), input }) };
    let run = SessionRun::new(4, SessionState::default(), vec![given], false);
    let decision = drive_flow(TurnInput { plan: run.plan(), ..first }, vec![started(2)]);
    assert_eq!(json!(run_of(&decision).values), json!({"topic": "bees", "more": 1}));
}

#[test]
fn a_call_that_is_undone_at_the_commit_fails_its_run() {
    let denied = || vec![(0, StepFailure::new(ErrorCode::CapDenied, "denied"))];
    let mut decision = drive_flow(tool_flow(), vec![ok()]);
    assert_eq!(ended(&decision), Some((JobStatus::Complete, None)));
    assert_eq!(decision.fail_steps(denied()), Some(StepFailure::new(ErrorCode::CapDenied, "denied")));
    let first = flow(&steps("parallel"), SessionState::default(), vec![task(1)]);
    let mut decision = drive_flow(first.clone(), vec![asked(&first.owner, &first.session, 0), started(3)]);
    decision.remove_approvals(&[0]);
    assert!(decision.fail_steps(denied()).is_some() && decision.state.awaiting.is_none());
    assert_eq!(running(&decision), [Some(job(3))]);
    let second = next(&first, &decision, vec![task(1)]);
    let waits = SessionRun::new(5, second.state.clone(), vec![task(1)], false);
    assert!(matches!(waits.next_step(5), NextStep::Turn(_)), "it doesn't wait for what nobody does");
    let decision = drive_flow(second, Vec::new());
    assert_eq!(error_text(&decision), "step `one` (1 of 2): denied");
}

#[test]
fn a_cancelled_turn_keeps_the_state_of_the_turn_before() {
    let first = flow(&steps("sequential"), SessionState::default(), vec![task(1)]);
    let decision = drive_flow(first.clone(), vec![started(2)]);
    let second = next(&first, &decision, vec![task(1), result(2)]);
    let (mut turn, _) = Turn::begin(second, NOW);
    let Action::Record(_) = turn.step(offered(), NOW) else { panic!("expected a record") };
    let Action::Commit(cancelled) = turn.step(Observation::Cancelled(Vec::new()), NOW) else {
        panic!("expected a commit")
    };
    assert!(cancelled.cancelled && cancelled.ended_task.is_none());
    assert_eq!(running(&cancelled), [Some(job(2))]);
}
