//! What of a prompt another value changes, and how far copies are followed.

use super::*;
use crate::domain::job::JobResult;
use crate::domain::session::CallerMessage;
use crate::domain::time::Millis;
use crate::venue::ledger::samples_tests::inputs;

const JOB: &str = "0123456789abcdef0123456789abcdef";

fn result(output: Option<Value>) -> Event {
    let result = JobResult { output, ..JobResult::complete(Value::Null) };
    Event::new("e1".parse().unwrap(), Millis(0), Payload::Result { job: JOB.parse().unwrap(), result })
}

fn copy(from: &str, into: &str) -> SourceRead {
    SourceRead { into: Some(into.to_owned()), ..SourceRead::new(from) }
}

fn places(path: &str, value: &Value, reads: &[SourceRead]) -> Vec<(String, Value)> {
    let ValueCopies { places, .. } = find_copies(path, value, reads);
    places.into_iter().map(|(place, value)| (place, value.clone())).collect()
}

#[test]
fn copies_of_a_value_and_of_its_parts_are_followed() {
    let value = json!({"x": {"y": 1}, "z": 2});
    for (reads, expected) in [
        (vec![copy("w/a", "w/b"), copy("w/b", "o/c")], vec![("w/b", value.clone()), ("o/c", value.clone())]),
        (vec![copy("w/a/x", "w/b"), copy("w/b/y", "w/c")], vec![("w/b", json!({"y": 1})), ("w/c", json!(1))]),
        (vec![copy("w", "o/all")], vec![("o/all/a", value.clone())]),
        (vec![copy("w/a/none", "w/b"), copy("w/ab", "w/c")], vec![]),
        (vec![copy("w/b", "w/c"), copy("w/a", "w/b")], vec![("w/b", value.clone())]),
    ] {
        let mut wanted = vec![("w/a".to_owned(), value.clone())];
        wanted.extend(expected.into_iter().map(|(place, value)| (place.to_owned(), value)));
        assert_eq!(places("w/a", &value, &reads), wanted, "{reads:?}");
    }
}

#[test]
fn copies_into_their_own_source_are_not_copied_again() {
    let reads: Vec<SourceRead> = (0..12).map(|n| copy("w/a", &format!("w/a/x{n}"))).collect();
    assert_eq!(places("w/a", &json!(1), &reads).len(), 13, "the path and each copy");
}

#[test]
fn copies_are_followed_to_a_bounded_number_of_places() {
    let both = |n| [copy("w/a", "w/b"), copy("w/b", &format!("w/a/x{n}"))];
    let reads: Vec<SourceRead> = (0..14).flat_map(both).collect();
    let value = json!(1);
    let ValueCopies { places, is_cut } = find_copies("w/a", &value, &reads);
    assert!(is_cut && places.len() == CONVERSATION_COPIES, "{} places", places.len());
    let ValueCopies { places, is_cut } = find_copies("w/a", &value, &reads[..4]);
    assert!(!is_cut && places.len() < 10, "{places:?}");
}

#[test]
fn a_result_that_cant_be_made_again_says_so() {
    let path = format!("j/{JOB}/output");
    for (below, output, expected) in [
        ("", Some(json!({"x": 1})), json!(7)),
        ("/x", Some(json!({"x": 1})), json!({"x": 7})),
        ("/x", None, json!(format!("it can't be made again with another `{path}/x`"))),
        ("/5", Some(json!([1])), json!(format!("it can't be made again with another `{path}/5`"))),
    ] {
        let mut event = result(output);
        assert!(replace_result(&mut event, &format!("{path}{below}"), &json!(7)));
        let Payload::Result { result, .. } = event.payload else { panic!("expected a result") };
        assert_eq!(result.output, Some(expected), "{below}");
    }
}

#[test]
fn results_that_earlier_turns_were_shown_are_left_out() {
    let text = format!("[Pending job results]\n- Job {JOB} status=COMPLETE output=1");
    let heard = vec![CallerMessage { job: None, text, attachments: Vec::new() }];
    let record = TurnRecord { turn: 1, heard, ..TurnRecord::default() };
    let heard_after = |path: &str| {
        let mut inputs = inputs();
        inputs.transcript.push(Arc::new(record.clone().into()));
        let effect = put_value(&mut inputs, path, &json!(2));
        (effect.found, inputs.transcript[0].heard[0].text.clone())
    };
    assert_eq!(heard_after("w/a"), (false, record.heard[0].text.clone()));
    let path = format!("j/{JOB}/output");
    let expected = format!("[left out: it can't be made again with another `{path}`]");
    assert_eq!(heard_after(&path), (true, expected));
}
