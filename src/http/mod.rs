//! The HTTP API: Covia's routes and JSON shapes, submissions, live text of jobs, health.

mod agents;
mod approvals;
mod assets;
mod body;
pub(crate) mod catalog;
mod connection_limits;
mod describe;
mod extract;
mod guard;
mod health;
mod holding_body;
mod jobs;
mod lane;
mod listen;
mod load;
mod operate;
mod problem;
mod refusals;
mod route;
mod routes;
mod runs;
mod connection;
mod secrets;
mod sse;
mod turns;

pub use connection_limits::ConnectionLimits;

use crate::domain::limits::OPERATION_TIME;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::census::OwnerCensus;
use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use lane::RequestLanes;
use load::MemoryLimiter;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Settings of the HTTP server.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Longest request body, in bytes.
    pub body_limit: usize,
    /// Public address in `status` and the DID document, e.g. `http://127.0.0.1:8420`.
    pub url: String,
    /// Memory that requests at work may take together, as estimated, in bytes.
    pub memory: u64,
    /// Verification of callers.
    pub auth: Arc<Auth>,
    /// Limits of open connections.
    pub connection_limits: ConnectionLimits,
    /// Longest time for the header of a request to arrive.
    pub header_time: Duration,
    /// Longest time for a body to arrive.
    pub body_time: Duration,
    /// Longest time that a connection without a request stays open.
    pub idle_time: Duration,
    /// Longest time that a client may read nothing of an answer.
    pub stall_time: Duration,
    /// Longest time of one request; streams may last longer.
    pub request_time: Duration,
    /// Time that running requests have after a shutdown has begun.
    pub drain: Duration,
    /// Time between two comments on a quiet stream, which keep it open through proxies.
    pub heartbeat: Duration,
    /// Cancelled when the process is about to end: requests are still accepted, and `/readyz` reports the shutdown.
    pub shutdown_begun: CancellationToken,
    /// The process runs no turns: it is ready only while a worker is alive elsewhere.
    pub needs_worker: bool,
}

impl HttpOptions {
    /// Makes the default settings; the time limit of an operation ends before that of its request.
    pub fn new(url: impl Into<String>, body_limit: usize) -> Self {
        Self {
            body_limit,
            url: url.into(),
            memory: 256 << 20,
            auth: Arc::new(Auth::none()),
            connection_limits: ConnectionLimits::default(),
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            idle_time: Duration::from_mins(2),
            stall_time: Duration::from_secs(30),
            request_time: OPERATION_TIME + Duration::from_secs(10),
            drain: Duration::from_secs(3),
            heartbeat: Duration::from_secs(15),
            shutdown_begun: CancellationToken::new(),
            needs_worker: false,
        }
    }
}

/// State shared by all handlers.
#[derive(Clone)]
struct Api(Arc<ApiState>);

struct ApiState {
    venue: Arc<Venue>,
    options: HttpOptions,
    scales: Arc<MemoryLimiter>,
    lanes: RequestLanes,
    /// Owners among whom connections and memory are shared.
    census: OwnerCensus,
    /// Cancelled when the shutdown begins; ends streams and waits.
    closing: CancellationToken,
}

impl Deref for Api {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0
    }
}

/// Serves until `shutdown` resolves and the running requests have ended, at most [`HttpOptions::drain`] and a second
/// later. The caller binds the listener, because it needs its address.
pub async fn serve(
    listener: TcpListener,
    venue: Arc<Venue>,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    // Tokens may have the address as audience, before the first request as well.
    let did = options.auth.audience_did(catalog::did(&options.url));
    venue.catalog.add_own_names([did, options.url.trim_end_matches('/').to_owned(), venue.name.clone()]);
    run(listener, venue, options, routes::router, shutdown).await;
}

/// Serves the health and metrics of a worker, without authentication, and nothing else; see [`serve`].
pub async fn serve_health(
    listener: TcpListener,
    venue: Arc<Venue>,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    run(listener, venue, options, health::router, shutdown).await;
}

/// Header of every answer, by which the command line recognises a venue.
pub(crate) const VERSION_HEADER: HeaderName = HeaderName::from_static("x-trellis-version");

async fn tell_version(mut response: Response) -> Response {
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

async fn run(
    listener: TcpListener,
    venue: Arc<Venue>,
    options: HttpOptions,
    router: impl FnOnce(Api) -> Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let closing = CancellationToken::new();
    let (scales, lanes) = (MemoryLimiter::new(options.memory), RequestLanes::new(&venue.metrics));
    let census = OwnerCensus::default();
    let api = Api(Arc::new(ApiState { venue, options, scales, lanes, census, closing: closing.clone() }));
    let signal = async {
        shutdown.await;
        closing.cancel();
    };
    let router = router(api.clone()).layer(map_response(tell_version));
    let census = closing.run_until_cancelled(api.census.follow_store(&api.venue));
    tokio::join!(listen::listen(listener, api.clone(), router), census, signal);
}
