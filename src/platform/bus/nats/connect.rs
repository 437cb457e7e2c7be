//! The connection: made with retries, its changes logged.

use super::super::error_chain;
use super::BusOpenError;
use super::options::{NatsOptions, PING_EVERY, TIMEOUT};
use crate::bus::rights::Rights;
use crate::config::advice::connection_advice;
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::process::retry::{AttemptFailure, retry};
use async_nats::rustls;
use async_nats::{Client, ConnectError, ConnectErrorKind, Event, ServerAddr};
use parking_lot::Mutex;
use std::{
    error::Error,
    future::Ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// Time of the loss of a connection; absent while there is one.
pub(super) type AwaySince = Arc<Mutex<Option<Millis>>>;

/// Returns the time on this machine.
pub(super) fn now() -> Millis {
    Clock::system().now()
}

/// Connects, with retries as the policy says.
pub(super) async fn connect(
    options: &NatsOptions,
    name: &str,
    link: watch::Sender<u64>,
    rights: &Arc<Rights>,
    away_since: &AwaySince,
) -> Result<Client, BusOpenError> {
    let failed = |reason: String| BusOpenError::Connect { bus: name.to_owned(), reason };
    let servers: Vec<ServerAddr> = options
        .url
        .split(',')
        .map(|url| url.trim().parse().map_err(|error: std::io::Error| failed(error.to_string())))
        .collect::<Result<_, _>>()?;
    let link = Arc::new(link);
    let attempt = || {
        let settings = options
            .files
            .settings(&servers)
            .name("trellis")
            .ping_interval(PING_EVERY)
            .request_timeout(Some(TIMEOUT))
            .event_callback(log_events(name.to_owned(), Arc::clone(&link), Arc::clone(rights), Arc::clone(away_since)));
        let servers = servers.clone();
        async move { settings.connect(servers).await.map_err(|error| with_advice(failure(&error, options), name)) }
    };
    retry(options.connect, &format!("NATS at `{name}`"), attempt).await.map_err(failed)
}

/// Adds to the reason of a failure what an operator can do about it.
fn with_advice(failure: AttemptFailure<String>, name: &str) -> AttemptFailure<String> {
    failure.map(|reason| format!("{reason}; {}", connection_advice(&reason, "bus.url", name)))
}

/// Converts an error: what is wrong, which setting is to blame, and whether a retry can help.
fn failure(error: &ConnectError, options: &NatsOptions) -> AttemptFailure<String> {
    let reason = error_chain(error);
    if let Some(tls) = tls_error(error) {
        return AttemptFailure::Permanent(match tls {
            rustls::Error::InvalidCertificate(_) => {
                format!("{reason}; the server's certificate is not to be trusted: `bus.tls_ca` names who signs it")
            }
            rustls::Error::AlertReceived(_) => {
                format!("{reason}; the server wants another certificate of this client: see `bus.tls_cert`")
            }
            _ => format!("{reason}; is it a server that speaks TLS?"),
        });
    }
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => {
            let login = if options.files.creds.is_some() { "user of `bus.creds_file`" } else { "login in `bus.url`" };
            AttemptFailure::Permanent(format!("{reason}: the server doesn't let the {login} in"))
        }
        ConnectErrorKind::Authentication | ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => {
            AttemptFailure::Permanent(reason)
        }
        ConnectErrorKind::Dns | ConnectErrorKind::TimedOut | ConnectErrorKind::Io | ConnectErrorKind::MaxReconnects => {
            AttemptFailure::Transient(reason)
        }
    }
}

/// Returns the TLS error of a failed connection, which the driver reports as an I/O error.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let io = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let found = io.and_then(|inner| inner.downcast_ref());
    found.or_else(|| tls_error(error.source()?))
}

/// Logs each change of the connection once. While it is down the driver retries for ever and reports each failure; only
/// the first is logged.
fn log_events(
    name: String,
    link: Arc<watch::Sender<u64>>,
    rights: Arc<Rights>,
    away_since: AwaySince,
) -> impl Fn(Event) -> Ready<()> + Send + Sync + 'static {
    let complained = AtomicBool::new(false);
    move |event| {
        match event {
            Event::Connected => {
                *away_since.lock() = None;
                complained.store(false, Ordering::Relaxed);
                tracing::info!("NATS at `{name}`: connected");
            }
            Event::Disconnected => {
                away_since.lock().get_or_insert_with(now);
                tracing::warn!("NATS at `{name}`: disconnected, reconnecting");
                link.send_modify(|n| *n += 1);
            }
            Event::LameDuckMode => tracing::info!("NATS at `{name}`: the server is about to shut down"),
            Event::SlowConsumer(id) => {
                tracing::warn!("NATS at `{name}`: subscription {id} is read too slowly, messages were dropped");
            }
            Event::ServerError(error) => {
                let said = error.to_string();
                tracing::warn!("NATS at `{name}`: {said}");
                rights.record_error(&said);
            }
            Event::ClientError(error) if !complained.swap(true, Ordering::Relaxed) => {
                tracing::warn!("NATS at `{name}`: {error}");
            }
            Event::ClientError(_) | Event::Draining | Event::Closed => {}
        }
        std::future::ready(())
    }
}
