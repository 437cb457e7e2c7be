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
