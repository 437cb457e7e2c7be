//! Replies that say nothing.

use super::*;

#[test]
fn a_reply_that_says_nothing_completes_no_task() {
    let failed = |code| Some((JobStatus::Failed, Some(code)));
    for (name, completion, state, said, expected) in [
        ("asked again", "implicit", begun(1, 1, false), "", None),
        ("blanks are nothing", "implicit", begun(1, 1, false), " \n", None),
        ("and fails then", "implicit", begun(1, 2, true), "", failed(ErrorCode::ModelError)),
        ("not at the limit", "implicit", begun(1, 2, false), "", failed(ErrorCode::ModelError)),
        ("a child is open", "implicit", awaiting(begun(1, 1, false), 2), "", None),
        ("reminded", "explicit", begun(1, 1, false), "", None),
        ("no completion", "explicit", begun(1, 1, true), "", failed(ErrorCode::NoCompletion)),
    ] {
        let decision = drive(turn_input(completion, state, vec![task(1)]), text(said), vec![]);
        assert_eq!(ended(&decision), expected, "{name}");
        let told = decision.state.task.as_ref().is_some_and(|progress| progress.reminded);
        assert_eq!(told, expected.is_none() && name != "a child is open", "{name}");
    }
    let mut last = turn_input("implicit", begun(1, 1, false), vec![task(1)]);
    last.last = Some(FinalTurn { code: ErrorCode::LimitReached, reason: "enough".into() });
    assert_eq!(ended(&drive(last, text(""), vec![])), failed(ErrorCode::LimitReached));
    // Who was only told something may have nothing to say.
    let decision = drive(turn_input("implicit", SessionState::default(), vec![message(1)]), text(""), vec![]);
    assert_eq!((ended(&decision), decision.consume), (None, vec!["k1".to_owned()]));
}
