//! An API without a worker of its own says whether one lives.

use crate::support::http::Server;
use serde_json::json;
use trellis::domain::worker_registry::WorkerRecord;
use trellis::http::HttpOptions;
use trellis::venue::registry;

#[tokio::test]
async fn an_api_that_runs_no_turns_is_ready_while_a_worker_lives() {
    let server = Server::limited(|options| HttpOptions { needs_worker: true, ..options }).await;
    server.get("/readyz").await.is_problem(503, "not ready: no worker runs; what is submitted waits for a worker");
    let now = server.venue.now();
    let me = json!({
        "name": "w-1", "host": "h", "version": "1", "format": 1, "slots": 16, "busy": 0, "since": now, "seen": now,
    });
    let me: WorkerRecord = serde_json::from_value(me).unwrap();
    registry::register(&server.venue, &me).await.unwrap();
    assert_eq!(server.get("/readyz").await.body(200), json!({"status": "ready"}));
    registry::unregister(&server.venue, &me).await.unwrap();
    server.get("/readyz").await.is_problem(503, "no worker runs");
}
