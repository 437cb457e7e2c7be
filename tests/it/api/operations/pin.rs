//! Pins of operations are operations, and paths may name their own owner.

use super::{call, refused};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::chat::ChatMessage;
use trellis::domain::session::TurnRecord;
use trellis::venue::context::preview::{self, Preview};

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_of_an_operation_is_run_by_its_path() {
    let server = Server::start().await;
    server.run("lattice/write", json!({"path": "w/x", "value": 7})).await;
    server.run("asset/pin", json!({"path": "v/ops/covia/read", "name": "look"})).await;
    server.run("asset/pin", json!({"path": "w/x", "name": "value"})).await;
    for name in ["o/look", "/o/look", "/local/me/o/look"] {
        assert_eq!(server.run(name, json!({"path": "w/x"})).await["value"], 7, "{name}");
    }
    let job = json!({"operation": "o/look", "input": {"path": "w/x"}});
    let job = server.post("/api/v1/invoke", job).await.body(201);
    assert_eq!(job["output"]["value"], 7, "{job}");
    refused(&server, "o/none", json!({}), 404, "there is no pin `o/none`").await;
    refused(&server, "o/value", json!({}), 400, "`o/value` pins no operation, but `w/x`").await;
    refused(&server, "/local/you/o/look", json!({}), 403, "no call reaches another owner's").await;
    refused(&server, "o/look", json!({"pth": "w/x"}), 400, "'pth' was unexpected").await;
    // Who may not read the pin learns nothing of it.
    let reader = super::agent("crud/read", "w");
    let error = call(&server, &reader, "o/look", json!({"path": "w/x"})).await.unwrap_err();
    assert!(error.starts_with("Capability denied: o/look requires crud/read on o/look"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_may_name_its_own_owner_and_no_other_one() {
    let server = Server::start().await;
    server.run("lattice/write", json!({"path": "/local/me/w/x", "value": 7})).await;
    assert_eq!(server.run("lattice/read", json!({"path": "w/x"})).await["value"], 7);
    server.run("lattice/copy", json!({"from": "/local/me/w/x", "to": "/local/me/w/y"})).await;
    assert_eq!(server.run("lattice/read", json!({"path": ["w", "y"]})).await["value"], 7);
    let other = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp/w/x";
    for path in ["/local/you/w/x", other, "did:web:venue.example:me/w/x"] {
        for operation in ["lattice/read", "job/run"] {
            let input = json!({"path": path});
            let input =
                if operation == "job/run" { json!({"operation": "lattice/read", "input": input}) } else { input };
            refused(&server, operation, input, 403, "no call reaches another owner's").await;
        }
    }
    refused(&server, "lattice/copy", json!({"from": "w/x", "to": other}), 403, "is not in the tree of `local/me`")
        .await;
}

const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [
    { tool = "look", arguments = { path = "/local/me/w/x" } },
    { tool = "job_run", arguments = { operation = "o/look", input = { path = "w/x" } } },
    { tool = "job_run", arguments = { operation = "o/ask", input = { agentId = "clerk", input = 1 } } },
    { tool = "look", arguments = { path = "/local/you/w/x" } },
    { tool = "context_load", arguments = { path = "/local/me/w/x" } },
    { tool = "context_load", arguments = { path = "/local/you/w/x" } },
] }

[[rule]]
when = { agent = "clerk", prompt = "[Context: w/x]" }
then = { text = "loaded" }

[[rule]]
then = { text = "done" }
"#;

fn results(turn: &TurnRecord) -> Vec<&str> {
    let text = |said: &ChatMessage| matches!(said, ChatMessage::Tool { .. });
    let results = turn.said.iter().filter(|said| text(said)).map(|said| match said {
        ChatMessage::Tool { text, .. } | ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } => {
            text.as_str()
        }
    });
    results.collect()
}

#[tokio::test]
async fn a_pin_is_a_tool_and_an_entry_of_a_context() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.write("w/x", json!(7)).await;
    venue.write("o/look", json!({"operation": "v/ops/lattice/read"})).await;
    venue.write("o/ask", json!({"operation": "v/ops/agent/request"})).await;
    venue.worker();
    let entry = json!({"op": "o/look", "input": {"path": "w/x"}, "label": "Seen"});
    let tools =
        json!(["o/look", "o/none", {"operation": "o/look", "name": "peek", "description": "d"}, "v/ops/job/run"]);
    venue.agent("clerk", json!({"tools": tools, "defaultTools": false, "context": [entry]})).await;
    let look = Preview { task: Some(json!(1)), ..Preview::default() };
    let inputs = preview::inputs(&venue.venue, &venue.owner, &"clerk".parse().unwrap(), look).await.unwrap();
    let names = inputs.tools.names();
    assert!(names.starts_with(&["look", "peek", "job_run"]), "{names:?}");
    let why = "no pin of an operation, or none that this agent may read";
    assert_eq!(inputs.tools.refused, [("o/none".to_owned(), why.to_owned())]);
    let job = venue.run("clerk", "t1", json!("go")).await;
    assert_eq!(job.result.unwrap().output, Some(json!("loaded")));
    let turns = venue.turns("clerk", job.head.session.as_str()).await;
    let outcomes: Vec<&str> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "ok", "bad arguments", "denied", "ok", "denied"]);
    let results = results(&turns[0]);
    for at in [0, 1] {
        let value: Value = serde_json::from_str(results[at]).unwrap();
        assert_eq!(value["value"], 7, "{}", results[at]);
    }
    assert!(results[2].contains("a pin of `v/ops/agent/request` isn't run by its path"), "{}", results[2]);
    assert!(results[3].contains("`/local/you/w/x` is not in the tree of `local/me`"), "{}", results[3]);
    // The pin names another operation from now on, and so does the tool.
    venue.write("o/look", json!({"operation": "v/ops/lattice/count"})).await;
    let look = Preview { task: Some(json!(1)), ..Preview::default() };
    let inputs = preview::inputs(&venue.venue, &venue.owner, &"clerk".parse().unwrap(), look).await.unwrap();
    let spec = inputs.tools.specs.iter().find(|spec| spec.name == "look").unwrap();
    assert!(spec.description.starts_with("Operation: v/ops/lattice/count."), "{}", spec.description);
    assert_eq!(venue.record("clerk").await.config.tools.len(), 4, "what was configured stays");
    let kept = json!(venue.record("clerk").await.config.tools);
    assert_eq!(kept[0], "o/look");
}
