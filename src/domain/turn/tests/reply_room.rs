//! Calls of a reply that the next prompt has no room for.

use super::*;
use crate::limits::REPLY_CALLS;

fn recorded(reply: Reply) -> RecordedReply {
    let (mut turn, _) = Turn::begin(turn_input("implicit", SessionState::default(), vec![task(1)]), NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    match turn.step(Observation::Answered(Ok(reply)), NOW) {
        Action::Record(recorded) => *recorded,
        other => panic!("expected a record, got {other:?}"),
    }
}

fn reads(count: usize) -> Reply {
    calls(&vec![(READ, json!({"path": "w/a"})); count])
}

#[test]
fn as_many_calls_are_made_as_a_reply_may_make() {
    for count in [1, 2, REPLY_CALLS] {
        let recorded = recorded(reads(count));
        assert_eq!((recorded.calls.len(), recorded.reply.calls.len()), (count, count));
        assert!(recorded.calls.iter().all(|call| call.what.is_ok()));
    }
}

#[test]
fn calls_over_the_limit_are_left_out_and_the_model_is_told() {
    let recorded = recorded(reads(1_000));
    assert_eq!((recorded.calls.len(), recorded.reply.calls.len()), (REPLY_CALLS, REPLY_CALLS));
    let (last, made) = recorded.calls.split_last().unwrap();
    assert!(made.iter().all(|call| call.what.is_ok()));
    let unmade = last.what.clone().unwrap_err();
    assert_eq!(unmade.outcome, Outcome::Limit);
    let expected = "of the 1000 calls of this reply the first 127 were made, this one and those behind it were not: a \
                    reply makes at most 128 calls; make them again in your next turns";
    assert_eq!(unmade.text, expected);
}

#[test]
fn calls_without_room_in_the_next_prompt_are_not_made() {
    let long = "x".repeat(PromptBudget::default().bytes / 3);
    let recorded = recorded(calls(&[
        (READ, json!({"path": long.as_str()})),
        (READ, json!({"path": "w/a"})),
        (READ, json!({"path": long.as_str()})),
        (READ, json!({"path": long.as_str()})),
    ]));
    let made: Vec<_> = recorded.calls.iter().map(|call| call.what.is_ok()).collect();
    assert_eq!(made, [true, true, false], "{:?}", recorded.calls);
    let text = recorded.calls[2].what.clone().unwrap_err().text;
    assert!(
        text.contains("of the 4 calls of this reply the first 2 were made") && text.contains("don't fit into"),
        "{text}"
    );
    assert!(recorded.reply.calls[2].bytes() < 100, "what was not made takes no room");
}

#[test]
fn one_call_that_is_too_long_says_its_size() {
    let long = "x".repeat(PromptBudget::default().bytes);
    let text = recorded(calls(&[(READ, json!({"path": long}))])).calls[0].what.clone().unwrap_err().text;
    assert!(
        text.starts_with("this call was not made") && text.contains("make it again with shorter arguments"),
        "{text}"
    );
}

#[test]
fn an_output_of_any_length_ends_its_task() {
    let long = "x".repeat(PromptBudget::default().bytes);
    let recorded = recorded(calls(&[("complete_task", json!({"result": long}))]));
    assert!(recorded.calls[0].what.is_ok());
}
