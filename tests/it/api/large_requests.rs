//! Requests over HTTP that handle much data run apart from all others, whatever makes them large.

use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::asset::Draft;
use trellis::process::clock::Clock;
use trellis::venue::assets;

const RULES: &str = r#"
[[rule]]
then = { text = "done" }
"#;

/// Bytes of one entry of a large value: a few of them make a request large.
const ENTRY: usize = 30_000;

on_both! {
    a_request_is_large_by_what_it_brings_or_reads
    one_owners_large_requests_leave_room_for_small_ones
}

async fn site(on: On) -> Option<(TestVenue, tempfile::TempDir, Server)> {
    let (venue, dir) = on.venue(RULES, Clock::system()).await?;
    for n in 0..4 {
        venue.write(&format!("w/big/{n}"), json!("x".repeat(ENTRY))).await;
    }
    let api = Server::of(Arc::clone(&venue.venue)).await;
    Some((venue, dir, api))
}

async fn run(api: &Server, owner: &str, operation: &str, input: Value) -> u16 {
    let body = json!({"operation": operation, "input": input}).to_string();
    let headers = [("x-trellis-owner", owner)];
    api.send(Method::POST, "/api/v1/run", &headers, body).await.status.as_u16()
}

async fn a_request_is_large_by_what_it_brings_or_reads(on: On) {
    let Some((venue, _dir, api)) = site(on).await else { return };
    let draft = Draft::new(vec![b'x'; 4 * ENTRY], "text/plain", None, None, venue.venue.now()).unwrap();
    let (asset, _, _) = assets::put(&venue.venue, &venue.owner, &draft).await.unwrap();
    let content = format!("/api/v1/assets/{asset}/content");
    let metrics = &venue.venue.metrics;
    let (read, large) = ("v/ops/lattice/read", "x".repeat(3 * ENTRY));
    for (operation, input, is_large) in [
        (read, json!({"path": "w/none"}), false),
        (read, json!({"path": "w/big/1"}), false),
        (read, json!({"path": "w/big"}), true),
        // What the answer leaves out was read all the same.
        (read, json!({"path": "w/big", "maxSize": 10}), true),
        ("v/ops/lattice/write", json!({"path": "w/other", "value": "small"}), false),
        ("v/ops/lattice/write", json!({"path": "w/other", "value": large}), true),
        ("v/ops/json/merge", json!({"values": [large]}), true),
    ] {
        let before = metrics.http_large.get();
        assert_eq!(run(&api, "local/me", operation, input).await, 200, "{operation}");
        assert_eq!(metrics.http_large.get() - before, u64::from(is_large), "{operation}");
    }
    let before = metrics.http_large.get();
    let got = api.client.get(format!("{}{content}", api.url)).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(got.len(), 4 * ENTRY);
    assert_eq!(metrics.http_large.get(), before + 1, "the content of an asset");
}

async fn one_owners_large_requests_leave_room_for_small_ones(on: On) {
    let Some((venue, _dir, api)) = site(on).await else { return };
    let before = venue.venue.metrics.http_large.get();
    let loud = (0..16).map(|_| run(&api, "local/me", "v/ops/lattice/read", json!({"path": "w/big"})));
    let others = (0..16).map(|n| {
        let (api, owner) = (&api, format!("local/o{n}"));
        async move { run(api, &owner, "v/ops/lattice/write", json!({"path": "w/a", "value": n})).await }
    });
    let (loud, others) = tokio::join!(futures::future::join_all(loud), futures::future::join_all(others));
    assert!(loud.iter().chain(&others).all(|status| *status == 200), "{loud:?} {others:?}");
    assert_eq!(venue.venue.metrics.http_large.get() - before, 16);
}
