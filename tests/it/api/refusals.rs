//! What is refused over HTTP says so in few words, under the right status, and misses no misspelt name.

use crate::support::http::{Answer, Server};
use reqwest::Method;
use serde_json::{Value, json};
use trellis::http::HttpOptions;

const LONG: usize = 300_000;

/// Bytes of a refusal as a whole.
const REFUSAL_BYTES: usize = 4096;

#[tokio::test(flavor = "multi_thread")]
async fn no_refusal_repeats_refused_input_at_length() {
    let server = Server::limited(|options| HttpOptions { body_limit: 983_040, ..options }).await;
    server.echo_agent("clerk").await;
    let long = || "x".repeat(LONG);
    // What takes six bytes in JSON for one.
    let control = || "\u{1}".repeat(LONG / 6);
    let many = || (0..1000).map(|n| (format!("field{n}"), json!(n))).collect::<serde_json::Map<_, _>>();
    let with = |base: Value, more: serde_json::Map<String, Value>| {
        let mut base = base;
        base.as_object_mut().unwrap().extend(more);
        base
    };
    let run = |operation: &str, input: Value| ("/api/v1/run", json!({"operation": operation, "input": input}));
    let tasks = "/api/v1/agents/clerk/tasks";
    for ((path, body), parts) in [
        (run(&format!("v/ops/{}", long()), json!({})), ["no operation `v/ops/xxx", ""]),
        (run("v/ops/lattice/read", json!({"path": "w/x", long(): 1})), ["Additional properties", "xxx"]),
        (run("v/ops/lattice/read", json!({"path": "w/x", control(): 1})), ["Additional properties", ""]),
        (run("v/ops/lattice/read", with(json!({"path": "w/x"}), many())), ["Additional properties", "'field0'"]),
        (
            run("v/ops/lattice/slice", json!({"path": "w/x", "limit": long()})),
            ["at `/limit`", "not of type \"integer\""],
        ),
        (
            run("v/ops/lattice/slice", json!({"path": "w/x", "limit": control()})),
            ["at `/limit`", "not of type \"integer\""],
        ),
        (run("v/ops/lattice/read", json!({"path": many()})), ["at `/path`", "a map is not valid"]),
        (run("v/ops/lattice/slice", json!({"path": "w", "limit": [long()]})), ["at `/limit`", "a list is not of type"]),
        (run("v/ops/lattice/read", json!(long())), ["not of type \"object\"", ""]),
        (run("v/ops/http/get", json!({"url": format!("http://{}/", long())})), ["", ""]),
        (run("v/ops/http/get", json!({"url": "http://x/", "headers": {long(): 1}})), ["at `/headers/xxx", ""]),
        (run("v/ops/policy/restore", json!({"id": long()})), ["", ""]),
        (run("v/ops/agent/trigger", json!({"agentId": "clerk", "input": 1, "cron": long()})), ["cron", ""]),
        (
            run(
                "v/ops/agent/trigger",
                json!({"agentId": "clerk", "input": 1, "cron": "0 0 * * *", "timezone": long()}),
            ),
            ["timezone", ""],
        ),
        (("/api/v1/invoke", json!({"operation": long(), "input": {}})), ["no operation", ""]),
        (("/api/v1/invoke", json!({"operation": "lattice:read", long(): {}})), ["unknown field `xxx", "known are"]),
        ((tasks, json!({"input": 1, "replyTo": long()})), ["replyTo", ""]),
        ((tasks, json!({"input": 1, "budget": long()})), ["`budget`: expected a map", "got text"]),
        ((tasks, json!({"input": 1, "caps": [{"with": long(), "can": "crud/read"}]})), ["caps", ""]),
        ((tasks, json!({"input": 1, "caps": [{"with": "w", "can": long()}]})), ["caps", ""]),
        ((tasks, json!({"input": 1, "sessionContext": long()})), ["`sessionContext`: expected a map", "got text"]),
        ((tasks, json!({"input": 1, long(): 1})), ["unknown field `xxx", "known are"]),
        ((tasks, with(json!({"input": 1}), many())), ["unknown field `field0`", "known are"]),
        (("/api/v1/jobs", json!({"action": "cancel", "dryRun": true, "status": [long()]})), ["", ""]),
    ] {
        let answer = server.post(path, body.clone()).await;
        is_short(&answer, &body, &parts);
    }
    let model = json!({"model": {"provider": "scripted", "name": "echo"}});
    for (more, parts) in [
        (json!({long(): 1}), ["unknown key `xxx", ""]),
        (json!({"limits": {"a".repeat(100_000): 1}}), ["`limits`", "unknown field `aaa"]),
        (json!({"limits": long()}), ["`limits`: expected a map", "got text"]),
        (json!({"resources": {"n".repeat(100_000): "memory"}}), ["resources", ""]),
        (Value::Object(many()), ["unknown key `field0`", ""]),
    ] {
        let body = with(model.clone(), more.as_object().unwrap().clone());
        let answer = server.put("/api/v1/agents/wide", body.clone()).await;
        is_short(&answer, &body, &parts);
    }
}

#[track_caller]
fn is_short(answer: &Answer, body: &Value, parts: &[&str]) {
    let shown: String = body.to_string().chars().take(120).collect();
    assert!(matches!(answer.status.as_u16(), 400 | 404), "{shown}: {} {}", answer.status, answer.body);
    let (text, whole) = (answer.body["error"].as_str().unwrap(), answer.body.to_string());
    assert!(whole.len() <= REFUSAL_BYTES && answer.body["detail"] == text, "{shown}: {} bytes: {whole}", whole.len());
    for part in parts {
        assert!(text.contains(part), "{shown}: expected `{part}` in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_refusal_repeats_a_token_or_a_secret() {
    let server = Server::start().await;
    let token = "eyJhbGciOiJFZERTQSJ9.s3cret";
    let run = |input: Value| json!({"operation": "v/ops/http/get", "input": input});
    for (path, body, part) in [
        (
            "/api/v1/run",
            json!({"operation": "v/ops/lattice/read", "ucans": token}),
            "`ucans`: expected a list, got a text",
        ),
        (
            "/api/v1/invoke",
            json!({"operation": "v/ops/lattice/read", "ucans": {"a": token}}),
            "`ucans`: expected a list",
        ),
        ("/api/v1/invoke", json!({"operation": 1, "ucans": token}), "`operation`"),
        (
            "/api/v1/run",
            run(json!({"url": "http://x/", "headers": {"Authorization": [token]}})),
            "/headers/Authorization",
        ),
        ("/api/v1/run", run(json!({"url": "http://x/", "headers": {"x": {"$secret": token}}})), "s/NAME"),
        ("/api/v1/run", run(json!({"url": 1, "headers": token})), "/headers"),
        ("/api/v1/run", json!({"operation": "v/ops/secret/set", "input": {"name": "A", "value": [token]}}), "/value"),
        (
            "/api/v1/run",
            json!({"operation": "v/ops/job/run", "input": {"operation": "v/ops/secret/set", "input": token}}),
            "",
        ),
    ] {
        let answer = server.post(path, body.clone()).await;
        answer.is_problem(400, part);
        assert!(!answer.body.to_string().contains("s3cret"), "{body}: {}", answer.body);
    }
    for body in
        [json!(token), json!({"value": [token]}), json!({"valeu": token}), json!({"value": token, "hosts": token})]
    {
        let answer = server.put("/api/v1/secrets/A", body.clone()).await;
        answer.is_problem(400, "");
        assert!(!answer.body.to_string().contains("s3cret"), "{body}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_missing_job_reaches_nothing() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_described_as_needed_must_be_there() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    for body in ["", "null"] {
        for (method, path) in [
            (Method::POST, "agents/clerk/timers"),
            (Method::POST, "agents/clerk/fork"),
            (Method::PATCH, "agents/clerk"),
            (Method::POST, "jobs"),
            (Method::PUT, "quota"),
        ] {
            let answer = server.send(method, &format!("/api/v1/{path}"), &[], body).await;
            answer.is_problem(400, "expected a JSON body");
        }
    }
    server.put("/api/v1/agents/clerk/suspend", Value::Null).await.body(200);
}
