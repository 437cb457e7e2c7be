//! The HTTP API: Covia's routes and shapes (`interfaces.md`), submissions, live jobs, health.

mod agents;
mod approvals;
mod assets;
mod body;
pub(crate) mod catalog;
mod connections;
mod describe;
mod extract;
mod guard;
mod health;
mod holding;
mod jobs;
mod lane;
mod listen;
mod load;
mod operate;
mod problem;
mod refused;
mod route;
mod routes;
mod runs;
mod seat;
mod secrets;
mod sse;
mod turns;

pub use connections::Room;

use crate::domain::limits::OPERATION_TIME;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::census::OwnerCensus;
use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use lane::Lanes;
use load::Scales;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How the API behaves.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Longest request body, in bytes.
    pub body_limit: usize,
    /// The address that `status` and the DID document name, e.g. `http://127.0.0.1:8420`.
    pub url: String,
    /// Memory that requests in work may take together, as it is estimated, in bytes.
    pub memory: u64,
    /// How callers are recognised.
    pub auth: Arc<Auth>,
    /// How many connections there may be.
    pub room: Room,
    /// Longest time for the header of a request to arrive.
    pub header_time: Duration,
    /// Longest time for a body to arrive.
    pub body_time: Duration,
    /// How long a connection without a request stays open.
    pub idle_time: Duration,
    /// How long the other side may take nothing of an answer.
    pub stall_time: Duration,
    /// Longest time of one request; streams may last longer.
    pub request_time: Duration,
    /// How long running requests may go on after a shutdown has begun.
    pub drain: Duration,
    /// Time between two comments on a quiet stream, so that proxies keep it open.
    pub heartbeat: Duration,
    /// Cancelled when the process is told to end: requests are still taken, and `/readyz` says that soon they won't be.
    pub leaving: CancellationToken,
    /// The process runs no turns itself: it is ready only while a worker lives elsewhere.
    pub needs_worker: bool,
}

impl HttpOptions {
    /// The times of the design: an operation's own limit comes before the request's.
    pub fn new(url: impl Into<String>, body_limit: usize) -> Self {
        Self {
            body_limit,
            url: url.into(),
            memory: 256 << 20,
            auth: Arc::new(Auth::none()),
            room: Room::default(),
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            idle_time: Duration::from_mins(2),
            stall_time: Duration::from_secs(30),
            request_time: OPERATION_TIME + Duration::from_secs(10),
            drain: Duration::from_secs(3),
            heartbeat: Duration::from_secs(15),
            leaving: CancellationToken::new(),
            needs_worker: false,
        }
    }
}

/// What every handler gets.
#[derive(Clone)]
struct Api(Arc<Shared>);

struct Shared {
    venue: Arc<Venue>,
    options: HttpOptions,
    scales: Arc<Scales>,
    lanes: Lanes,
    /// Among whom connections and memory are shared.
    census: OwnerCensus,
    /// Cancelled when the shutdown begins: streams and waits end.
    closing: CancellationToken,
}

impl Deref for Api {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Serves until `shutdown` resolves and the running requests have ended, at most
/// [`HttpOptions::drain`] and a second later. The listener is bound by the caller, who knows its address.
pub async fn serve(
    listener: TcpListener,
    venue: Arc<Venue>,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    // Tokens may be made for the address, also before anybody has asked for it.
    let did = options.auth.did(catalog::did(&options.url));
    venue.catalog.add_own_names([did, options.url.trim_end_matches('/').to_owned(), venue.name.clone()]);
    run(listener, venue, options, routes::router, shutdown).await;
}

/// [`serve`] for a worker: its health and its metrics, to everybody who can connect, and nothing else.
pub async fn serve_health(
    listener: TcpListener,
    venue: Arc<Venue>,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    run(listener, venue, options, health::router, shutdown).await;
}

/// On every answer: by it the command line knows that a venue answers.
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
    let (scales, lanes) = (Scales::new(options.memory), Lanes::new(&venue.metrics));
    let census = OwnerCensus::default();
    let api = Api(Arc::new(Shared { venue, options, scales, lanes, census, closing: closing.clone() }));
    let signal = async {
        shutdown.await;
        closing.cancel();
    };
    let router = router(api.clone()).layer(map_response(tell_version));
    let census = closing.run_until_cancelled(api.census.follow(&api.venue));
    tokio::join!(listen::listen(listener, api.clone(), router), census, signal);
}
