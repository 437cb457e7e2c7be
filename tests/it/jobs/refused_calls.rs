//! Calls that change nothing, and those that could never do what they are for.

use crate::support::cli::Up;
use crate::support::http::Server;
use serde_json::{Value, json};

fn run(operation: &str, input: &Value) -> Value {
    json!({"operation": operation, "input": input})
}

#[tokio::test(flavor = "multi_thread")]
async fn creating_an_agent_that_is_there_changes_nothing() {
    let server = Server::start().await;
    let model = json!({"provider": "scripted", "name": "echo"});
    let bare = run("v/ops/agent/create", &json!({"agentId": "a"}));
    server.post("/api/v1/run", bare.clone()).await.is_problem(400, "expected `config` with at least `model`");
    server.put("/api/v1/agents/a", json!({"model": model, "systemPrompt": "Be."})).await.body(201);
    for config in [Value::Null, json!({}), json!({"systemPrompt": "Be another."})] {
        let mut asked = json!({"agentId": "a"});
        if !config.is_null() {
            asked["config"] = config;
        }
        let answer = server.post("/api/v1/run", run("v/ops/agent/create", &asked)).await.body(200);
        assert_eq!((&answer["created"], &answer["updated"]), (&json!(false), &json!(false)), "{answer}");
        assert_eq!((&answer["agentId"], &answer["status"]), (&json!("a"), &json!("SLEEPING")), "{answer}");
    }
    let kept = server.get("/api/v1/agents/a").await.body(200);
    assert_eq!(kept["config"]["systemPrompt"], "Be.");
    let over = run("v/ops/agent/create", &json!({"agentId": "a", "overwrite": true}));
    server.post("/api/v1/run", over).await.is_problem(400, "expected `config` with at least `model`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_of_a_refused_request_is_refused_when_set() {
    let server = Server::start().await;
    let model = json!({"provider": "scripted", "name": "echo"});
    server.put("/api/v1/agents/shop", json!({"model": model, "entityIdsRequired": true})).await.body(201);
    server.put("/api/v1/agents/any", json!({"model": model})).await.body(201);
    let set = |agent: &str, kind: &str| {
        run("v/ops/agent/trigger", &json!({"agentId": agent, "input": "go", "kind": kind, "every": "1h"}))
    };
    for kind in ["task", "message"] {
        server.post("/api/v1/run", set("shop", kind)).await.is_problem(400, "ENTITY_IDS_REQUIRED");
        server.post("/api/v1/run", set("any", kind)).await.body(200);
    }
}

/// Inputs as the sources' clients send them.
#[tokio::test(flavor = "multi_thread")]
async fn inputs_of_other_forms_are_read() {
    let server = Server::start().await;
    let model = json!({"provider": "scripted", "name": "echo"});
    for agent in ["ended", "there"] {
        server.put(&format!("/api/v1/agents/{agent}"), json!({"model": model})).await.body(201);
    }
    server.post("/api/v1/run", run("v/ops/agent/delete", &json!({"agentId": "ended"}))).await.body(200);
    for (input, expected) in
        [(json!({}), 2), (json!({"includeTerminated": true}), 2), (json!({"includeTerminated": false}), 1)]
    {
        let listed = server.post("/api/v1/run", run("v/ops/agent/list", &input)).await.body(200);
        assert_eq!(listed["agents"].as_array().unwrap().len(), expected, "{input}: {listed}");
    }
    let ask = |wait: Value| {
        run("v/ops/agent/request", &json!({"agentId": "there", "input": "go", "wait": wait, "timeout": 1}))
    };
    for wait in [json!(true), json!(false), json!(5)] {
        let started = server.post("/api/v1/run", ask(wait)).await.body(200);
        assert!(started["status"].is_string() && started["job"].is_string(), "{started}");
    }
    for wait in [json!("soon"), json!(-1)] {
        server.post("/api/v1/run", ask(wait)).await.is_problem(400, "/wait");
    }
    let write = json!({"path": "w/x", "value": "here"});
    server.post("/api/v1/run", run("v/ops/lattice/write", &write)).await.body(200);
    for paths in [json!("w/x"), json!(["w/x"])] {
        let seen = server.post("/api/v1/run", run("v/ops/lattice/inspect", &json!({"paths": paths}))).await.body(200);
        assert!(seen["result"]["w/x"].as_str().unwrap().contains("here"), "{seen}");
    }
}

#[test]
fn a_file_with_a_byte_order_mark_is_read() {
    let up = Up::start();
    let config = r#"{"model": {"provider": "scripted", "name": "echo"}}"#;
    up.file("marked.json", &format!("\u{feff}{config}"));
    up.file("marked.toml", "\u{feff}id = \"other\"\nmodel = { provider = \"scripted\", name = \"echo\" }\n");
    up.file("input.json", "\u{feff}{\"a\": 1}");
    up.run(&["agent", "apply", "marked.json", "marked.toml"]).ok();
    let answer = up.run(&["submit", "marked", "@input.json", "--wait"]).ok();
    assert!(answer.contains("\"a\"") && !answer.contains('\u{feff}'), "{answer}");
}
