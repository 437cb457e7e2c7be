//! Accepts connections and serves each within its limits, until the venue shuts down.

use super::connection::{AnswerGuard, ConnectionHandle, ConnectionStream, ConnectionTable};
use super::connection_limits::ConnectionDecision;
use super::holding_body::HoldingBody;
use super::problem::Problem;
use super::refusals::RefusedConnections;
use super::{Api, HttpOptions, body, health};
use crate::domain::limits::{HTTP_HEADER_BYTES, HTTP_REFUSAL_TIME};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause after the system refused a connection, e.g. for want of file descriptors.
const REFUSED_CONNECTION_PAUSE: Duration = Duration::from_millis(100);
/// Time that connections get beyond the drain of requests.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// Serves until the venue shuts down and its connections have ended, or their time is over.
pub(super) async fn listen(listener: TcpListener, api: Api, router: Router) {
    let table = ConnectionTable::new(api.options.connection_limits.clone());
    let refused = Arc::new(RefusedConnections::default());
    let (tasks, all) = (TaskTracker::new(), CancellationToken::new());
    loop {
        let (stream, from) = tokio::select! {
            () = api.closing.cancelled() => break,
            got = listener.accept() => match got {
                Ok(got) => got,
                Err(error) => {
                    pause_after_error(&error).await;
                    continue;
                }
            },
        };
        // A piece of a stream is a small packet, which must not wait for the next one.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY not set");
        }
        match table.add_connection(from.ip(), &all) {
            Ok(handle) => {
                tasks.spawn(serve_connection(stream, handle, all.clone(), api.clone(), router.clone()));
            }
            Err(why) => {
                tracing::debug!(%from, ?why, "connection refused");
                api.venue.metrics.http_refused.inc();
                let (refused, limit, router) = (Arc::clone(&refused), api.options.body_limit, router.clone());
                tasks.spawn(async move {
                    let (_place, lost) = refused.enter();
                    // If the next one takes its place, the connection is closed without an answer.
                    lost.run_until_cancelled(refuse(stream, why, limit, router)).await;
                });
            }
        }
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(api.options.drain + CLOSING_TIME, tasks.wait()).await.is_err() {
        tracing::debug!("closing {} connections that don't end", tasks.len());
        all.cancel();
        tasks.wait().await;
    }
}

/// Pauses after an error that may last; an aborted connection says nothing about the next.
async fn pause_after_error(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "no connection can be taken");
        tokio::time::sleep(REFUSED_CONNECTION_PAUSE).await;
    }
}

/// Serves one connection from its first byte to its end.
async fn serve_connection(
    stream: TcpStream,
    handle: Arc<ConnectionHandle>,
    all: CancellationToken,
    api: Api,
    router: Router,
) {
    let HttpOptions { header_time, idle_time, stall_time, .. } = api.options;
    let (close, closing, leaving) = (handle.close.clone(), api.closing.clone(), api.options.shutdown_begun.clone());
    let api_service = TowerToHyperService::new(router);
    let of_requests = Arc::clone(&handle);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let handle = Arc::clone(&of_requests);
        handle.await_body();
        request.extensions_mut().insert(Arc::clone(&handle));
        let answered = api_service.call(request);
        let leaving = leaving.clone();
        async move {
            let mut response = answered.await?;
            if leaving.is_cancelled() {
                // The caller's next request should go to another process.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| HoldingBody::body(body, AnswerGuard(handle))))
        }
    });
    let wire = TokioIo::new(ConnectionStream::new(stream, Arc::clone(&handle), stall_time));
    let mut connection = pin!(http().serve_connection(wire, service));
    let mut overdue = pin!(handle.wait_until_overdue(header_time, idle_time));
    let (mut told, mut evicted) = (false, false);
    loop {
        tokio::select! {
            // First: an evicted connection must start no request.
            biased;
            () = all.cancelled() => return,
            () = close.cancelled(), if !evicted => {
                if !handle.is_working() {
                    return;
                }
                // The request came at the same moment: it is answered.
                (told, evicted) = (true, true);
                connection.as_mut().graceful_shutdown();
            }
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = overdue.as_mut() => return,
            () = closing.cancelled(), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Configures HTTP/1.1. [`ConnectionHandle`] limits the times of headers, because it tells an idle connection from one
/// that has begun a header.
fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(HTTP_HEADER_BYTES);
    builder
}

/// Answers that there is no connection free, after reading the request. Health and metrics are answered as usual, so
/// that no supervisor restarts a busy process.
async fn refuse(stream: TcpStream, why: ConnectionDecision, limit: usize, router: Router) {
    let api_service = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let answered = health::has_route(request.uri().path()).then(|| api_service.clone());
        async move {
            let mut response = if let Some(api_service) = answered {
                api_service.call(request).await?
            } else {
                body::discard(Body::new(request.into_body()), limit).await;
                refusal(why)
            };
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http();
    builder.keep_alive(false);
    let _ = tokio::time::timeout(HTTP_REFUSAL_TIME, builder.serve_connection(TokioIo::new(stream), service)).await;
}

fn refusal(why: ConnectionDecision) -> Response<Body> {
    let (status, text) = match why {
        ConnectionDecision::FullOfAddress => (
            StatusCode::TOO_MANY_REQUESTS,
            "too many requests are open from this address (`http.connections_per_address`); use fewer connections, or name a reverse proxy in `http.proxies`",
        ),
        ConnectionDecision::Full | ConnectionDecision::Open { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "as many requests are open as the venue takes (`http.connections`); try again in a moment",
        ),
    };
    Problem::new(status, text).retry_after(1).into_response()
}
