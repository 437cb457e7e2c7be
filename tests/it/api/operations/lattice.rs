//! What `lattice/*` does beyond one path: several, and levels below one.

use super::{agent, call, refused};
use crate::support::http::Server;
use serde_json::json;
use trellis::domain::agent::tool::DEFAULT_TOOLS;

#[tokio::test(flavor = "multi_thread")]
async fn every_default_tool_is_in_the_catalog() {
    let server = Server::start().await;
    let catalog = server.venue.catalog.compiled_view();
    for path in DEFAULT_TOOLS {
        assert_eq!(catalog.resolve(path).map(|found| &*found.spec.path), Some(path));
    }
    let lattice = ["read", "write", "delete", "append", "list", "slice", "inspect", "copy", "count", "aggregate"];
    let aliases = lattice.iter().map(|verb| (format!("v/ops/covia/{verb}"), format!("v/ops/lattice/{verb}")));
    for (alias, path) in aliases.chain([("v/ops/grid/run".into(), "v/ops/job/run".into())]) {
        assert_eq!(catalog.resolve(&alias).map(|found| &*found.spec.path), Some(path.as_str()), "{alias}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_paths_are_read_and_inspected_at_once() {
    let server = Server::start().await;
    server.run("lattice/write", json!({"path": "w/a/x", "value": {"n": 1}})).await;
    let read = server.run("covia/read", json!({"paths": ["w/a/x", ["w", "b"]]})).await;
    assert_eq!(read["values"]["w/a/x"]["value"], json!({"n": 1}));
    assert_eq!(read["values"]["w/b"], json!({"exists": false}));
    let small = server.run("covia/read", json!({"paths": ["w/a/x"], "maxSize": 2})).await;
    assert_eq!(small["values"]["w/a/x"]["truncated"], true);
    let shown = server.run("covia/inspect", json!({"paths": ["w/a/x", "v/info/name"], "budget": 200})).await;
    assert!(shown["result"]["w/a/x"].as_str().unwrap().contains("n: 1"), "{shown}");
    let many = vec!["w/a"; 101];
    refused(&server, "lattice/read", json!({"paths": many}), 400, "`/paths`").await;
    let reader = agent("crud/read", "w/a");
    let error = call(&server, &reader, "lattice/read", json!({"paths": ["w/a/x", "w/b"]})).await.unwrap_err();
    assert!(error.contains("requires crud/read on w/b"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_counted_at_a_depth_and_by_a_field() {
    let server = Server::start().await;
    let regions = json!({
        "north": {"1": {"customer": {"country": "de"}}, "2": {"customer": {"country": "at"}}},
        "south": {"3": {"customer": {"country": "de"}}, "4": {}}
    });
    server.run("lattice/write", json!({"path": "w/orders", "value": regions})).await;
    let count = async |depth: u32| {
        server.run("covia/count", json!({"path": "w/orders", "depth": depth})).await["count"].clone()
    };
    assert_eq!((count(1).await, count(2).await, count(3).await), (json!(2), json!(4), json!(3)));
    let by = json!({"path": "w/orders", "depth": 2, "groupBy": "customer/country"});
    let groups = server.run("covia/aggregate", by).await;
    assert_eq!(groups["count"], 4);
    assert_eq!(groups["groups"], json!({"de": {"count": 2}, "at": {"count": 1}, "null": {"count": 1}}));
    let got = server.get("/api/v1/values/count?path=w/orders&depth=2").await.body(200);
    assert_eq!(got["count"], 4);
    assert_eq!(server.run("covia/count", json!({"path": "w/no", "depth": 2})).await, json!({"exists": false}));
    refused(&server, "covia/count", json!({"path": "w/orders", "depth": 0}), 400, "`/depth`").await;
}
