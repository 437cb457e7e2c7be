//! Runs of pipelines driven by hand: each row gives the outputs of its steps, in the order in which they begin.

use super::*;
use crate::decode;
use crate::limits::pipeline::{PIPELINE_CHILDREN, PIPELINE_INPUT_BYTES};
use serde_json::json;

fn pipeline(value: &Value) -> Pipeline {
    decode::into_type(value.clone()).unwrap()
}

fn begin(pipeline: &Pipeline, input: Value) -> PipelineState {
    let values = input.as_object().cloned().unwrap_or_default();
    PipelineState::begin(JobId::new(&format!("{:032x}", 1)).unwrap(), pipeline, values, input)
}

/// Runs a pipeline; each step begins with the next turn and ends with the next output. Returns the inputs of the steps by
/// key, and the result.
fn run(pipeline: &Pipeline, input: Value, outputs: &[Value]) -> (Vec<(String, Value)>, JobResult) {
    let (mut state, mut began, mut outputs) = (begin(pipeline, input), Vec::new(), outputs.iter());
    for turn in 1..2_000 {
        match next_move(pipeline, &mut state, turn) {
            PipelineMove::End(result) => return (began, result),
            PipelineMove::Wait => panic!("all steps have ended: {state:?}"),
            PipelineMove::Start(calls) => {
                assert_eq!(next_move(pipeline, &mut state.clone(), turn), PipelineMove::Wait);
                for (at, call) in (0..).zip(calls) {
                    let output = outputs.next().unwrap_or_else(|| panic!("`{}` has no output", call.key)).clone();
                    state.end_call(turn, at, Ok(output));
                    began.push((call.key, call.input));
                }
            }
        }
    }
    panic!("the run never ends: {state:?}")
}

fn keys(began: &[(String, Value)]) -> Vec<&str> {
    began.iter().map(|(key, _)| key.as_str()).collect()
}

fn step(key: &str) -> Value {
    json!({"stateKey": key, "ref": key})
}

#[test]
fn steps_run_in_order_and_hand_on() {
    let pipeline = pipeline(&json!({"kind": "sequential", "steps": [
        step("first"),
        {"stateKey": "second", "ref": "b", "input": {"all": "{{first}}", "text": "<{{first.x}}>", "topic": "{{topic}}"}},
        step("third")
    ]}));
    let (began, result) = run(&pipeline, json!({"topic": "bees"}), &[json!({"x": 1}), json!("two"), json!(3)]);
    assert_eq!(
        began,
        [
            ("first".into(), json!({"topic": "bees"})),
            ("second".into(), json!({"all": {"x": 1}, "text": "<1>", "topic": "bees"})),
            ("third".into(), json!("two")),
        ]
    );
    assert_eq!(result, JobResult::complete(json!(3)), "the last step's output");
}

#[test]
fn a_step_without_its_condition_is_skipped_with_null() {
    let pipeline = pipeline(&json!({"kind": "sequential", "steps": [
        step("a"), {"stateKey": "b", "ref": "b", "when": "{{language}} != en"}, {"stateKey": "c", "ref": "c"}
    ], "output": {"a": "{{a}}", "b": "{{b}}", "c": "{{c}}"}}));
    let (began, result) = run(&pipeline, json!({"language": "en"}), &[json!("A"), json!("C")]);
    assert_eq!(began[1], ("c".into(), json!(null)), "a skipped step hands on null");
    assert_eq!(result.output, Some(json!({"a": "A", "b": null, "c": "C"})));
    let (began, _) = run(&pipeline, json!({"language": "de"}), &[json!("A"), json!("B"), json!("C")]);
    assert_eq!(keys(&began), ["a", "b", "c"]);
}

#[test]
fn a_loop_ends_by_its_condition_or_its_limit() {
    let pipeline = pipeline(&json!({"kind": "sequential", "steps": [
        {"stateKey": "w", "ref": "w", "input": {"f": "{{e.feedback}}"}}, {"stateKey": "e", "ref": "e", "input": {"d": "{{w}}"}}
    ], "until": "{{e.ok}} == true", "maxIterations": 3, "output": {"d": "{{w}}", "ok": "{{e.ok}}"}}));
    let no = json!({"ok": false, "feedback": "more"});
    let (began, result) =
        run(&pipeline, json!({}), &[json!("1"), no.clone(), json!("2"), json!({"ok": true, "feedback": null})]);
    assert_eq!(keys(&began), ["w", "e", "w", "e"]);
    assert_eq!((&began[0].1, &began[2].1), (&json!({"f": null}), &json!({"f": "more"})), "the pass before is seen");
    assert_eq!(result.output, Some(json!({"d": "2", "ok": true})));
    let outputs = [json!("1"), no.clone(), json!("2"), no.clone(), json!("3"), no];
    let (began, result) = run(&pipeline, json!({}), &outputs);
    assert_eq!((began.len(), result.output), (6, Some(json!({"d": "3", "ok": false}))), "three passes at most");
}

#[test]
fn a_loop_of_skipped_steps_ends() {
    let steps = json!([{"stateKey": "a", "ref": "a", "when": "{{a}}"}]);
    let pipeline = pipeline(&json!({"kind": "sequential", "steps": steps, "until": "{{a}} == 1"}));
    assert_eq!(run(&pipeline, json!({}), &[]).1, JobResult::complete(json!(null)));
}

#[test]
fn branches_begin_together_and_see_no_other() {
    let pipeline = pipeline(&json!({"kind": "parallel", "steps": [
        step("a"), {"stateKey": "b", "ref": "b", "input": {"t": "{{t}}"}}, {"stateKey": "c", "ref": "c", "when": "{{t}} == 2"}
    ]}));
    let mut state = begin(&pipeline, json!({"t": 1}));
    let PipelineMove::Start(calls) = next_move(&pipeline, &mut state, 1) else { panic!("{state:?}") };
    assert_eq!(calls.iter().map(|call| call.input.clone()).collect::<Vec<_>>(), [json!({"t": 1}), json!({"t": 1})]);
    state.end_call(1, 1, Ok(json!("B")));
    assert_eq!(next_move(&pipeline, &mut state, 2), PipelineMove::Wait);
    assert_eq!(state.running_text(), "step `a` (1 of 3)");
    state.end_call(1, 0, Ok(json!("A")));
    let all = json!({"a": "A", "b": "B", "c": null});
    assert_eq!(next_move(&pipeline, &mut state, 3), PipelineMove::End(JobResult::complete(all)));
}

#[test]
fn results_of_child_jobs_end_their_steps_whatever_their_order() {
    let pipeline = pipeline(&json!({"kind": "parallel", "steps": [step("a"), step("b")]}));
    let mut state = begin(&pipeline, json!({}));
    next_move(&pipeline, &mut state, 1);
    let [a, b, other] = [2, 3, 4].map(|n| JobId::new(&format!("{n:032x}")).unwrap());
    state.note_started(1, 0, &a);
    state.note_started(1, 1, &b);
    assert!(!state.end_job(&other, &JobResult::complete(json!(0))));
    assert!(state.end_job(&b, &JobResult::complete(json!("B"))));
    assert!(!state.end_job(&b, &JobResult::complete(json!("again"))), "a result counts once");
    assert!(state.end_job(&a, &JobResult::complete(json!("A"))));
    let ended = next_move(&pipeline, &mut state, 4);
    assert_eq!(ended, PipelineMove::End(JobResult::complete(json!({"a": "A", "b": "B"}))));
}

#[test]
fn a_failure_says_which_step_and_ends_the_run() {
    let steps = json!([step("a"), step("b")]);
    let looped = json!({"kind": "sequential", "steps": steps, "until": "{{b}}"});
    for (pipeline, failed, expected) in [
        (
            json!({"kind": "sequential", "steps": steps}),
            JobResult::failure(ErrorCode::BudgetExceeded, "no money"),
            (ErrorCode::BudgetExceeded, "step `a` (1 of 2): no money"),
        ),
        (
            looped,
            JobResult::failure(ErrorCode::TaskFailed, "error: no"),
            (ErrorCode::TaskFailed, "step `a` (1 of 2, pass 1): no"),
        ),
        (
            json!({"kind": "parallel", "steps": steps}),
            JobResult { status: JobStatus::Cancelled, ..JobResult::failure(ErrorCode::Cancelled, "by a person") },
            (ErrorCode::Cancelled, "step `a` (1 of 2): by a person"),
        ),
    ] {
        let pipeline = self::pipeline(&pipeline);
        let mut state = begin(&pipeline, json!({}));
        next_move(&pipeline, &mut state, 1);
        let job = JobId::new(&format!("{:032x}", 2)).unwrap();
        state.note_started(1, 0, &job);
        assert!(state.end_job(&job, &failed));
        let PipelineMove::End(result) = next_move(&pipeline, &mut state, 2) else { panic!("{state:?}") };
        assert_eq!((result.error_code, result.error.as_deref()), (Some(expected.0), Some(expected.1)));
    }
}

#[test]
fn a_tool_is_called_once_with_mapped_arguments() {
    let given = json!({"kind": "tool", "tool": "send", "params": {"to": "{{to}}", "n": "{{n}}", "text": "Hi {{to}}"}});
    let pipeline = pipeline(&given);
    let (began, result) = run(&pipeline, json!({"to": "ada", "n": 2}), &[json!({"sent": true})]);
    assert_eq!(began, [("result".into(), json!({"to": "ada", "n": 2, "text": "Hi ada"}))]);
    assert_eq!(result, JobResult::complete(json!({"sent": true})));
}

#[test]
fn outputs_and_steps_of_one_run_are_bounded() {
    let steps = json!([step("a"), {"stateKey": "b", "ref": "b", "input": {"x": "{{a}}"}}]);
    let pipeline = pipeline(&json!({"kind": "sequential", "steps": steps, "until": "{{b}}"}));
    let (_, result) = run(&pipeline, json!({}), &[json!("x".repeat(PIPELINE_STATE_BYTES))]);
    assert_eq!(result.error_code, Some(ErrorCode::LimitReached));
    let text = result.error.unwrap();
    assert!(text.starts_with("step `a` (1 of 2, pass 1): with its output the State has"), "{text}");
    let mut state = PipelineState { begun: PIPELINE_CHILDREN, ..begin(&pipeline, json!({})) };
    let PipelineMove::End(result) = next_move(&pipeline, &mut state, 1) else { panic!("{state:?}") };
    assert!(result.error.unwrap().contains("no more may be"));
}

#[test]
fn a_state_reads_back_as_it_was_written() {
    let pipeline = pipeline(&json!({"kind": "sequential", "steps": [step("a")]}));
    let mut state = begin(&pipeline, json!({"t": 1}));
    next_move(&pipeline, &mut state, 3);
    state.fail(StepFailure::new(ErrorCode::Internal, "x"));
    let read: PipelineState = decode::into_type(serde_json::to_value(&state).unwrap()).unwrap();
    assert_eq!(read, state);
}

#[test]
fn values_nested_deeper_with_each_pass_end_the_run() {
    let nests = json!([{"stateKey": "a", "ref": "a", "input": {"x": "{{a}}"}}]);
    let looped = pipeline(&json!({"kind": "sequential", "steps": nests, "until": "{{a}} == 1"}));
    let mut state = begin(&looped, json!({}));
    let result = (1..200).find_map(|turn| match next_move(&looped, &mut state, turn) {
        PipelineMove::Start(calls) => {
            state.end_call(turn, 0, Ok(calls[0].input.clone()));
            None
        }
        PipelineMove::Wait => panic!("all steps have ended: {state:?}"),
        PipelineMove::End(result) => Some(result),
    });
    let result = result.unwrap();
    assert_eq!(result.error_code, Some(ErrorCode::LimitReached), "{result:?}");
    let stored = serde_json::to_vec(&state).unwrap();
    assert!(serde_json::from_slice::<PipelineState>(&stored).is_ok(), "the State can be read");
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let once = pipeline(&json!({"kind": "sequential", "steps": [step("a")]}));
    let (_, result) = run(&once, json!({}), &[deep]);
    assert_eq!(result.error_code, Some(ErrorCode::LimitReached), "an output that is too deep");
}

#[test]
fn the_inputs_of_all_branches_are_bounded_together() {
    let branch = |n: usize| json!({"stateKey": format!("b{n}"), "ref": "b", "input": {"t": "{{t}}"}});
    let pipeline = pipeline(&json!({"kind": "parallel", "steps": (0..32).map(branch).collect::<Vec<_>>()}));
    let mut state = begin(&pipeline, json!({"t": "x".repeat(PIPELINE_INPUT_BYTES / 16)}));
    let PipelineMove::End(result) = next_move(&pipeline, &mut state, 1) else { panic!("{:?}", state.running) };
    assert_eq!(result.error_code, Some(ErrorCode::LimitReached));
    assert!(result.error.unwrap().starts_with("step `b15` (16 of 32): the inputs of the branches up to it"));
    assert!(state.running.is_empty(), "none has begun");
}

#[test]
fn an_erased_run_shows_nothing_and_an_open_one_fails() {
    let pipeline = pipeline(&json!({"kind": "parallel", "steps": [step("a"), step("b")]}));
    let mut state = begin(&pipeline, json!({"t": "secret"}));
    next_move(&pipeline, &mut state, 1);
    state.end_call(1, 0, Ok(json!("secret")));
    let mut ended = state.clone();
    assert!(state.erase(true, "erased") && !state.erase(true, "erased"), "once more changes nothing");
    state.end_call(1, 1, Ok(json!("secret")));
    assert!(!json!(state).to_string().contains("secret"), "nor does a later output come in: {state:?}");
    let PipelineMove::End(result) = next_move(&pipeline, &mut state, 2) else { panic!("{state:?}") };
    assert_eq!((result.error_code, result.error.as_deref()), (Some(ErrorCode::Conflict), Some("erased")));
    ended.end_call(1, 1, Err(StepFailure::new(ErrorCode::TaskFailed, "of secret")));
    assert!(ended.erase(false, "erased") && !ended.erase(false, "erased"));
    assert!(!json!(ended).to_string().contains("secret"), "{ended:?}");
    assert_eq!(ended.failure.map(|failure| failure.code), Some(ErrorCode::TaskFailed));
}
