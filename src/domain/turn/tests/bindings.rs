//! Bindings of what a call runs by its path, over a crash.

use super::*;
use crate::chat::ToolSpec;
use crate::tools::guard::{GuardRule, Guards};

#[test]
fn bindings_of_a_run_by_path_are_recorded_for_a_successor() {
    let mut guards = Guards::default();
    let mut fills = Injection::default();
    fills.values.insert("path".into(), "w/good".into());
    guards.add("v/ops/lattice/write", &[], GuardRule::Inject(fills.clone()));
    let spec = ToolSpec { name: "run".into(), description: String::new(), schema: json!({}) };
    let target = ToolTarget::Operation(RUN.into());
    let table = ToolTable { guards, ..ToolTable::new(vec![spec], vec![target], Vec::new()) };
    let (mut turn, _) = Turn::begin(setting("implicit", begun(1, 0, false), vec![task(1)]), NOW);
    let Observation::Gathered(mut gathered, scribe) = inputs(&turn, Vec::new()) else { unreachable!() };
    gathered.tools = table.into();
    turn.step(Observation::Gathered(gathered, scribe), NOW);
    let input = json!({"operation": "lattice:write", "input": {"path": "w/evil", "value": 1}});
    let action = turn.step(Observation::Answered(Ok(calls(&[("run", input)]))), NOW);
    let Action::Record(recorded) = action else { panic!("expected a record, got {action:?}") };
    let kept = serde_json::to_string(&*recorded).unwrap();
    assert!(!kept.contains("w/evil"), "{kept}");
    let recorded: RecordedReply = serde_json::from_str(&kept).unwrap();
    let (_, action) = resume(begun(1, 1, false), vec![task(1)], recorded);
    let Action::Call(planned) = action else { panic!("expected the recorded calls, got {action:?}") };
    let target = ToolTarget::Operation("v/ops/lattice/write".into());
    assert_eq!(planned[0].1.what, Ok(ResolvedCall { target, arguments: json!({"value": 1}) }));
    assert_eq!(planned[0].1.injection, fills);
}

#[test]
fn an_argument_that_only_trusted_code_gives_is_refused_by_its_name() {
    let spec = ToolSpec { name: "ask".into(), description: String::new(), schema: json!({}) };
    let target = ToolTarget::Operation("v/ops/agent/request".into());
    let mut injection =
        Injection { reserved: vec!["contextIds".into(), "sessionContext".into()], ..Injection::default() };
    injection.values.insert("sessionContext".into(), json!({"k": "bound"}));
    for (said, expected) in [
        (json!({"input": 1}), Ok(json!({"input": 1}))),
        (json!({"input": 1, "contextIds": null}), Ok(json!({"input": 1}))),
        // What is bound the model doesn't know of.
        (json!({"input": 1, "sessionContext": {"k": "s3cret"}}), Ok(json!({"input": 1}))),
        (
            json!({"input": 1, "contextIds": ["s3cret"]}),
            Err("argument `contextIds` of `ask` is given by trusted code alone"),
        ),
    ] {
        let table = ToolTable::new(vec![spec.clone()], vec![target.clone()], Vec::new());
        let table = ToolTable { injections: vec![injection.clone()], ..table };
        let (mut turn, _) = Turn::begin(setting("implicit", begun(1, 0, false), vec![task(1)]), NOW);
        let Observation::Gathered(mut gathered, scribe) = inputs(&turn, Vec::new()) else { unreachable!() };
        gathered.tools = table.into();
        turn.step(Observation::Gathered(gathered, scribe), NOW);
        let action = turn.step(Observation::Answered(Ok(calls(&[("ask", said.clone())]))), NOW);
        let Action::Record(recorded) = action else { panic!("expected a record, got {action:?}") };
        let kept = serde_json::to_string(&*recorded).unwrap();
        assert!(!kept.contains("s3cret"), "{kept}");
        match (&recorded.calls[0].what, expected) {
            (Ok(what), Ok(expected)) => assert_eq!(what.arguments, expected, "{said}"),
            (Err(unmade), Err(part)) => assert!(unmade.text.contains(part), "{said}: {unmade:?}"),
            (found, expected) => panic!("{said}: expected {expected:?}, got {found:?}"),
        }
    }
}
