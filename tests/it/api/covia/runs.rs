//! Pins, definitions, templates and agents' files of Covia's form.

use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::chat::ChatMessage;
use trellis::domain::session::TurnRecord;
use trellis::venue::context::preview::{self, Preview};

/// A definition as Covia's catalog shows one.
fn definition(adapter: &str) -> Value {
    json!({"name": "Look", "description": "d", "operation": {"adapter": adapter, "input": {"type": "object"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stand_in_for_an_operation_runs_alike_for_every_caller() {
    let server = Server::start().await;
    server.run("lattice/write", json!({"path": "w/x", "value": 7})).await;
    server.run("lattice/write", json!({"path": "w/ops/look", "value": definition("covia:read")})).await;
    server.run("lattice/write", json!({"path": "o/look", "value": definition("lattice:read")})).await;
    server.run("asset/pin", json!({"path": "v/ops/covia/read", "name": "pinned"})).await;
    server.run("asset/pin", json!({"path": "w/ops/look", "name": "kept"})).await;
    let asset = server.post("/api/v1/assets", definition("covia:read")).await.body(201);
    let asset = asset.as_str().unwrap();
    let named = ["w/ops/look", "o/look", "o/pinned", "o/kept", "/local/me/o/look", asset, &format!("a/{asset}")];
    let input = json!({"path": "w/x"});
    for name in named {
        let run = |runner: &str, input: Value| json!({"operation": runner, "input": input});
        let inner = run(name, input.clone());
        assert_eq!(server.run(name, input.clone()).await["value"], 7, "{name}");
        for runner in ["job/run", "grid/run", "grid:invoke"] {
            assert_eq!(server.run(runner, inner.clone()).await["value"], 7, "{runner} {name}");
            let twice = run("job/run", run(runner, inner.clone()));
            assert_eq!(server.post("/api/v1/run", twice).await.body(200)["value"], 7, "{runner} {name}");
        }
        let job = server.post("/api/v1/invoke", run("grid/run", inner)).await.body(201);
        assert_eq!(job["output"]["value"], 7, "{name}: {job}");
    }
    for (value, part) in [
        (
            json!({"operation": {"adapter": "orchestrator", "steps": []}}),
            "the adapter `orchestrator`, which this venue doesn't have",
        ),
        (json!({"a": 1}), "`w/odd` pins no operation, but a value; expected a map whose `operation`"),
    ] {
        server.run("lattice/write", json!({"path": "w/odd", "value": value})).await;
        for operation in ["w/odd", "job/run"] {
            let input = if operation == "job/run" { json!({"operation": "w/odd"}) } else { json!({}) };
            let body = json!({"operation": operation, "input": input});
            server.post("/api/v1/run", body).await.is_problem(400, part);
        }
    }
    for (name, part) in [("w/none", "there is no definition `w/none`"), ("o/none", "there is no pin `o/none`")] {
        server.post("/api/v1/run", json!({"operation": name})).await.is_problem(404, part);
    }
    let none = format!("a/{}", "ab".repeat(32));
    server.post("/api/v1/run", json!({"operation": none})).await.is_problem(404, "there is no asset");
}

const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [
    { tool = "look", arguments = { path = "w/x" } },
    { tool = "grid_run", arguments = { operation = "w/ops/look", input = { path = "w/x" } } },
    { tool = "grid_run", arguments = { operation = "o/keep", input = { content = "kept" } } },
    { tool = "grid_run", arguments = { operation = "o/ask", input = { agentId = "clerk", input = 1 } } },
    { tool = "keep", arguments = { content = "kept, too" } },
    { tool = "more_tools", arguments = { operations = ["v/ops/json/merge", "covia:count", "json/merg", "grid/run"] } },
] }

[[rule]]
when = { agent = "clerk", turn = 2 }
then = { calls = [
    { tool = "json_merge", arguments = { values = [{ a = 1 }] } },
    { tool = "covia_count", arguments = { path = "w" } },
] }

[[rule]]
then = { text = "done" }
"#;

fn result_text(said: &ChatMessage) -> Option<&str> {
    match said {
        ChatMessage::Tool { text, .. } => Some(text.as_str()),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    }
}

/// Results of the calls of a turn.
fn results(turn: &TurnRecord) -> Vec<&str> {
    turn.said.iter().filter_map(result_text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_tools_and_context_and_more_tools_are_named() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    venue.write("w/x", json!(7)).await;
    venue.write("w/ops/look", definition("covia:read")).await;
    venue.write("o/keep", definition("asset:store")).await;
    venue.write("o/ask", definition("agent:request")).await;
    venue.worker();
    let config = json!({
        "tools": ["w/ops/look", "o/keep", "v/ops/grid/run", "more_tools"], "defaultTools": false,
        "context": [
            {"op": "w/ops/look", "input": {"path": "w/x"}, "label": "Seen"},
            {"op": "job/run", "input": {"operation": "w/ops/look", "input": {"path": "w/x"}}, "label": "Run"},
        ],
    });
    venue.agent("clerk", config).await;
    let look = Preview { task: Some(json!(1)), ..Preview::default() };
    let inputs = preview::inputs(&venue.venue, &venue.owner, &"clerk".parse().unwrap(), look).await.unwrap();
    let shown = format!("{inputs:?}");
    assert_eq!(shown.matches("unavailable").count(), 0, "{shown}");
    let job = venue.run("clerk", "t1", json!("go")).await;
    let turns = venue.turns("clerk", job.head.session.as_str()).await;
    let outcomes: Vec<&str> = turns[0].calls.iter().map(|call| call.outcome.as_str()).collect();
    let said = results(&turns[0]);
    assert_eq!(outcomes, ["ok", "ok", "ok", "bad arguments", "ok", "ok"], "{said:?}");
    for at in [0, 1] {
        assert!(said[at].contains("\"value\":7") || said[at].contains("value: 7"), "{}", said[at]);
    }
    assert!(said[3].contains("a pin of `v/ops/agent/request` isn't run by its path"), "{}", said[3]);
    let more: Value = serde_json::from_str(said[5]).unwrap();
    let added: Vec<_> = more["added"].as_array().unwrap().iter().map(|added| &added["tool"]).collect();
    assert_eq!(added, ["json_merge", "covia_count"]);
    assert!(more["notAdded"]["json/merg"].as_str().unwrap().contains("no operation `json/merg`"), "{more}");
    assert!(more["notAdded"]["grid/run"].as_str().unwrap().contains("among your tools already"), "{more}");
    let outcomes: Vec<&str> = turns[1].calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "ok"], "{:?}", results(&turns[1]));
}

/// The tools of an agent.
async fn tools(venue: &TestVenue, agent: &str) -> Vec<String> {
    let look = Preview { task: Some(json!(1)), ..Preview::default() };
    let inputs = preview::inputs(&venue.venue, &venue.owner, &agent.parse().unwrap(), look).await.unwrap();
    inputs.tools.names().iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_there_by_their_path_and_can_be_changed() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let server = Server::of(std::sync::Arc::clone(&venue.venue)).await;
    let list = server.run("covia/list", json!({"path": "v/agents/templates"})).await;
    let names: Vec<_> = list["keys"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names, ["minimal", "reader", "worker", "analyst", "manager", "goaltree", "full"]);
    for name in &names {
        let made = json!({"agentId": name, "config": format!("v/agents/templates/{name}")});
        assert_eq!(server.run("agent/create", made).await["created"], true, "{name}");
    }
    let scripted = json!({"model": {"provider": "scripted", "name": "echo"}});
    let made = json!({"agentId": "own", "config": ["v/agents/templates/reader", scripted]});
    assert_eq!(server.run("agent/create", made).await["warnings"], json!([]));
    let offered = tools(&venue, "own").await;
    assert!(offered.starts_with(&["covia_read".into(), "covia_list".into(), "covia_slice".into()]), "{offered:?}");
    let full = tools(&venue, "full").await;
    for name in [
        "subgoal",
        "compact",
        "more_tools",
        "covia_read",
        "grid_run",
        "grid_job_result",
        "agent_create",
        "schema_infer",
    ] {
        assert!(full.iter().any(|tool| tool == name), "{name}: {full:?}");
    }
    assert!(!full.iter().any(|tool| tool.starts_with("lattice_") || tool.starts_with("job_")), "{full:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_covia_s_form_has_its_loop_and_its_names_of_tools() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let server = Server::of(std::sync::Arc::clone(&venue.venue)).await;
    server.run("covia/write", json!({"path": "w/docs/rules", "value": "# Rules"})).await;
    server.run("covia/write", json!({"path": "o/pipeline", "value": definition("json:merge")})).await;
    let everything = json!({
        "name": "All", "description": "d", "systemPrompt": "s", "llmOperation": "v/ops/langchain/openai", "model": "gpt-5.4-mini",
        "defaultTools": true,
        "tools": ["subgoal", "complete", "fail", "compact", "context_load", "context_unload", "more_tools"],
    });
    let made = server.run("agent/create", json!({"agentId": "all", "config": everything})).await;
    assert_eq!(made["created"], true, "{made}");
    let named = tools(&venue, "all").await;
    assert!(named.iter().any(|name| name == "covia_write") && named.iter().any(|name| name == "subgoal"), "{named:?}");
    // As the agent that leads the others in Covia's demonstration.
    let leader = json!({
        "agentId": "Leader", "overwrite": true, "config": {"operation": "v/ops/goaltree/chat"},
        "state": {"config": {
            "llmOperation": "v/ops/langchain/openai", "model": "gpt-5.4-mini", "defaultTools": false,
            "tools": ["v/ops/covia/read", "v/ops/grid/run", "v/ops/agent/request", "subgoal", "compact", "more_tools"],
            "caps": [
                {"with": "w/", "can": "crud/read"}, {"with": "g/", "can": "agent/message"},
                {"with": "g/", "can": "agent/request"}, {"with": "", "can": "invoke"},
            ],
            "systemPrompt": "s",
            "context": [{"ref": "w/docs/rules", "label": "Rules"}, {"ref": "o/pipeline", "label": "Pipeline"}],
        }}
    });
    for created in [true, false] {
        let made = server.run("agent/create", leader.clone()).await;
        assert_eq!((&made["created"], &made["warnings"]), (&json!(created), &json!([])), "{made}");
    }
    let named = tools(&venue, "Leader").await;
    assert!(named.starts_with(&["covia_read".into(), "grid_run".into(), "agent_request".into()]), "{named:?}");
    // A change leaves the rest as it was written.
    let update = json!({"agentId": "all", "config": {"defaultTools": false}});
    server.run("agent/update", update).await;
    assert!(!tools(&venue, "all").await.iter().any(|name| name == "covia_write"));
}
