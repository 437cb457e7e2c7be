//! Replies that the limit of tokens has cut off.

use super::*;

fn truncated(reply: Reply) -> Reply {
    Reply { truncated: true, ..reply }
}

#[test]
fn a_text_that_was_cut_off_completes_its_task_and_says_so() {
    let decision =
        drive(turn_input("implicit", SessionState::default(), vec![task(1)]), truncated(text("half of")), vec![]);
    let (_, result) = decision.ended_task.unwrap();
    assert_eq!((result.status, result.output, result.truncated), (JobStatus::Complete, Some(json!("half of")), true));
    let decision = drive(turn_input("implicit", SessionState::default(), vec![task(1)]), text("whole"), vec![]);
    assert!(!decision.ended_task.unwrap().1.truncated);
}

#[test]
fn a_limit_that_reasoning_has_used_up_ends_the_task() {
    let decision = drive(turn_input("implicit", SessionState::default(), vec![task(1)]), truncated(text(" ")), vec![]);
    assert_eq!(ended(&decision), Some((JobStatus::Failed, Some(ErrorCode::LimitReached))));
    let error = decision.ended_task.unwrap().1.error.unwrap();
    assert!(error.ends_with("before an answer: raise `model.maxTokens`"), "{error}");
}

#[test]
fn only_complete_calls_of_a_truncated_reply_are_made() {
    let recorded = |last: Arguments| {
        let mut reply = truncated(calls(&[(READ, json!({"path": "w/a"})), (READ, json!({}))]));
        reply.calls[1].arguments = last;
        let (mut turn, _) = Turn::begin(turn_input("implicit", SessionState::default(), vec![task(1)]), NOW);
        turn.step(inputs(&turn, Vec::new()), NOW);
        match turn.step(Observation::Answered(Ok(reply)), NOW) {
            Action::Record(recorded) => recorded.calls,
            other => panic!("expected a record, got {other:?}"),
        }
    };
    for half in ["", "{\"path\": \"w/", "{}"] {
        let made = recorded(Arguments::Malformed(half.into()));
        assert!(made[0].what.is_ok());
        let unmade = made[1].what.clone().unwrap_err();
        assert_eq!(unmade.outcome, Outcome::Limit, "{half}");
        assert!(unmade.text.contains("cut this call of `lattice_read` off"), "{}", unmade.text);
    }
    assert!(recorded(Arguments::Json(json!({"path": "w/b"})))[1].what.is_ok(), "a whole call is made");
}

#[test]
fn a_value_that_may_have_gone_on_is_no_output() {
    use crate::turn::typed_output::parse_typed_reply;
    for (schema, text, whole) in [
        (json!({"type": "number"}), "12", false),
        (json!({"enum": ["no", "not sure"]}), "no", false),
        (json!({"type": "object"}), "{\"a\": 1}", true),
        (json!({"type": "array"}), "[1]", true),
    ] {
        assert!(parse_typed_reply(&schema, &super::text(text)).is_ok(), "{text}");
        assert_eq!(parse_typed_reply(&schema, &truncated(super::text(text))).is_ok(), whole, "{text}");
    }
}
