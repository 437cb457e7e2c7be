//! The shop's service, which is slow, hangs and drops connections, and remembers each refund that it was asked for.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::stream;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Longer than any call waits.
const FOR_EVER: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
struct Counts {
    reads: HashMap<String, usize>,
    refunds: HashMap<String, usize>,
}

type Shared = Arc<Mutex<Counts>>;

/// The service. What it does with an order, the order's name says: `ok`, `slow`, `hang` or `drop`, and a number.
pub struct Shop {
    pub port: u16,
    counts: Shared,
    serving: JoinHandle<()>,
}

impl Shop {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = Shared::default();
        let pages = Router::new()
            .route("/orders/{order}", get(order))
            .route("/refunds", post(refund))
            .with_state(Arc::clone(&counts));
        let serving = tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
        Self { port, counts, serving }
    }

    /// How often a refund of this order was asked for.
    pub fn refunds(&self, order: &str) -> usize {
        self.counts.lock().unwrap().refunds.get(order).copied().unwrap_or(0)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn fault(order: &str) -> &str {
    order.split_once('-').map_or(order, |(fault, _)| fault)
}

/// Half an answer, then the connection ends.
fn half_answer() -> Response {
    let pieces = [Ok("{\"half\":"), Err(std::io::Error::other("the shop has gone"))];
    Body::from_stream(stream::iter(pieces)).into_response()
}

/// An order. Of one that drops the connection only the first request does so.
async fn order(State(counts): State<Shared>, Path(order): Path<String>) -> Response {
    let count = {
        let mut counts = counts.lock().unwrap();
        let count = counts.reads.entry(order.clone()).or_default();
        *count += 1;
        *count
    };
    match fault(&order) {
        "slow" => tokio::time::sleep(Duration::from_millis(700)).await,
        "drop" if count == 1 => return half_answer(),
        _ => {}
    }
    Json(json!({"data": {"order": {"id": order, "total": 12}}})).into_response()
}

/// A refund: it is made before the answer, whatever becomes of that.
async fn refund(State(counts): State<Shared>, Json(body): Json<Value>) -> Response {
    let Some(order) = body["order"].as_str() else { return StatusCode::BAD_REQUEST.into_response() };
    *counts.lock().unwrap().refunds.entry(order.to_owned()).or_default() += 1;
    match fault(order) {
        "slow" => tokio::time::sleep(Duration::from_millis(700)).await,
        "hang" => tokio::time::sleep(FOR_EVER).await,
        "drop" => return half_answer(),
        _ => {}
    }
    Json(json!({"refund": format!("re-{order}")})).into_response()
}
