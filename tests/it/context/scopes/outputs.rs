//! Outputs of delegates that go to a path.

use super::{results, turns};
use crate::support::both_stores::{On, on_both};
use crate::support::operate::{boss, operate};
use serde_json::json;
use trellis::process::clock::Clock;

async fn a_delegates_output_is_written_where_its_tool_says(on: On) {
    const RULES: &str = r#"
[[rule]]
when = { agent = "boss", turn = 1, last_role = "user", prompt = "You are the boss." }
then = { calls = [{ tool = "help", arguments = {} }, { tool = "sum", arguments = {} }, { tool = "deny", arguments = {} }] }

[[rule]]
when = { agent = "helper" }
then = { text = "from the helper" }

[[rule]]
then = { text = "done" }
"#;
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.worker();
    let help = json!({"delegate": "helper", "name": "help", "wait": 60000, "outputPath": "w/out/help"});
    let sum = json!({
        "delegate": "anonymous", "name": "sum", "description": "Sum up.", "wait": 60000, "_outputPath": "w/out/sum",
    });
    let deny = json!({"delegate": "helper", "name": "deny", "wait": 60000, "outputPath": "w/other"});
    let caps = json!([{"with": "w/out", "can": "crud"}, {"with": "g", "can": "agent"}]);
    let agent =
        json!({"tools": [help, sum, deny], "defaultTools": false, "systemPrompt": "You are the boss.", "caps": caps});
    venue.agent("boss", agent).await;
    venue.agent("helper", json!({})).await;
    let job = venue.run("boss", "t1", json!("go")).await;
    let turns = turns(&venue, &job).await;
    let outcomes: Vec<_> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "ok", "denied"], "{:?}", results(&turns[0]));
    for (path, expected) in [("w/out/help", "from the helper"), ("w/out/sum", "done")] {
        let read =
            operate(&venue.venue, &boss(&venue.owner), "v/ops/lattice/read", json!({"path": path})).await.unwrap();
        assert_eq!(read["value"], expected, "{path}: {:?}", results(&turns[0]));
    }
}

on_both! {
    a_delegates_output_is_written_where_its_tool_says
}
