//! HTTP: the published Covia client for Python drives Trellis unchanged.

use crate::support::http::Server;
use crate::support::python;
use crate::support::venue::TestVenue;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::secret::KeyRing;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::secrets::Vault;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/covia_client.py");
const CALLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/covia_calls.py");

/// Runs a script of the client against a venue with a worker.
async fn satisfied(script: &'static str, modules: &str) {
    let Some(python) = python::with(modules) else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(5), Clock::system()).unwrap();
    let mut venue = TestVenue::new(store, Arc::new(bus), dir.path(), "").await;
    let keys = KeyRing::parse(&"01".repeat(32)).unwrap();
    Arc::get_mut(&mut venue.venue).expect("nobody else has it yet").secrets = Vault::new(keys);
    venue.worker();
    let server = Server::of(Arc::clone(&venue.venue)).await;
    let url = server.url.clone();
    let run = tokio::task::spawn_blocking(move || Command::new(python).args([script, &url]).output().unwrap());
    let output = run.await.unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.starts_with("ok covia"), "{said}\n{complained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_client_works_unchanged() {
    satisfied(CLIENT, "covia").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_method_has_its_effect_or_is_refused() {
    satisfied(CALLS, "covia, jwt, cryptography").await;
}
