//! Addresses of one's own tree, keys with slashes, what lies below `g/`, and references to secrets.

use crate::support::http::Server;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::venue::context::preview::{self, Preview};

#[tokio::test(flavor = "multi_thread")]
async fn own_addresses_are_usable_and_foreign_ones_refused() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let server = Server::of(std::sync::Arc::clone(&venue.venue)).await;
    server.run("covia/write", json!({"path": "w/docs/rules", "value": "be fair"})).await;
    server.run("covia/write", json!({"path": "o/look", "value": {"operation": "v/ops/covia/read"}})).await;
    let config = |owner: &str| {
        let at = |path: &str| format!("/{owner}/{path}");
        json!({
            "model": {"provider": "scripted", "name": "echo"}, "defaultTools": false, "tools": [at("o/look")],
            "caps": [{"with": at("w/docs"), "can": "crud/read"}, {"with": at("o"), "can": "crud/read"}],
            "context": [
                {"ref": at("w/docs/rules"), "label": "A"}, at("w/docs/rules"),
                {"op": at("o/look"), "input": {"path": at("w/docs/rules")}, "label": "B"},
            ],
        })
    };
    let owner = venue.owner.to_string();
    let made = json!({"agentId": "a", "config": config(&owner)});
    let made = server.post("/api/v1/run", json!({"operation": "agent/create", "input": made})).await.body(200);
    assert_eq!((&made["created"], &made["warnings"]), (&json!(true), &json!([])));
    let applied = server.put("/api/v1/agents/b", config(&owner)).await.body(201);
    assert_eq!(applied["result"], "created");
    for agent in ["a", "b"] {
        let kept = server.run("agent/info", json!({"agentId": agent})).await["config"].clone();
        assert_eq!(kept["caps"][0], json!({"with": "w/docs", "can": "crud/read"}), "{kept}");
        let look = Preview { task: Some(json!(1)), ..Preview::default() };
        let inputs = preview::inputs(&venue.venue, &venue.owner, &agent.parse().unwrap(), look).await.unwrap();
        let shown = format!("{inputs:?}");
        assert_eq!(shown.matches("be fair").count(), 3, "{shown}");
    }
    let others = json!({"agentId": "c", "config": config("acme/other")});
    let body = json!({"operation": "agent/create", "input": others});
    server.post("/api/v1/run", body).await.is_problem(403, "`/acme/other/w/docs` is not in the tree of");
    server.put("/api/v1/agents/c", config("acme/other")).await.is_problem(403, "is not in the tree of");
    let update = json!({"agentId": "a", "config": {"context": ["/acme/other/w/docs/rules"]}});
    let body = json!({"operation": "agent/update", "input": update});
    server.post("/api/v1/run", body).await.is_problem(400, "is not in the tree of");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_a_slash_is_read_as_it_is_shown() {
    let server = Server::start().await;
    let written = json!({"path": ["w", "urls", "https://x/y"], "value": {"seen": 1}});
    server.run("covia/write", written).await;
    let job = json!({"operation": "covia/read", "input": {"path": ["w", "urls", "https://x/y", "seen"]}});
    server.post("/api/v1/run", job).await.body(200);
    for path in
        [r"w/urls/https:\/\/x\/y/seen", r"/w/urls/https:\/\/x\/y/seen/", r"/local/me/w/urls/https:\/\/x\/y/seen"]
    {
        assert_eq!(server.run("covia/read", json!({"path": path})).await["value"], 1, "{path}");
    }
    let absent = server.run("covia/read", json!({"path": "w/urls/https:/x/y"})).await;
    assert_eq!(absent["exists"], false);
    let list = server.run("covia/list", json!({"path": "w/urls"})).await;
    assert_eq!((&list["keys"], &list["paths"]), (&json!(["https://x/y"]), &json!([r"w/urls/https:\/\/x\/y"])));
    let plain = server.run("covia/list", json!({"path": "w"})).await;
    assert_eq!(plain.get("paths"), None);
    let pattern = server.get(r"/api/v1/values/read?path=w%2Furls%2Fhttps:%5C%2F%5C%2Fx%5C%2Fy").await.body(200);
    assert_eq!(pattern["value"], json!({"seen": 1}));
}

const RULES: &str = r#"
[[rule]]
when = { agent = "noter", turn = 1 }
then = { calls = [
    { tool = "lattice_write", arguments = { path = "n/plan", value = "first" } },
    { tool = "context_load", arguments = { path = "w/x", level = "agent", label = "X" } },
    { tool = "context_load", arguments = { path = "w/y" } },
] }

[[rule]]
then = { text = "done" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_looked_into_below_its_path() {
    let (venue, _dir) = TestVenue::embedded(RULES).await;
    let server = Server::of(std::sync::Arc::clone(&venue.venue)).await;
    venue.worker();
    venue
        .agent("noter", json!({"tools": ["v/ops/lattice/write"], "defaultTools": false, "systemPrompt": "note"}))
        .await;
    let job = venue.run("noter", "t1", json!("go")).await;
    let session = job.head.session.as_str();
    let read = async |path: String| server.run("covia/read", json!({"path": path})).await;
    for (path, expected) in [
        ("state/config/systemPrompt".to_owned(), json!("note")),
        ("state/loads/0/path".into(), json!("w/x")),
        (format!("sessions/{session}/sessionId"), json!(session)),
        (format!("sessions/{session}/loads/0/path"), json!("w/y")),
        ("n/plan".into(), json!("first")),
        ("n".into(), json!({"plan": "first"})),
        ("state/none".into(), Value::Null),
        ("sessions/none".into(), Value::Null),
    ] {
        let found = read(format!("g/noter/{path}")).await;
        assert_eq!(found.get("value").unwrap_or(&Value::Null), &expected, "{path}: {found}");
        assert_eq!(found["exists"], !expected.is_null(), "{path}");
    }
    let sessions = server.run("covia/list", json!({"path": "g/noter/sessions"})).await;
    assert_eq!((&sessions["type"], &sessions["keys"]), (&json!("map"), &json!([session])), "{sessions}");
    assert_eq!(read("g/none/state".into()).await["exists"], false);
    assert_eq!(read("g/none/n".into()).await["exists"], false);
    let info = server.run("agent/info", json!({"agentId": "noter"})).await;
    assert_eq!(info["sessions"], 1, "what `agent/info` tells is as it was");
}
