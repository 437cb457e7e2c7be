//! Bindings of what a call runs by its path, over a crash.

use super::*;
use crate::call::PublishedVersion;
use crate::chat::ToolSpec;
use crate::mcp::name::TOOLS_CALL;
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
    let (mut turn, _) = Turn::begin(turn_input("implicit", begun(1, 0, false), vec![task(1)]), NOW);
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
fn bindings_hold_for_a_tool_that_is_called_by_its_name() {
    const PAY: &str = "v/ops/mcp/shop/pay";
    let mut fills = Injection::default();
    fills.values.insert("from".into(), "ada".into());
    let call = json!({"server": "shop", "toolName": "pay", "arguments": {"from": "eve", "sum": 1}});
    for (path, input) in [(TOOLS_CALL, call.clone()), (RUN, json!({"operation": "mcp:tools-call", "input": call}))] {
        let mut guards = Guards::default();
        guards.add(PAY, &[], GuardRule::Inject(fills.clone()));
        let spec = ToolSpec { name: "call".into(), description: String::new(), schema: json!({}) };
        let target = ToolTarget::Operation(path.into());
        let table = ToolTable { guards, ..ToolTable::new(vec![spec], vec![target], Vec::new()) };
        let (mut turn, _) = Turn::begin(turn_input("implicit", begun(1, 0, false), vec![task(1)]), NOW);
        let Observation::Gathered(mut gathered, scribe) = inputs(&turn, Vec::new()) else { unreachable!() };
        gathered.tools = table.into();
        turn.step(Observation::Gathered(gathered, scribe), NOW);
        let action = turn.step(Observation::Answered(Ok(calls(&[("call", input)]))), NOW);
        let Action::Record(recorded) = action else { panic!("expected a record, got {action:?}") };
        let planned = &recorded.calls[0];
        let target = ToolTarget::Operation(PAY.into());
        assert_eq!(planned.what, Ok(ResolvedCall { target, arguments: json!({"sum": 1}) }), "{path}");
        assert_eq!(planned.injection, fills, "{path}");
    }
}

#[test]
fn the_version_of_a_published_operation_is_recorded_with_its_call() {
    const SEARCH: &str = "v/ops/shop/search";
    let targets = [RUN, SEARCH, "v/ops/lattice/read"].map(|path| ToolTarget::Operation(path.into()));
    let spec = |name: &str| ToolSpec { name: name.into(), description: String::new(), schema: json!({}) };
    let search = json!({"operation": "shop:search", "input": {}});
    for (tool, arguments, bound, is_published) in [
        ("search", json!({}), None, true),
        ("read", json!({}), None, false),
        ("run", search.clone(), None, true),
        ("run", json!({"operation": "job/run", "input": search}), None, true),
        ("run", json!({"operation": "shop/other"}), None, false),
        ("run", json!({}), Some(SEARCH), true),
    ] {
        let mut table = ToolTable::new(["run", "search", "read"].map(spec).into(), targets.to_vec(), Vec::new());
        table.versions.insert(SEARCH.into(), "v1".into());
        if let Some(path) = bound {
            table.injections[0].values.insert("operation".into(), path.into());
        }
        let (mut turn, _) = Turn::begin(turn_input("implicit", begun(1, 0, false), vec![task(1)]), NOW);
        let Observation::Gathered(mut gathered, scribe) = inputs(&turn, Vec::new()) else { unreachable!() };
        gathered.tools = table.into();
        turn.step(Observation::Gathered(gathered, scribe), NOW);
        let action = turn.step(Observation::Answered(Ok(calls(&[(tool, arguments.clone())]))), NOW);
        let Action::Record(recorded) = action else { panic!("expected a record, got {action:?}") };
        let kept = serde_json::to_string(&*recorded).unwrap();
        assert_eq!(kept.contains("\"published\""), is_published, "{kept}");
        let recorded: RecordedReply = serde_json::from_str(&kept).unwrap();
        let (_, action) = resume(begun(1, 1, false), vec![task(1)], recorded);
        let Action::Call(planned) = action else { panic!("expected the recorded calls, got {action:?}") };
        let shown = PublishedVersion { path: SEARCH.into(), version: "v1".into() };
        assert_eq!(planned[0].1.published, is_published.then_some(shown), "{tool} {arguments}");
    }
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
        let (mut turn, _) = Turn::begin(turn_input("implicit", begun(1, 0, false), vec![task(1)]), NOW);
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
