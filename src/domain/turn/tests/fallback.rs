//! Turns that another model than the agent's own has answered.

use super::*;
use crate::session::FailedModel;

fn model_use(calls: u32, input: u64) -> ModelUse {
    ModelUse { calls, input, ..ModelUse::default() }
}

/// The agent's own model broke off, and was charged; the fallback answered.
fn by_fallback() -> ModelCalls {
    let mut calls = ModelCalls::of_model("scripted/x", model_use(1, 10));
    calls.add_call("scripted/y", model_use(1, 20));
    let failed = vec![FailedModel { model: "scripted/x".into(), reason: "the reply ended in the middle".into() }];
    ModelCalls { answered: Some("scripted/y".into()), failed, ..calls }
}

fn with_fallback(n: u8) -> TurnInput {
    let mut turn_input = turn_input("implicit", SessionState::default(), vec![task(n)]);
    let model = &mut Arc::make_mut(&mut turn_input.config).model;
    let fallback =
        crate::chat::ModelSettings { max_tokens: Some(77), ..crate::chat::ModelSettings::new("scripted", "y") };
    model.fallback.push(fallback);
    model.max_tokens = Some(500);
    turn_input
}

fn check(decision: &Decision) {
    assert_eq!(decision.record.model, "scripted/y");
    assert_eq!(decision.record.failed_models, by_fallback().failed);
    let (_, tally) = decision.tally.clone().unwrap();
    assert_eq!((tally.spent.calls, tally.spent.input, tally.fallbacks), (2, 30, 1));
    let models = &decision.today.as_ref().unwrap().models;
    assert_eq!((models["scripted/x"].input, models["scripted/y"].input, models.len()), (10, 20, 2));
}

#[test]
fn a_successor_records_the_same_answering_model() {
    let (mut turn, _) = Turn::begin(with_fallback(1), NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    turn.add_model_calls(by_fallback());
    let reply = calls(&[("v_ops_lattice_read", json!({"path": "w/x"}))]);
    let Action::Record(recorded) = turn.step(Observation::Answered(Ok(reply)), NOW) else {
        panic!("expected a record")
    };
    let stored = serde_json::to_string(&recorded).unwrap();
    let (mut successor, _) = Turn::resume(with_fallback(1), serde_json::from_str(&stored).unwrap(), &[], NOW);
    turn.step(Observation::Recorded, NOW);
    for turn in [&mut turn, &mut successor] {
        let Action::Commit(decision) = turn.step(Observation::Called(vec![ok()]), NOW) else {
            panic!("expected a commit")
        };
        check(&decision);
    }
}

#[test]
fn a_limit_that_the_fallback_reached_is_its_own() {
    let (mut turn, _) = Turn::begin(with_fallback(1), NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    turn.add_model_calls(by_fallback());
    let silent = Reply { truncated: true, ..text(" ") };
    let Action::Commit(decision) = turn.step(Observation::Answered(Ok(silent)), NOW) else {
        panic!("expected a commit")
    };
    check(&decision);
    let error = decision.ended_task.unwrap().1.error.unwrap();
    assert!(error.contains("limit of tokens (77)"), "{error}");
}

#[test]
fn a_record_of_the_agents_own_model_says_nothing_more() {
    let (mut turn, _) = Turn::begin(with_fallback(1), NOW);
    turn.step(inputs(&turn, Vec::new()), NOW);
    turn.add_model_calls(ModelCalls {
        answered: Some("scripted/x".into()),
        ..ModelCalls::of_model("scripted/x", model_use(1, 10))
    });
    let reply = calls(&[("v_ops_lattice_read", json!({"path": "w/x"}))]);
    let Action::Record(recorded) = turn.step(Observation::Answered(Ok(reply)), NOW) else {
        panic!("expected a record")
    };
    let stored = serde_json::to_value(&recorded).unwrap();
    assert!(stored.get("asked").is_none(), "{stored}");
    let (mut successor, _) = Turn::resume(with_fallback(1), serde_json::from_value(stored).unwrap(), &[], NOW);
    let Action::Commit(decision) = successor.step(Observation::Called(vec![ok()]), NOW) else {
        panic!("expected a commit")
    };
    assert_eq!((decision.record.model.as_str(), decision.record.failed_models.len()), ("scripted/x", 0));
    let (_, tally) = decision.tally.clone().unwrap();
    assert_eq!((tally.spent.input, tally.fallbacks), (10, 0));
}
