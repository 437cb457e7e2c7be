//! The HTTP API: Covia's routes and shapes (`interfaces.md`), submissions, live jobs, health.

mod agents;
mod approvals;
mod assets;
pub(crate) mod catalog;
mod extract;
mod guard;
mod health;
mod jobs;
mod life;
mod operate;
mod problem;
mod routes;
mod secrets;
mod sse;
mod timers;
mod turns;

use crate::auth::Auth;
use crate::domain::limits::OPERATION_TIME;
use crate::venue::Venue;
use axum::serve::ListenerExt;
use std::future::Future;
use std::io;
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
    /// How callers are recognised.
    pub auth: Arc<Auth>,
    /// Longest time of one request; streams may last longer.
    pub request_time: Duration,
    /// How long running requests may go on after a shutdown has begun.
    pub drain: Duration,
    /// Time between two comments on a quiet stream, so that proxies keep it open.
    pub heartbeat: Duration,
}

impl HttpOptions {
    /// The times of the design: an operation's own limit comes before the request's.
    pub fn new(url: impl Into<String>, body_limit: usize) -> Self {
        Self {
            body_limit,
            url: url.into(),
            auth: Arc::new(Auth::none()),
            request_time: OPERATION_TIME + Duration::from_secs(10),
            drain: Duration::from_secs(3),
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// What every handler gets.
#[derive(Clone)]
struct Api(Arc<Shared>);

struct Shared {
    venue: Arc<Venue>,
    options: HttpOptions,
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
/// [`HttpOptions::drain`] later. The listener is bound by the caller, who knows its address.
pub async fn serve(
    listener: TcpListener,
    venue: Arc<Venue>,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let closing = CancellationToken::new();
    // Tokens may be made for the address, also before anybody has asked for it.
    options.auth.did(catalog::did(&options.url));
    let api = Api(Arc::new(Shared { venue, options, closing: closing.clone() }));
    let listener = listener.tap_io(|connection| {
        // A token of a stream is a small packet that must not wait for the next one.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY not set");
        }
    });
    let signal = async move {
        shutdown.await;
        closing.cancel();
    };
    axum::serve(listener, routes::router(api)).with_graceful_shutdown(signal).await
}
