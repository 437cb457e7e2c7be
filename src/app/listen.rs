//! Listeners of a process: the HTTP API, and the health of a worker without one.

use super::backends::store_name;
use super::{App, AppError, Role};
use crate::config::{Config, HttpConfig};
use crate::domain::decode;
use crate::http::{self, ConnectionLimits, HttpOptions};
use crate::process::shutdown::Shutdown;
use crate::venue::auth::Auth;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Serves the API until no turn runs, and for as long as a load balancer may still send requests.
pub(super) async fn serve(config: &Config, app: &App, role: Role, shutdown: &Shutdown) -> Result<(), AppError> {
    let (listener, url) = bind(config.http.listen, "--listen").await?;
    tracing::info!("HTTP API on {url} (store `{}`)", store_name(config));
    tracing::info!("console for browsers on {url}/");
    let options = HttpOptions {
        needs_worker: role == Role::Serve,
        public: config.http.public.clone(),
        authorization_servers: config.auth.authorization_servers.clone(),
        ..http_options(&config.http, url, Arc::clone(&app.auth), shutdown)
    };
    let (venue, shutdown, linger) = (Arc::clone(&app.venue), shutdown.clone(), config.http.linger);
    shutdown.clone().spawn_service("http", async move {
        let over = async move {
            shutdown.wait_triggered().await;
            tokio::join!(shutdown.end_token().cancelled(), tokio::time::sleep(linger));
        };
        http::serve(listener, venue, options, over).await;
    });
    Ok(())
}

/// Serves the health of a worker, if an address is set, until no turn runs: a supervisor must not take it for dead
/// while it finishes its work.
pub(super) async fn serve_health(config: &Config, app: &App, shutdown: &Shutdown) -> Result<(), AppError> {
    let Some(address) = config.worker.listen else { return Ok(()) };
    let (listener, url) = bind(address, "worker.listen").await?;
    tracing::info!("health on {url}");
    let options = http_options(&config.http, url, Arc::default(), shutdown);
    let (venue, ending) = (Arc::clone(&app.venue), shutdown.clone());
    shutdown.spawn_service("health", async move {
        http::serve_health(listener, venue, options, async move { ending.end_token().cancelled().await }).await;
    });
    Ok(())
}

/// Refuses an address that is in use before anything is created, e.g. the folder of a store.
pub(super) async fn check_free(config: &Config, role: Role) -> Result<(), AppError> {
    let wanted = match role {
        Role::Up | Role::Serve => Some((config.http.listen, "--listen")),
        Role::Worker => config.worker.listen.map(|address| (address, "worker.listen")),
        Role::Command | Role::Doctor => None,
    };
    if let Some((address, with)) = wanted {
        bind(address, with).await?;
    }
    Ok(())
}

/// Returns a listener and its URL; `with` names the setting of its address.
async fn bind(address: SocketAddr, with: &'static str) -> Result<(TcpListener, String), AppError> {
    let failed = |error, there| AppError::Listen { address, with, error, there };
    match TcpListener::bind(address).await {
        Ok(listener) => {
            let url = format!("http://{}", listener.local_addr().map_err(|error| failed(error, String::new()))?);
            Ok((listener, url))
        }
        Err(error) => Err(failed(error, venue_at(address).await)),
    }
}

/// Most bytes of a venue's status.
const STATUS_BYTES: usize = 64 * 1024;

/// Names the venue that answers at an address in use: commands without `--url` talk to it, and not to the one that
/// couldn't start.
async fn venue_at(address: SocketAddr) -> String {
    let name = async {
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build().ok()?;
        let mut answer = client.get(format!("http://{address}/api/v1/status")).send().await.ok()?;
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.ok()? {
            // The server may be anything: no more is read than a venue's status has.
            if body.len() + piece.len() > STATUS_BYTES {
                return None;
            }
            body.extend_from_slice(&piece);
        }
        let status = decode::json(&body).ok()?;
        Some(status["name"].as_str()?.chars().take(100).collect::<String>())
    };
    let name = name.await.map(|name| name.escape_debug().to_string());
    name.map_or_else(String::new, |name| format!(": the venue `{name}` answers there, and commands talk to that one"))
}

fn http_options(c: &HttpConfig, url: String, auth: Arc<Auth>, shutdown: &Shutdown) -> HttpOptions {
    let asked =
        ConnectionLimits { total: c.connections, per_address: c.connections_per_address, proxies: c.proxies.clone() };
    let room = asked.limit_to_descriptors(descriptor_limit());
    if room.total < c.connections {
        let (asked, total) = (c.connections, room.total);
        tracing::warn!(
            "`http.connections` is {asked}, but the file descriptors of this process (`ulimit -n`) are enough for {total}"
        );
    }
    HttpOptions {
        auth,
        memory: c.memory,
        connection_limits: room,
        header_time: c.header_time,
        body_time: c.body_time,
        idle_time: c.idle_time,
        shutdown_begun: shutdown.stop_token().clone(),
        ..HttpOptions::new(url, c.body_limit)
    }
}

/// Returns how many file descriptors this process may have, if the system says so.
fn descriptor_limit() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
