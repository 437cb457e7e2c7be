//! The protocol's own conformance suite, on the product's route with fixtures: both revisions, one process and a fleet.

use super::fixtures::Fixtures;
use crate::support::http::Server;
use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use trellis::http::{HttpOptions, McpExtension};
use trellis::process::clock::Clock;
use trellis::store::redis::ServerOrInjected;

const SUITE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/mcp/node_modules/@modelcontextprotocol/conformance/dist/index.js");
/// Node.js of the suite, which needs 22 or newer.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/venv-mcp/bin/node");

/// The suite and its Node.js; without them (after a printed line) the test is skipped, and fails when `CI` is set.
fn suite() -> Option<(PathBuf, PathBuf)> {
    let (node, suite) = (PathBuf::from(NODE), PathBuf::from(SUITE));
    if node.exists() && suite.exists() {
        return Some((node, suite));
    }
    let text = format!("no {SUITE} or no {NODE}; `tests/run.sh` installs both");
    assert!(std::env::var_os("CI").is_none(), "{text}");
    println!("skipped: {text}");
    None
}

async fn server(venue: &TestVenue, fixtures: &Arc<Fixtures>) -> Server {
    let extension: Arc<dyn McpExtension> = Arc::clone(fixtures) as Arc<dyn McpExtension>;
    Server::changed(Arc::clone(&venue.venue), Arc::default(), |options| HttpOptions {
        mcp_extension: Some(extension),
        ..options
    })
    .await
}

/// Runs what a revision requires; its exit code says whether all of it passes.
async fn passes(url: &str, revision: &'static str) {
    let Some((node, suite)) = suite() else { return };
    let (url, out) = (format!("{url}/mcp"), tempfile::tempdir().unwrap());
    let run = move || {
        let mut command = Command::new(node);
        command.arg(suite).args(["server", "--url", &url, "--requirements", revision, "-o"]).arg(out.path());
        command.current_dir(out.path()).output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{revision}: {}\n{said}", output.status);
    println!("{revision}: {}", said.lines().next_back().unwrap_or_default());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_passes_what_both_revisions_require() {
    let (venue, _dir) = TestVenue::embedded("").await;
    let server = server(&venue, &Arc::default()).await;
    for revision in ["2025-11-25", "2026-07-28"] {
        passes(&server.url, revision).await;
    }
}

/// Passes each connection on to the next of these servers in turn.
async fn balancer(urls: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for at in 0.. {
            let Ok((mut from, _)) = listener.accept().await else { return };
            let to = urls[at % urls.len()].trim_start_matches("http://").to_owned();
            tokio::spawn(async move {
                let Ok(mut to) = TcpStream::connect(to).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    url
}

async fn venue_on(server: &RedisServer, prefix: &str, dir: &Path) -> TestVenue {
    let mut options = server.options(ServerOrInjected::Injected);
    options.prefix = prefix.to_owned();
    let queue = trellis::store::embedded::EmbeddedStore::open(&dir.join("queue")).unwrap();
    let bus = trellis::bus::embedded::EmbeddedBus::new(queue, Duration::from_secs(2), Clock::system()).unwrap();
    let store = trellis::store::redis::RedisStore::open(options).await.unwrap();
    TestVenue::new(store, Arc::new(bus), dir, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_on_one_store_pass_it_in_turns() {
    let Some(redis) = RedisServer::shared() else { return };
    let prefix = redis.options(ServerOrInjected::Injected).prefix;
    let folders: [TempDir; 2] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let fixtures = Arc::default();
    let first = venue_on(redis, &prefix, folders[0].path()).await;
    let second = venue_on(redis, &prefix, folders[1].path()).await;
    let servers = [server(&first, &fixtures).await, server(&second, &fixtures).await];
    let url = balancer(servers.iter().map(|server| server.url.clone()).collect()).await;
    for revision in ["2025-11-25", "2026-07-28"] {
        passes(&url, revision).await;
    }
}
