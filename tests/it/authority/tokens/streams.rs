//! An open event stream ends when the token that opened it counts no more.

use super::{Site, token};
use crate::support::http::Server;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::time::Duration;
use trellis::process::clock::Clock;

const LIMIT: Duration = Duration::from_mins(1);

async fn open(server: &Server, job: &str, token: &str) -> Response {
    let url = format!("{}/api/v1/jobs/{job}/sse", server.url);
    let mut stream = server.client.get(url).bearer_auth(token).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    // The first record.
    stream.chunk().await.unwrap().unwrap();
    stream
}

async fn ends(mut stream: Response) -> bool {
    let read = async { while stream.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(LIMIT, read).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_token() {
    let site = Site::new().await;
    let ann = |more: Value| token(&site.issuer, "acme/ann", &more);
    let (own, revoked, narrowed) = (ann(json!({})), ann(json!({"jti": "t-1"})), ann(json!({"jti": "t-2"})));
    let agent = json!({"model": {"provider": "scripted", "name": "echo"}});
    site.send(Method::PUT, "/api/v1/agents/echo", &own, None, &agent).await.body(201);
    // No worker runs: the job stays as it is.
    let task = site.send(Method::POST, "/api/v1/agents/echo/tasks", &own, None, &json!({"input": "x"})).await.body(202);
    let job = task["job"].as_str().unwrap();
    let short = ann(json!({"exp": Clock::system().now().0 / 1000 + 4}));
    let [whole, taken, expiring, path] = [
        open(&site.server, job, &own).await,
        open(&site.server, job, &revoked).await,
        open(&site.server, job, &short).await,
        open(&site.server, job, &narrowed).await,
    ];
    site.run("v/ops/policy/revoke", json!({"grant": "t-1"}), &own).await.body(200);
    assert!(ends(taken).await, "the one of a revoked token");
    site.run("v/ops/policy/revoke", json!({"grant": "t-2", "path": "j"}), &own).await.body(200);
    assert!(ends(path).await, "the one that may read no job any more");
    assert!(ends(expiring).await, "the one of a token that has ended");
    // The others go on to the job's end.
    site.send(Method::PUT, &format!("/api/v1/jobs/{job}/cancel"), &own, None, &Value::Null).await.body(200);
    let rest = whole.text().await.unwrap();
    assert!(rest.contains("CANCELLED"), "{rest}");
}
