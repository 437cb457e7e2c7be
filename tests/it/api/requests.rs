//! HTTP: who may ask, operations, reads, discovery, health, errors.

use crate::support::http::{BODY_LIMIT, Server};
use crate::support::redis::RedisServer;
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;
use trellis::store::Store;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};

#[tokio::test(flavor = "multi_thread")]
async fn the_venue_reports_its_identity_and_health() {
    let server = Server::start().await;
    let status = server.get("/api/v1/status").await.body(200);
    assert_eq!(status["status"], "OK");
    assert_eq!(status["name"], "test venue");
    assert_eq!(status["url"], server.url);
    let did = server.get("/.well-known/did.json").await.body(200);
    assert_eq!(did["id"], status["did"]);
    assert_eq!(server.get("/livez").await.body(200), json!({"status": "live"}));
    assert_eq!(server.get("/readyz").await.body(200), json!({"status": "ready"}));
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(metrics.body.as_str().unwrap().contains("# TYPE trellis_turns_committed_total counter\n"));
    let asked = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let metrics = server.send(Method::GET, "/metrics", &asked, "").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    assert!(metrics.body.as_str().unwrap().ends_with("# EOF\n"));
    assert_eq!(server.get("/api/v1/openapi.json").await.body(200)["openapi"], "3.1.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_can_not_use_the_api() {
    let server = Server::start().await;
    for headers in [
        [("host", "rebound.example"), ("x", "y")],
        [("origin", "https://evil.example"), ("x", "y")],
        [("origin", "null"), ("x", "y")],
    ] {
        server.send(Method::GET, "/api/v1/status", &headers, "").await.is_problem(403, "is not allowed");
    }
    server.send(Method::GET, "/api/v1/status", &[("origin", "http://localhost:3000")], "").await.body(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_thing_is_a_problem_with_a_hint() {
    let server = Server::start().await;
    server.get("/api/v1/job").await.is_problem(404, "did you mean `GET /api/v1/jobs`");
    server.get("/nowhere").await.is_problem(404, "/api/v1/openapi.json");
    let wrong = server.send(Method::DELETE, "/api/v1/jobs", &[], "").await;
    wrong.is_problem(405, "expected GET");
    assert_eq!(wrong.header("allow"), "GET,HEAD,POST");
    server.put(&format!("/api/v1/jobs/{}", "0".repeat(32)), json!(1)).await.is_problem(405, "expected GET or POST");
    server.get("/api/v1/agents/%FF").await.is_problem(400, "bad request");
    server.put("/api/v1/secrets/key", json!("x")).await.is_problem(400, "expected a body `{\"value\"");
    server.send(Method::DELETE, "/api/v1/secrets/key", &[], "").await.is_problem(404, "no secret `key`");
    let empty = json!({"items": [], "total": 0, "offset": 5, "limit": 7, "next": null});
    assert_eq!(server.get("/api/v1/assets?offset=5&limit=7").await.body(200), empty);
    assert_eq!(server.get("/api/v1/secrets").await.body(200), json!({"items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_put_by_the_names_of_configurations() {
    let server = Server::start().await;
    let scripted = json!({"model": {"provider": "scripted", "name": "echo"}});
    let reader = "v/agents/templates/reader";
    for (id, body, expected) in [
        ("a", json!(reader), (201, "created")),
        ("b", json!([reader, scripted]), (201, "created")),
        ("b", json!({"config": [reader, scripted]}), (200, "unchanged")),
        ("b", json!({"definition": reader, "config": scripted}), (200, "unchanged")),
        ("b", json!({"config": reader, "strict": true}), (200, "updated")),
        ("c", json!({"config": scripted, "state": {"config": {"concurrency": 2}}}), (201, "created")),
    ] {
        let answer = server.put(&format!("/api/v1/agents/{id}"), body.clone()).await.body(expected.0);
        assert_eq!((&answer["result"], &answer["agentId"]), (&json!(expected.1), &json!(id)), "{body}: {answer}");
    }
    let put = async |body| server.put("/api/v1/agents/d", body).await;
    put(json!("w/none")).await.is_problem(404, "no configuration at `w/none`");
    put(json!({"config": reader, "dryRun": true})).await.is_problem(400, "`dryRun`: beside `config`");
    put(json!({"config": [scripted, {"tools": ["v/ops/lattice/raed"]}], "strict": true}))
        .await
        .is_problem(400, "did you mean `v/ops/lattice/read`");
    server.get("/api/v1/agents/d").await.is_problem(404, "no agent `d`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_a_byte_order_mark_is_read() {
    let server = Server::start().await;
    let send =
        async |method: Method, path: &str, body: &str| server.send(method, path, &[], format!("\u{feff}{body}")).await;
    let agent = r#"{"model": {"provider": "scripted", "name": "echo"}}"#;
    send(Method::PUT, "/api/v1/agents/marked", agent).await.body(201);
    let write = r#"{"operation": "v/ops/lattice/write", "input": {"path": "w/marked", "value": {"x": 1}}}"#;
    send(Method::POST, "/api/v1/run", write).await.body(200);
    assert_eq!(server.run("lattice:read", json!({"path": "w/marked/x"})).await["value"], 1);
    send(Method::POST, "/api/v1/agents/marked/messages", r#"{"input": "hi"}"#).await.body(202);
    send(Method::POST, "/api/v1/run", "").await.is_problem(400, "expected a JSON body");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_answers_with_the_output_or_says_why_not() {
    let server = Server::start().await;
    let written = server.run("v/ops/covia/write", json!({"path": "w/a/b", "value": {"x": 1}})).await;
    assert_eq!(written["existed"], false);
    assert_eq!(server.run("lattice:read", json!({"path": "w/a/b/x"})).await["value"], 1);
    assert_eq!(server.run("v/ops/covia/list", json!({})).await["type"], "map");
    let run = async |body| server.post("/api/v1/run", body).await;
    run(json!({"operation": "v/ops/covia/raed", "input": {"path": "w/a"}})).await.is_problem(404, "no operation");
    run(json!({"operation": "v/ops/lattice/write"})).await.is_problem(400, "arguments of `v/ops/lattice/write`");
    run(json!({"operation": "v/ops/lattice/read"})).await.is_problem(400, "exactly one of `path` and `paths`");
    run(json!({"operation": "v/ops/lattice/read", "input": {"path": "q/a"}})).await.is_problem(400, "illegal path");
    run(json!({"operation": "v/ops/lattice/write", "input": {"path": "j/a", "value": 1}}))
        .await
        .is_problem(400, "kept by the venue");
    run(json!({"input": 1})).await.is_problem(400, "missing field `operation`");
    run(json!({"operation": "v/ops/test/error", "input": {"message": "m"}}))
        .await
        .is_problem(500, "Operation failed: m");
    run(json!({"operation": "v/ops/agent/info", "input": {"agentId": "x"}})).await.is_problem(404, "no agent `x`");
    let json5 = "// a note\n{operation: 'v/ops/schema/infer', input: {value: 0xff,},}";
    server.send(Method::POST, "/api/v1/run", &[], json5).await.body(200);
    server.send(Method::POST, "/api/v1/run", &[], "{oops").await.is_problem(400, "the body is not JSON");
    let large = "x".repeat(BODY_LIMIT + 1);
    server.send(Method::POST, "/api/v1/run", &[], large).await.is_problem(413, "more than 100000 bytes");
    let key = [("Idempotency-Key", "a b")];
    server.send(Method::POST, "/api/v1/run", &key, "{}").await.is_problem(400, "whitespace is not allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_do_not_see_each_other() {
    let server = Server::start().await;
    let body = json!({"operation": "lattice/write", "input": {"path": "w/secret/x", "value": 7}}).to_string();
    let ann = [("X-Trellis-Owner", "acme/ann")];
    server.send(Method::POST, "/api/v1/run", &ann, body).await.body(200);
    let read = "/api/v1/values/read?path=w/secret/x";
    assert_eq!(server.send(Method::GET, read, &ann, "").await.body(200)["value"], 7);
    assert_eq!(server.get(read).await.body(200), json!({"exists": false}));
    for (owner, status) in [("acme", 400), ("acme/a b", 400), ("_venue/_venue", 403)] {
        server.send(Method::GET, read, &[("X-Trellis-Owner", owner)], "").await.is_problem(status, "owner");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_read_without_a_job() {
    let server = Server::start().await;
    for (name, state) in [("a", "open"), ("b", "done"), ("c", "open")] {
        server.run("lattice/write", json!({"path": format!("w/orders/{name}"), "value": {"state": state}})).await;
    }
    server.run("lattice/append", json!({"path": "w/log", "value": "first"})).await;
    let get = async |query: &str| server.get(&format!("/api/v1/values/{query}")).await;
    assert_eq!(get("read?path=w/orders/a").await.body(200)["value"], json!({"state": "open"}));
    assert_eq!(get("read?path=w/orders&maxSize=5").await.body(200)["truncated"], true);
    let page = get("list?path=w/orders&limit=2&offset=1").await.body(200);
    assert_eq!((&page["keys"], &page["count"]), (&json!(["b", "c"]), &json!(3)));
    assert_eq!(get("list?path=w/none").await.body(200), json!({"exists": false, "type": "null"}));
    assert_eq!(get("slice?path=w/log&limit=5").await.body(200)["values"], json!(["first"]));
    assert!(get("inspect?path=w/orders&budget=200&compact=true").await.body(200)["result"].is_string());
    assert_eq!(get("count?path=w/orders").await.body(200), json!({"exists": true, "count": 3}));
    let groups = get("aggregate?path=w/orders&groupBy=state").await.body(200);
    assert_eq!(groups["groups"], json!({"open": {"count": 2}, "done": {"count": 1}}));
    get("slice").await.is_problem(400, "arguments of `v/ops/lattice/slice`");
    get("read?path=w/a&depth=2").await.is_problem(400, "depth");
    get("list?path=w/a&limit=-1").await.is_problem(400, "query `limit`");
    get("read?path=w/a&path=w/b").await.is_problem(400, "more than once");
    get("write?path=w/a").await.is_problem(404, "expected one of read, list");
    assert_eq!(server.get("/api/v1/jobs").await.body(200)["total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_listed_under_all_their_names() {
    let server = Server::start().await;
    let all = server.get("/api/v1/operations").await.body(200);
    let names: Vec<_> = all.as_array().unwrap().iter().map(|op| op["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"v/ops/lattice/read") && names.contains(&"v/ops/covia/read"), "{names:?}");
    let one = server.get("/api/v1/operations/v/ops/covia/read").await.body(200);
    assert_eq!((&one["asset"], &one["readOnly"]), (&json!("v/ops/lattice/read"), &json!(true)));
    assert!(one["input"]["properties"]["path"].is_object());
    server.get("/api/v1/operations/agent/reqest").await.is_problem(404, "no operation");
    let group = server.get("/api/v1/adapters/agent/operations").await.body(200);
    assert!(group["v/ops/agent/request"]["operation"].is_object());
    server.get("/api/v1/adapters/none/operations").await.is_problem(404, "no operations `v/ops/none/…`");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_store_the_venue_is_alive_but_not_ready() {
    let Some(mut redis) = RedisServer::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let queue = EmbeddedStore::open(dir.path()).unwrap();
    let store = RedisStore::open(redis.options(ServerOrInjected::Server)).await.unwrap();
    let server = Server::over(store as Arc<dyn Store>, &queue).await;
    server.get("/readyz").await.body(200);
    redis.kill();
    let answer = server.get("/readyz").await;
    answer.is_problem(503, "not ready: ");
    assert_eq!(answer.header("retry-after"), "1");
    server.get("/livez").await.body(200);
    let answer = server.get("/api/v1/jobs").await;
    answer.is_problem(503, "is unavailable");
    assert_eq!(answer.header("retry-after"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_store_is_over_when_it_is_back() {
    let Some(mut redis) = RedisServer::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let queue = EmbeddedStore::open(dir.path()).unwrap();
    let mut options = redis.options(ServerOrInjected::Server);
    options.connections = 8;
    let server = Server::over(RedisStore::open(options).await.unwrap() as Arc<dyn Store>, &queue).await;
    for _ in 0..20 {
        server.get("/api/v1/jobs").await.body(200);
    }
    redis.kill();
    assert!(redis.start_again());
    for n in 0..10 {
        server.get("/api/v1/jobs").await.body(200);
        server.run("lattice/write", json!({"path": format!("w/x/{n}"), "value": n})).await;
    }
    assert_eq!(server.run("lattice/count", json!({"path": "w/x"})).await["count"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_has_every_key_that_a_submission_takes() {
    let server = Server::start().await;
    server.echo_agent("clerk").await;
    let wrong = server.post("/api/v1/agents/clerk/tasks", json!({"zzz": 1})).await.body(400);
    let (_, expected) = wrong["detail"].as_str().unwrap().split_once("known are").unwrap();
    let mut taken: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    taken.sort_unstable();
    let described = server.get("/api/v1/openapi.json").await.body(200);
    let described = described["components"]["schemas"]["Submission"]["properties"].as_object().unwrap();
    let mut described: Vec<_> = described.keys().map(String::as_str).collect();
    described.sort_unstable();
    assert_eq!(described, taken);
}
