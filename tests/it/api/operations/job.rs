//! `job/run`: another operation by its path, judged as that operation.

use super::{agent, call, refused};
use crate::support::http::Server;
use serde_json::{Value, json};
use trellis::venue::operation::{Effect, dispatch};

fn run(operation: &str, input: &Value) -> Value {
    json!({"operation": operation, "input": input})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_answers_with_the_output_of_what_it_runs() {
    let server = Server::start().await;
    let echo = server.run("v/ops/grid/run", run("test:echo", &json!({"a": 1}))).await;
    assert_eq!(echo, json!({"a": 1}));
    let written = run("v/ops/covia/write", &json!({"path": "w/x/y", "value": 7}));
    assert_eq!(server.run("job/run", written).await["written"], true);
    assert_eq!(server.run("job:run", run("lattice/list", &Value::Null)).await["type"], "map");
    refused(&server, "job/run", run("lattice/raed", &json!({})), 404, "no operation `lattice/raed`").await;
    refused(&server, "job/run", run("lattice/read", &json!({"pth": "w/x"})), 400, "`v/ops/lattice/read`").await;
    refused(&server, "job/run", json!({}), 400, "\"operation\" is a required property").await;
    refused(&server, "job/run", run("test/error", &json!({"message": "m"})), 500, "Operation failed: m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_needs_the_rights_of_its_operation() {
    let server = Server::start().await;
    let reader = agent("crud/read", "w/open");
    let read = |path: &str| run("v/ops/covia/read", &json!({"path": path}));
    assert_eq!(call(&server, &reader, "job/run", read("w/open/x")).await.unwrap(), json!({"exists": false}));
    let error = call(&server, &reader, "job/run", read("w/closed/x")).await.unwrap_err();
    assert!(error.starts_with("Capability denied: v/ops/covia/read requires crud/read on w/closed/x"), "{error}");
    let nested = run("grid/run", &run("lattice/write", &json!({"path": "w/open/x", "value": 1})));
    let error = call(&server, &reader, "v/ops/grid/run", nested).await.unwrap_err();
    assert!(error.starts_with("Capability denied: lattice/write requires crud/write"), "{error}");
    // Holding an ability for the wrapper's own name is holding nothing.
    let named = agent("*", "v/ops/job/run");
    assert!(call(&server, &named, "job/run", read("w/open/x")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_inside_runs_end_at_the_depth_limit() {
    let server = Server::start().await;
    let nested = |depth: usize| (0..depth).fold(run("test/echo", &json!(null)), |inner, _| run("job/run", &inner));
    assert_eq!(server.run("job/run", nested(4)).await, json!({}));
    refused(&server, "job/run", nested(5), 400, "nested more than 5 times").await;
    refused(&server, "job/run", nested(40), 400, "nested more than 5 times").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_the_effect_of_its_operation() {
    let server = Server::start().await;
    for (operation, effect) in [
        ("v/ops/covia/read", Effect::Read),
        ("v/ops/lattice/write", Effect::Buffered),
        ("v/ops/asset/store", Effect::Idempotent),
        ("v/ops/test/once", Effect::Once),
    ] {
        let input = match operation {
            "v/ops/covia/read" => json!({"path": "w/x"}),
            "v/ops/lattice/write" => json!({"path": "w/x/y", "value": 1}),
            _ => json!({}),
        };
        let nested = run("job/run", &run(operation, &input));
        let dispatch::ResolvedOperation { found, arguments, inner, .. } =
            dispatch::resolve_call(&server.venue.catalog.compiled_view(), "v/ops/grid/run", nested, false).unwrap();
        assert_eq!((found.spec.effect, arguments), (effect, input), "{operation}");
        assert_eq!(inner.as_deref(), Some(operation), "as it was written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_looked_at_under_all_its_names() {
    let server = Server::start().await;
    server.echo_agent("helper").await;
    let asked = run("agent/request", &json!({"agentId": "helper", "input": "x", "timeout": 0}));
    let id = server.run("grid:run", asked).await["job"].clone();
    for name in ["v/ops/grid/job-result", "grid:jobResult", "grid:jobStatus", "job/result"] {
        assert_eq!(server.run(name, json!({"id": id, "timeout": 1})).await["status"], "PENDING", "{name}");
    }
}
