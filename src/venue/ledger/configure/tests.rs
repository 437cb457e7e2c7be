//! What another configuration changes in the inputs of a turn.

use super::*;
use crate::ops;
use crate::venue::ledger::samples_tests::inputs;
use serde_json::json;

fn config(caps: &Value) -> AgentConfig {
    AgentConfig::parse(&json!({"model": {"provider": "scripted", "name": "x"}, "caps": caps})).unwrap()
}

#[test]
fn other_capabilities_are_shown_as_they_hold() {
    let narrow = config(&json!([{"with": "w/a", "can": "crud/read"}, {"with": "n/diary", "can": "crud"}]));
    let wide = config(&json!([{"with": "w/b", "can": "crud"}]));
    let catalog = ops::catalog(false).compiled_view();
    let home = home_of(&inputs());
    let of = |config: &AgentConfig| Authority::new(config.caps.clone()).bind_home(&home);
    let shown = |before: Option<&AgentConfig>, after: &AgentConfig| {
        let mut inputs = inputs();
        inputs.frame.authority = of(&narrow).without_home();
        inputs.frame.disclosure = of(&narrow).disclosure();
        configure(&mut inputs, before, after, &catalog);
        let disclosure = inputs.frame.disclosure.unwrap();
        disclosure.held.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(shown(Some(&narrow), &narrow), ["crud/read on w/a", "crud on n/diary"]);
    assert_eq!(shown(Some(&narrow), &wide), ["crud on w/b"]);
    assert_eq!(shown(None, &wide), ["crud on w/b"]);
}
