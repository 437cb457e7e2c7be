//! Serves the API, or the health of a worker alone, until the shutdown.

use super::api::{Api, HttpOptions};
use super::{catalog, health, listen, router};
use crate::venue::Venue;
use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

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
    run(listener, venue, options, router::router, shutdown).await;
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
    let api = Api::new(venue, options, closing.clone());
    let signal = async {
        shutdown.await;
        closing.cancel();
    };
    let router = router(api.clone()).layer(map_response(tell_version));
    let census = closing.run_until_cancelled(api.census.follow_store(&api.venue));
    tokio::join!(listen::listen(listener, api.clone(), router), census, signal);
}
