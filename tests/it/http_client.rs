//! HTTP: the published Covia client for Python drives Trellis unchanged.

use crate::support::http::Server;
use crate::support::python;
use crate::support::venue::TestVenue;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::clock::Clock;
use trellis::store::embedded::EmbeddedStore;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/covia_client.py");

#[tokio::test(flavor = "multi_thread")]
async fn the_published_client_is_satisfied() {
    let Some(python) = python::with("covia") else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(5), Clock::system()).unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), "").await;
    venue.worker().await;
    let server = Server::of(Arc::clone(&venue.venue)).await;
    let url = server.url.clone();
    let run = tokio::task::spawn_blocking(move || Command::new(python).args([CLIENT, &url]).output().unwrap());
    let output = run.await.unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.starts_with("ok covia"), "{said}\n{complained}");
}
