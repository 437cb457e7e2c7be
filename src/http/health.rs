//! `/livez`, `/readyz`, `/metrics`.

use super::Api;
use super::problem::Problem;
use crate::venue::venue_owner;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::time::Duration;

/// Time within which the store must answer.
const READY: Duration = Duration::from_secs(1);

/// `GET /livez`: the process serves.
pub(super) async fn livez() -> Response {
    axum::Json(json!({"status": "live"})).into_response()
}

/// `GET /readyz`: work can be accepted; else what is missing.
pub(super) async fn readyz(State(api): State<Api>) -> Result<Response, Problem> {
    let missing = |what: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, what).retry_after(1);
    if api.closing.is_cancelled() {
        return Err(missing("not ready: the venue shuts down".into()));
    }
    let (owner, keys) = (venue_owner(), ["key".to_owned()]);
    let read = api.venue.store.read(&owner, &keys);
    match tokio::time::timeout(READY, read).await {
        Ok(Ok(_)) => Ok(axum::Json(json!({"status": "ready"})).into_response()),
        Ok(Err(error)) => Err(missing(format!("not ready: {error}"))),
        Err(_) => Err(missing(format!("not ready: the store didn't answer within {} s", READY.as_secs()))),
    }
}

/// `GET /metrics`, for Prometheus.
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    api.venue.fill().await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], api.venue.metrics.encode()).into_response()
}
