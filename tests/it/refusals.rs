//! What is refused over HTTP says so in few words, under the right status, and misses no misspelt name.

use crate::support::http::Server;
use serde_json::{Value, json};

const LONG: usize = 300_000;

#[tokio::test(flavor = "multi_thread")]
async fn no_refusal_repeats_what_it_refuses_at_length() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let long = || "x".repeat(LONG);
    let run = |operation: &str, input: Value| ("/api/v1/run", json!({"operation": operation, "input": input}));
    let tasks = "/api/v1/agents/clerk/tasks";
    for (path, body) in [
        run(&format!("v/ops/{}", long()), json!({})),
        run("v/ops/lattice/read", json!({"path": "w/x", long(): 1})),
        run("v/ops/http/get", json!({"url": format!("http://{}/", long())})),
        run("v/ops/policy/restore", json!({"id": long()})),
        run("v/ops/agent/trigger", json!({"agentId": "clerk", "cron": long()})),
        run("v/ops/agent/trigger", json!({"agentId": "clerk", "cron": "0 0 * * *", "timezone": long()})),
        ("/api/v1/invoke", json!({"operation": long(), "input": {}})),
        (tasks, json!({"input": 1, "replyTo": long()})),
        (tasks, json!({"input": 1, "definition": long()})),
        (tasks, json!({"input": 1, "caps": [{"with": long(), "can": "crud/read"}]})),
        (tasks, json!({"input": 1, "caps": [{"with": "w", "can": long()}]})),
        (tasks, json!({"input": 1, long(): 1})),
        ("/api/v1/jobs", json!({"action": "cancel", "dryRun": true, "status": [long()]})),
    ] {
        let answer = server.post(path, body.clone()).await;
        let shown: String = body.to_string().chars().take(120).collect();
        assert!(answer.status.is_client_error(), "{shown}: {}", answer.status);
        let text = answer.body["error"].as_str().unwrap();
        assert!(text.len() <= 2048 && answer.body["detail"] == text, "{shown}: {} bytes", text.len());
    }
    let bad = json!({"model": {"provider": "scripted", "name": "echo"}, long(): 1});
    let refused = server.put("/api/v1/agents/wide", bad).await;
    assert!(refused.body["error"].as_str().unwrap().len() <= 2048);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_job_that_is_not_there_is_for_nothing_that_is() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let none = "0123456789abcdef0123456789abcdef";
    let text = format!("no job `{none}`");
    for agent in ["clerk", "nobody"] {
        let path = format!("/api/v1/agents/{agent}/messages");
        server.post(&path, json!({"input": "x", "job": none})).await.is_problem(404, &text);
    }
    server.post(&format!("/api/v1/jobs/{none}"), json!("x")).await.is_problem(404, &text);
    let run = json!({"operation": "v/ops/agent/message", "input": {"agentId": "clerk", "message": "x", "job": none}});
    let by_operation = server.post("/api/v1/run", run).await;
    assert!(by_operation.status.is_client_error(), "{}", by_operation.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_name_in_the_query_is_refused() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    for (query, part) in [
        ("jobs?stauts=FAILED", "unknown query parameter `stauts`, did you mean `status`"),
        ("jobs?status=FAILED&limti=1", "`limti`, did you mean `limit`"),
        ("agents?includeterminated=true", "did you mean `includeTerminated`"),
        ("agents/clerk/sessions?x=1", "expected some of after, limit"),
        ("timers?agent=a", "unknown query parameter `agent`"),
        ("jobs?status=TIMEOUT", "expected some of PENDING"),
    ] {
        server.get(&format!("/api/v1/{query}")).await.is_problem(400, part);
    }
    let whole = server.get("/api/v1/jobs?limit=0").await.body(200);
    assert_eq!((&whole["limit"], &whole["total"]), (&json!(1), &json!(0)));
    let some = server.get("/api/v1/jobs?agent=clerk").await.body(200);
    assert_eq!((&some["next"], &some["items"], some.get("total")), (&Value::Null, &json!([]), None));
    let ucans = json!({"operation": "v/ops/lattice/read", "input": {"path": "w/x"}, "ucans": [1]});
    server.post("/api/v1/invoke", ucans).await.is_problem(400, "`ucans[0]`");
}
