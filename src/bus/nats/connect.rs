//! The connection itself: made with patience, its changes logged and told.

use super::super::chain;
use super::super::credentials::credentials;
use super::{BusOpenError, NatsOptions, PING_EVERY, TIMEOUT};
use crate::process::retry::{AttemptFailure, retry};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use std::{
    future::Ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// Connects, waiting as the policy says.
pub(super) async fn connect(
    options: &NatsOptions,
    name: &str,
    link: watch::Sender<u64>,
) -> Result<Client, BusOpenError> {
    let failed = |reason: String| BusOpenError::Connect { bus: name.to_owned(), reason };
    let servers: Vec<ServerAddr> = options
        .url
        .split(',')
        .map(|url| url.trim().parse().map_err(|error: std::io::Error| failed(error.to_string())))
        .collect::<Result<_, _>>()?;
    let link = Arc::new(link);
    let attempt = || {
        let settings = credentials(ConnectOptions::new(), &servers)
            .name("trellis")
            .ping_interval(PING_EVERY)
            .request_timeout(Some(TIMEOUT))
            .event_callback(log_events(name.to_owned(), Arc::clone(&link)));
        let servers = servers.clone();
        async move {
            settings.connect(servers).await.map_err(|error| {
                let reason = chain(&error);
                match error.kind() {
                    ConnectErrorKind::Authentication
                    | ConnectErrorKind::AuthorizationViolation
                    | ConnectErrorKind::ServerParse
                    | ConnectErrorKind::Tls => AttemptFailure::Permanent(reason),
                    ConnectErrorKind::Dns
                    | ConnectErrorKind::TimedOut
                    | ConnectErrorKind::Io
                    | ConnectErrorKind::MaxReconnects => AttemptFailure::Transient(reason),
                }
            })
        }
    };
    retry(options.connect, &format!("NATS at `{name}`"), attempt).await.map_err(failed)
}

/// One line for each change of the connection. While it is down the driver tries for ever and
/// reports each failure; only the first of them is logged.
fn log_events(name: String, link: Arc<watch::Sender<u64>>) -> impl Fn(Event) -> Ready<()> + Send + Sync + 'static {
    let complained = AtomicBool::new(false);
    move |event| {
        match event {
            Event::Connected => {
                complained.store(false, Ordering::Relaxed);
                tracing::info!("NATS at `{name}`: connected");
            }
            Event::Disconnected => {
                tracing::warn!("NATS at `{name}`: disconnected, reconnecting");
                link.send_modify(|n| *n += 1);
            }
            Event::LameDuckMode => tracing::info!("NATS at `{name}`: the server is about to shut down"),
            Event::SlowConsumer(id) => {
                tracing::warn!("NATS at `{name}`: subscription {id} is read too slowly, messages were dropped");
            }
            Event::ServerError(error) => tracing::warn!("NATS at `{name}`: {error}"),
            Event::ClientError(error) if !complained.swap(true, Ordering::Relaxed) => {
                tracing::warn!("NATS at `{name}`: {error}");
            }
            Event::ClientError(_) | Event::Draining | Event::Closed => {}
        }
        std::future::ready(())
    }
}
