//! What turns have used that waited before they were committed, or never were.

use super::*;

const LATER: Millis = Millis(20_000);

fn used(input: u64) -> ModelCalls {
    ModelCalls::of_model("scripted/x", ModelUse { calls: 1, input, ..ModelUse::default() })
}

/// The session's day and the task's tally: calls, tokens and the time of the day's first.
fn so_far(turn: &Turn, now: Millis) -> (u32, u64, Millis, u64) {
    let (today, tally) = turn.usage_so_far(now);
    let (today, (_, tally)) = (today.unwrap(), tally.unwrap());
    let of_day = today.models["scripted/x"];
    (of_day.calls, of_day.input, today.since, tally.spent.input)
}

fn begin(n: u8) -> Turn {
    Turn::begin(turn_input("implicit", SessionState::default(), vec![task(n)]), NOW).0
}

/// The next lease goes on with what the one before has left: `counted` calls are in its day.
fn go_on(n: u8, before: &Turn, counted: ModelCalls, date: Option<&str>) -> Turn {
    let mut turn_input = turn_input("implicit", SessionState::default(), vec![task(n)]);
    turn_input.state.today = before.usage_so_far(NOW).0;
    turn_input.counted = counted.clone();
    if let Some(date) = date {
        turn_input.date = date.to_owned();
    }
    let mut turn = Turn::begin(turn_input, LATER).0;
    turn.add_model_calls(counted);
    turn
}

#[test]
fn a_turn_that_waits_leaves_what_it_has_used_and_counts_it_once() {
    let mut first = begin(1);
    assert_eq!(first.usage_so_far(NOW), (None, None));
    first.add_model_calls(used(10));
    assert_eq!(so_far(&first, NOW), (1, 10, NOW, 10));
    let mut same = go_on(1, &first, used(10), None);
    assert_eq!(so_far(&same, LATER), (1, 10, NOW, 10), "nothing is counted again");
    same.add_model_calls(used(5));
    assert_eq!(so_far(&same, LATER), (2, 15, NOW, 15));
    same.step(inputs(&same, Vec::new()), LATER);
    let Action::Commit(decision) = same.step(Observation::Answered(Ok(text("done"))), LATER) else {
        panic!("expected a commit")
    };
    assert_eq!(decision.today.as_ref().unwrap().models["scripted/x"].input, 15);
    assert_eq!((&decision.state.today, decision.today.as_ref().unwrap().since), (&decision.today, NOW));
    assert_eq!(decision.tally.unwrap().1.spent.input, 15);
}

#[test]
fn another_task_and_another_day_pay_for_their_own_calls() {
    let mut first = begin(1);
    first.add_model_calls(used(10));
    let mut other = go_on(2, &first, ModelCalls::default(), None);
    other.add_model_calls(used(5));
    assert_eq!(so_far(&other, LATER), (2, 15, NOW, 5));
    let mut tomorrow = go_on(1, &first, used(10), Some("2026-11-23"));
    assert_eq!(tomorrow.usage_so_far(LATER).0, None);
    tomorrow.add_model_calls(used(5));
    assert_eq!(so_far(&tomorrow, LATER), (1, 5, LATER, 15));
}
