//! What a turn does at a limit: it fails its task, or lets it end itself.

use super::*;
use crate::budget::{Deadline, LimitOrigin};
use crate::chat::ChatMessage;

fn windy(mut turn_input: TurnInput) -> TurnInput {
    let mut config = (*turn_input.config).clone();
    config.limits.wind_down = true;
    turn_input.config = Arc::new(config);
    turn_input
}

fn serving() -> TurnInput {
    turn_input("implicit", begun(1, 1, false), vec![task(1)])
}

fn final_turn(code: ErrorCode) -> FinalTurn {
    FinalTurn { code, reason: "it is used up".into() }
}

fn short(turn_input: TurnInput) -> (Turn, Action) {
    let (mut turn, _) = Turn::begin(turn_input, NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    let failure = ModelFailure::LimitReached(final_turn(ErrorCode::BudgetExceeded));
    let action = turn.step(Observation::Answered(Err(failure)), NOW);
    (turn, action)
}

#[test]
fn a_task_whose_budget_is_used_up_fails_and_says_so() {
    let (_, action) = short(serving());
    let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::BudgetExceeded))));
}

#[test]
fn a_task_that_may_wind_down_gets_one_last_turn() {
    let (turn, action) = short(windy(serving()));
    assert_eq!((action, turn.input().last.clone()), (Action::Gather, Some(final_turn(ErrorCode::BudgetExceeded))));
    let done = Some((JobStatus::Complete, None));
    let failed = Some((JobStatus::Failed, Some(ErrorCode::BudgetExceeded)));
    let complete = || calls(&[("complete_task", json!({"result": 1}))]);
    for (completion, reply, outcomes, expected) in [
        ("implicit", text("this is it"), vec![], done),
        ("explicit", text("this is it"), vec![], failed),
        ("explicit", complete(), vec![ok()], done),
        ("implicit", calls(&[("no_such_tool", json!({}))]), vec![ok()], failed),
    ] {
        let turn_input = turn_input(completion, begun(1, 1, false), vec![task(1)]);
        let turn_input = TurnInput { last: Some(final_turn(ErrorCode::BudgetExceeded)), ..turn_input };
        assert_eq!(ended(&drive(turn_input, reply, outcomes)), expected, "{completion}");
    }
    // And it is not asked a third time.
    let turn_input = TurnInput { last: Some(final_turn(ErrorCode::BudgetExceeded)), ..windy(serving()) };
    let (_, action) = short(turn_input);
    assert!(matches!(action, Action::Commit(_)), "{action:?}");
}

#[test]
fn the_turn_limit_leaves_one_turn_to_wind_down() {
    let read = || calls(&[(READ, json!({}))]);
    let at_limit = || turn_input("implicit", begun(1, 2, false), vec![task(1)]);
    let decision = drive(windy(at_limit()), read(), vec![ok()]);
    assert_eq!((ended(&decision), decision.state.task.map(|task| task.winding)), (None, Some(true)));
    let decision = drive(at_limit(), read(), vec![ok()]);
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::LimitReached))));
}

#[test]
fn a_task_whose_time_is_over_asks_no_model() {
    let over = |turn_input: TurnInput, origin| {
        let purse = Purse { deadline: Some(Deadline { at: NOW, origin }), ..Purse::default() };
        Turn::begin(TurnInput { purse, ..turn_input }, NOW)
    };
    for (origin, code) in
        [(LimitOrigin::Agent, ErrorCode::LimitReached), (LimitOrigin::Request, ErrorCode::BudgetExceeded)]
    {
        let (_, action) = over(serving(), origin);
        let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
        assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(code))));
        let (turn, action) = over(windy(serving()), origin);
        assert_eq!((action, turn.input().last.as_ref().map(|last| last.code)), (Action::Gather, Some(code)));
    }
    let early = Purse {
        deadline: Some(Deadline { at: NOW.plus(std::time::Duration::from_millis(1)), origin: LimitOrigin::Agent }),
        ..Purse::default()
    };
    assert_eq!(Turn::begin(TurnInput { purse: early, ..serving() }, NOW).1, Action::Gather);
}

#[test]
fn messages_at_the_deadline_wait_for_the_next_turn() {
    let turn_input = turn_input("implicit", begun(1, 1, false), vec![task(1), message(4)]);
    let purse = Purse { deadline: Some(Deadline { at: NOW, origin: LimitOrigin::Agent }), ..Purse::default() };
    let (_, action) = Turn::begin(TurnInput { purse, ..turn_input }, NOW);
    let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
    assert_eq!(decision.consume, ["k1"], "the task alone");
}

#[test]
fn an_overdue_task_awaiting_a_person_asks_no_model() {
    let mut turn_input = windy(serving());
    let awaiting = crate::approval::AwaitingCalls {
        turn: 4,
        job: Some(job(1)),
        authority: Authority::default(),
        all_started: false,
        calls: Vec::new(),
    };
    turn_input.state.awaiting = Some(awaiting);
    turn_input.purse = Purse { deadline: Some(Deadline { at: NOW, origin: LimitOrigin::Agent }), ..Purse::default() };
    let (_, action) = Turn::begin(turn_input, NOW);
    let Action::Commit(decision) = action else { panic!("expected a commit, got {action:?}") };
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::LimitReached))));
}

#[test]
fn a_refused_text_is_told_what_does_not_fit() {
    let output = json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}});
    let typed = || {
        let mut task = task(1);
        task.event.response_schema = Some(output.clone());
        turn_input("implicit", SessionState::default(), vec![task])
    };
    for (given, told) in [
        (
            r#"{"total": "x"}"#,
            "Refused: this is not what the output must be: at `/total`: \"x\" is not of type \"number\". ",
        ),
        (r#"{"total": 3"#, "Refused: this is not what the output must be: it can't be read: EOF while parsing"),
        ("three", "Refused: this is not what the output must be: text alone is no output. Give it again: "),
    ] {
        let decision = drive(typed(), text(given), vec![]);
        let Some(ChatMessage::User { text, .. }) = decision.record.said.last() else { panic!("{:?}", decision.record) };
        assert!(text.starts_with(told) && ended(&decision).is_none(), "{text}");
    }
    let last = TurnInput { last: Some(final_turn(ErrorCode::LimitReached)), ..windy(typed()) };
    let decision = drive(last.clone(), text(r#"{"total": 3}"#), vec![]);
    assert_eq!(ended(&decision), Some((JobStatus::Complete, None)), "also in the last turn");
    let decision = drive(last, text("three"), vec![]);
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::LimitReached))));
}
