//! Settings of the server, and the state that all handlers share.

use super::connection_limits::ConnectionLimits;
use super::lane::RequestLanes;
use super::load::MemoryLimiter;
use super::mcp_extension::McpExtension;
use crate::domain::limits::OPERATION_TIME;
use crate::venue::Venue;
use crate::venue::auth::Auth;
use crate::venue::census::OwnerCensus;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
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
    /// Address under which clients know the API, if it is another one than `url`: `http.public`.
    pub public: Option<String>,
    /// Servers that issue tokens for the API, as its metadata names them.
    pub authorization_servers: Vec<String>,
    /// Tools and resources of `/mcp` besides the venue's.
    pub mcp_extension: Option<Arc<dyn McpExtension>>,
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
            public: None,
            authorization_servers: Vec::new(),
            mcp_extension: None,
        }
    }

    /// Returns the address under which clients know the API, without a slash at its end.
    pub(super) fn public_url(&self) -> &str {
        self.public.as_deref().unwrap_or(&self.url).trim_end_matches('/')
    }
}

/// State shared by all handlers.
#[derive(Clone)]
pub(crate) struct Api(Arc<ApiState>);

/// The venue, the settings, and the limits that all requests share.
pub(crate) struct ApiState {
    pub(super) venue: Arc<Venue>,
    pub(super) options: HttpOptions,
    pub(super) scales: Arc<MemoryLimiter>,
    pub(super) lanes: RequestLanes,
    /// Owners among whom connections and memory are shared.
    pub(super) census: OwnerCensus,
    /// Cancelled when the shutdown begins; ends streams and waits.
    pub(super) closing: CancellationToken,
}

impl Api {
    /// Makes the state of a server that hasn't answered any request; `closing` is cancelled when its shutdown begins.
    pub(super) fn new(venue: Arc<Venue>, options: HttpOptions, closing: CancellationToken) -> Self {
        let (scales, lanes) = (MemoryLimiter::new(options.memory), RequestLanes::new(&venue.metrics));
        let census = OwnerCensus::default();
        Self(Arc::new(ApiState { venue, options, scales, lanes, census, closing }))
    }
}

impl Deref for Api {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0
    }
}
