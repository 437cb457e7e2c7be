//! Pins of operations are operations, and paths may name their own owner.

use super::{call, refused};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::chat::{ChatMessage, ToolSpec};
use trellis::domain::session::TurnRecord;
use trellis::domain::tools::ToolTable;
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
when = { agent = "bound", turn = 1 }
then = { calls = [
    { tool = "job_run", arguments = { operation = "/local/me/v/ops/lattice/write", input = { path = "w/evil", value = 1 } } },
    { tool = "job_run", arguments = { operation = "v/ops/lattice/write", input = { path = "w/evil", value = 2 } } },
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

#[tokio::test]
async fn an_address_of_an_operation_evades_no_binding() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.worker();
    let bound = json!({"v/ops/lattice/write": {"path": "CONSTANT:w/good"}});
    venue.agent("bound", json!({"tools": ["v/ops/job/run"], "defaultTools": false, "toolArgInjection": bound})).await;
    let job = venue.run("bound", "t1", json!("go")).await;
    let turns = venue.turns("bound", job.head.session.as_str()).await;
    let outcomes: Vec<&str> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["unknown tool", "ok"]);
    assert_eq!((venue.read("w/evil").await, venue.read("w/good").await), (None, Some(json!(2))));
}

/// A definition in Covia's form: the schema of a pin of its own, over that of `json/merge`.
fn total() -> Value {
    json!({
        "name": "Total", "description": "Adds up MY way",
        "operation": {"adapter": "json:merge", "toolName": "my_total", "input": {
            "type": "object",
            "properties": {"values": {"type": "array", "description": "MY list", "minItems": 2}},
            "required": ["values"],
        }},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_pin_fits_the_pins_own_schema_too() {
    let server = Server::start().await;
    server.run("lattice/write", json!({"path": "o/total", "value": total()})).await;
    let stored = server.run("asset/store", json!({"metadata": total()})).await;
    let asset = stored["path"].as_str().unwrap();
    server.run("lattice/write", json!({"path": "o/kept", "value": {"asset": asset}})).await;
    let two = json!({"values": [{"a": 1}, {"b": 2}]});
    let one = json!({"values": [{"a": "s3cret"}]});
    for name in ["o/total", asset, "o/kept"] {
        assert_eq!(server.run(name, two.clone()).await["value"], json!({"a": 1, "b": 2}), "{name}");
        let part = format!("arguments of `{name}` are not valid: at `/values`: ");
        let inner = json!({"operation": name, "input": one});
        let twice = json!({"operation": "job/run", "input": inner});
        for (operation, input) in [(name, &one), ("job/run", &inner), ("grid/run", &inner), ("job/run", &twice)] {
            refused(&server, operation, input.clone(), 400, &part).await;
            let error = server.post("/api/v1/invoke", json!({"operation": operation, "input": input})).await.body(400);
            let error = error.to_string();
            assert!(error.contains(&part) && !error.contains("s3cret"), "{operation}: {error}");
        }
        refused(&server, name, Value::Null, 400, "\"values\" is a required property").await;
        // What the catalogue's operation takes is checked, too.
        refused(&server, name, json!({"values": [{}, {}], "more": 1}), 400, "'more' was unexpected").await;
    }
    for (wrong, part) in [
        (json!({"adapter": "json:merge", "input": {"type": 7}}), "`o/bad`: `operation.input`: not a JSON Schema"),
        (json!({"adapter": "json:merge", "input": "x"}), "`o/bad`: `operation.input`: expected a JSON Schema"),
        (json!({"adapter": "json:merge", "toolName": 1}), "`o/bad`: `operation.toolName`: expected text"),
    ] {
        server.run("lattice/write", json!({"path": "o/bad", "value": {"operation": wrong}})).await;
        refused(&server, "o/bad", two.clone(), 400, part).await;
    }
}

async fn offered_tools(venue: &TestVenue, agent: &str) -> Arc<ToolTable> {
    let look = Preview { task: Some(json!(1)), ..Preview::default() };
    preview::inputs(&venue.venue, &venue.owner, &agent.parse().unwrap(), look).await.unwrap().tools
}

fn spec<'t>(tools: &'t ToolTable, name: &str) -> &'t ToolSpec {
    let found = tools.specs.iter().find(|spec| spec.name == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {:?}, refused {:?}", tools.names(), tools.refused))
}

#[tokio::test]
async fn a_model_is_offered_what_a_pin_says_of_itself() {
    let (venue, _dir) = TestVenue::embedded("").await;
    venue.write("o/total", total()).await;
    venue.write("o/plain", json!({"operation": {"adapter": "json:merge"}})).await;
    let renamed = json!({"operation": "o/total", "name": "sum", "description": "mine"});
    venue.agent("clerk", json!({"tools": ["o/total", renamed, "o/plain"], "defaultTools": false})).await;
    let tools = offered_tools(&venue, "clerk").await;
    let own = total()["operation"]["input"].clone();
    for (name, description, is_own) in [
        ("my_total", "Operation: v/ops/json/merge. Adds up MY way", true),
        ("sum", "Operation: v/ops/json/merge. mine", true),
        ("plain", "Operation: v/ops/json/merge. Merge JSON values", false),
    ] {
        let spec = spec(&tools, name);
        assert!(spec.description.starts_with(description), "{}", spec.description);
        assert_eq!(spec.schema == own, is_own, "{}", spec.schema);
    }
    assert_eq!((&tools.refused, &tools.reports), (&Vec::new(), &Vec::new()));
}

/// Each entry of `tools` has the schema of its pin: hundreds of large ones would fill the memory of a worker.
#[tokio::test]
async fn the_schemas_of_an_agents_pins_stay_small() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let input = json!({"type": "object", "description": "d".repeat(60_000)});
    venue.write("o/large", json!({"operation": {"adapter": "json:merge", "input": input}})).await;
    let entries: Vec<Value> =
        (0..20).map(|at| json!({"operation": "o/large", "name": format!("large_{at}")})).collect();
    venue.agent("clerk", json!({"tools": entries, "defaultTools": false})).await;
    let tools = offered_tools(&venue, "clerk").await;
    let large = tools.specs.iter().filter(|spec| spec.name.starts_with("large_")).count();
    assert_eq!((large, tools.refused.len()), (8, 12), "{:?}", tools.refused);
}

#[tokio::test]
async fn what_is_bound_or_hidden_stays_so_under_a_pins_own_schema() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let text = json!({"type": "string"});
    let write = json!({
        "type": "object", "properties": {"value": {}, "calendarId": text}, "required": ["value", "calendarId"]
    });
    let note = json!({"operation": {"adapter": "lattice:write", "toolName": "note", "input": write}});
    venue.write("o/write_note", note).await;
    let ask = json!({"properties": {"input": {}, "sessionContext": {"type": "object"}, "agentId": text}});
    venue.write("o/ask", json!({"operation": {"adapter": "agent:request", "input": ask}})).await;
    let keep = json!({"type": "object", "properties": {"value": text}});
    venue.write("o/keep", json!({"operation": {"adapter": "secret:set", "input": keep}})).await;
    let constant = json!([{"key": "notes", "source": "CONSTANT:w/notes"}]);
    let auto = json!([
        {"key": "calendar_id", "source": "_auto", "fallback": "cal"}, {"key": "notes", "source": "CONSTANT:w/notes"},
    ]);
    let tools = json!(["o/write_note", "o/ask", "o/keep"]);
    for (agent, mapping, tool, expected, values) in [
        ("path", &constant, "o/write_note", vec!["value", "calendarId"], json!({"path": "w/notes"})),
        // By the name that its path alone would give it.
        ("derived", &constant, "write_note", vec!["value", "calendarId"], json!({"path": "w/notes"})),
        ("auto", &auto, "o/write_note", vec!["value"], json!({"calendarId": "cal", "path": "w/notes"})),
    ] {
        let config = json!({
            "tools": tools, "defaultTools": false, "contextMapping": mapping,
            "toolArgInjection": {tool: {"path": "notes"}},
        });
        venue.agent(agent, config).await;
        let tools = offered_tools(&venue, agent).await;
        assert_eq!((&tools.refused, &tools.reports), (&Vec::new(), &Vec::new()), "{agent}");
        let keys: Vec<&String> = spec(&tools, "note").schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys, expected, "{agent}");
        assert_eq!(json!(tools.injection("note").unwrap().values), values, "{agent}");
        let ask = &spec(&tools, "ask").schema;
        assert!(ask["properties"].get("sessionContext").is_none(), "{ask}");
        let keep = &spec(&tools, "keep").schema;
        assert_eq!(keep["properties"]["value"]["writeOnly"], true, "{keep}");
    }
}

const CALLS: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [
    { tool = "my_total", arguments = { values = [{ a = 1 }, { b = 2 }] } },
    { tool = "my_total", arguments = { values = [{ a = 1 }] } },
    { tool = "job_run", arguments = { operation = "o/total", input = { values = [{ a = 1 }] } } },
    { tool = "plain", arguments = { values = [{ a = 1 }] } },
] }

[[rule]]
when = { prompt = "[Context: Two]\n{a: 1, b: 2}" }
then = { text = "seen" }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test]
async fn calls_and_entries_of_a_pin_are_checked_in_turns() {
    let (venue, _dir) = TestVenue::embedded(CALLS).await;
    venue.write("o/total", total()).await;
    venue.write("o/plain", json!({"operation": {"adapter": "json:merge"}})).await;
    venue.worker();
    let entries = json!([
        {"op": "o/total", "input": {"values": [{"a": 1}, {"b": 2}]}, "label": "Two"},
        {"op": "o/total", "input": {"values": [{"a": 1}]}, "label": "One"},
    ]);
    let tools = json!(["o/total", "v/ops/job/run", "o/plain"]);
    venue.agent("clerk", json!({"tools": tools, "defaultTools": false, "context": entries})).await;
    let job = venue.run("clerk", "t1", json!("go")).await;
    let turns = venue.turns("clerk", job.head.session.as_str()).await;
    let outcomes: Vec<&str> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    let results = results(&turns[0]);
    assert_eq!(outcomes, ["ok", "bad arguments", "bad arguments", "ok"], "{results:?}");
    for at in [1, 2] {
        assert!(results[at].contains("are not valid: at `/values`: "), "{}", results[at]);
    }
    let look = Preview { task: Some(json!(1)), ..Preview::default() };
    let inputs = preview::inputs(&venue.venue, &venue.owner, &"clerk".parse().unwrap(), look).await.unwrap();
    let content = |label: &str| {
        let item = inputs.items.iter().find(|item| item.label.as_deref() == Some(label)).unwrap();
        format!("{:?}", item.content)
    };
    assert!(content("One").contains("arguments of `o/total` are not valid: at `/values`: "), "{}", content("One"));
    assert!(!content("Two").contains("not valid"), "{}", content("Two"));
}
