//! `/livez`, `/readyz`, `/metrics`, `/work`, of the API and of a worker without one.

use super::Api;
use super::metrics_format::MetricsFormat;
use super::problem::Problem;
use crate::domain::wait::WaitReason;
use crate::venue::registry;
use crate::venue::venue_owner;
use crate::venue::workload::WorkError;
use crate::view::audit::{LivenessView, ReadinessView, WorkView};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::time::Duration;

/// Time limit of the store's answer.
const STORE_TIME_LIMIT: Duration = Duration::from_secs(1);

/// Time limit of the counts of store and queue.
const COUNTS_TIME_LIMIT: Duration = Duration::from_secs(3);

/// Paths for supervisors, which are answered even when no connection is free.
const PATHS: [&str; 4] = ["/livez", "/readyz", "/metrics", "/work"];

/// Whether a path is one of health or metrics.
pub(super) fn has_route(path: &str) -> bool {
    PATHS.contains(&path)
}

/// Makes the routes of a worker. They have no guard: supervisors call them under any name and address, and they contain
/// nothing about owners.
pub(super) fn router(api: Api) -> Router {
    let routes = Router::new().route("/livez", get(livez)).route("/readyz", get(worker_readyz));
    routes.route("/metrics", get(metrics)).route("/work", get(work)).fallback(not_found).with_state(api)
}

async fn not_found(method: Method, uri: Uri) -> Problem {
    let path = uri.path();
    Problem::not_found(format!("no route `{method} {path}`: a worker has `/livez`, `/readyz`, `/metrics` and `/work`"))
}

/// `GET /livez`: answers 200 while the process serves.
pub(super) async fn livez() -> Response {
    axum::Json(LivenessView { status: "live".to_owned() }).into_response()
}

/// `GET /readyz`: answers 200 if work can be accepted, else what is missing.
pub(super) async fn readyz(State(api): State<Api>) -> Result<Response, Problem> {
    let missing = |what: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, what).retry_after(1);
    if api.options.shutdown_begun.is_cancelled() || api.closing.is_cancelled() {
        return Err(missing("not ready: the process shuts down".into()));
    }
    let (owner, keys) = (venue_owner(), ["key".to_owned()]);
    let read = api.venue.store.read(&owner, &keys);
    match tokio::time::timeout(STORE_TIME_LIMIT, read).await {
        Ok(Ok(_)) if api.venue.store_fill().await.is_full() => {
            Err(missing("not ready: the store takes no writes; `trellis doctor` says why".into()))
        }
        Ok(Ok(_)) => match no_worker_reason(&api).await {
            Some(reason) => Err(missing(format!("not ready: {reason}; what is submitted waits for a worker"))),
            None => Ok(axum::Json(readiness(&api)).into_response()),
        },
        Ok(Err(error)) => Err(missing(format!("not ready: {error}"))),
        Err(_) => Err(missing(format!("not ready: the store didn't answer within {} s", STORE_TIME_LIMIT.as_secs()))),
    }
}

/// Returns the answer of a process that takes work; while the queue is away it takes work that waits.
fn readiness(api: &Api) -> ReadinessView {
    ReadinessView::new(api.venue.bus.outage().map(|since| WaitReason::QueueAway { since }.to_string()))
}

/// Returns why no worker would run what is accepted here; `None` also if the registry can't be read in time.
async fn no_worker_reason(api: &Api) -> Option<String> {
    if !api.options.needs_worker {
        return None;
    }
    let fleet = tokio::time::timeout(STORE_TIME_LIMIT, registry::fleet_state(&api.venue)).await.ok()?.ok()?;
    Some(fleet.no_worker()?.to_string())
}

/// `GET /readyz` of a worker: also checks the connection to the queue.
async fn worker_readyz(state: State<Api>) -> Result<Response, Problem> {
    if let Some(since) = state.venue.bus.outage() {
        let text = format!("not ready: no connection to the queue since {}", since.rfc3339());
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, text);
        return Err(problem.retry_after(1));
    }
    readyz(state).await
}

/// `GET /metrics`: returns all metrics for Prometheus, in the text format that `Accept` asks for.
pub(super) async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Response {
    api.venue.store_fill().await;
    if let Err(error) = measure_work(&api).await {
        tracing::debug!("what waits isn't counted: {error}");
    }
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = MetricsFormat::choose(accepted.unwrap_or_default());
    let body = match format {
        MetricsFormat::Classic => api.venue.metrics.encode(),
        MetricsFormat::OpenMetrics => api.venue.metrics.encode_openmetrics(),
    };
    ([(header::CONTENT_TYPE, format.media_type()), (header::VARY, "accept")], body).into_response()
}

/// `GET /work`: returns counts of waiting and running work in the venue, for autoscalers.
pub(super) async fn work(State(api): State<Api>) -> Result<Response, Problem> {
    let unknown = |reason| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("not counted: {reason}"));
    Ok(axum::Json(measure_work(&api).await.map_err(unknown)?).into_response())
}

/// Reason why work isn't counted.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkCountError {
    /// The store or the queue reports an error.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The store or the queue doesn't answer in time.
    #[error("store and queue didn't answer within {} s", .limit.as_secs())]
    TimedOut { limit: Duration },
}

/// Returns counts of waiting and running work in the venue.
pub(super) async fn measure_work(api: &Api) -> Result<WorkView, WorkCountError> {
    match tokio::time::timeout(COUNTS_TIME_LIMIT, api.venue.measure_work()).await {
        Ok(measured) => Ok(measured?),
        Err(_) => Err(WorkCountError::TimedOut { limit: COUNTS_TIME_LIMIT }),
    }
}
