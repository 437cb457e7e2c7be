//! HTTP: the published Covia client for Python drives Trellis unchanged.

use crate::support::http::Server;
use crate::support::venue::TestVenue;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::store::embedded::EmbeddedStore;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/covia_client.py");

/// A Python that has the client; without one the test is skipped, and fails when `CI` is set.
fn python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv/bin");
    let all = std::env::split_paths(&path).chain([venv]).map(|dir| dir.join("python3"));
    let found = all.filter(|file| file.exists()).find(|python| {
        let import = Command::new(python).args(["-c", "import covia"]).output();
        import.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "no python3 with covia; `tests/run.sh` installs it");
        println!("skipped: no python3 with covia; `tests/run.sh` installs it");
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_client_is_satisfied() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(5)).unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), "").await;
    venue.worker().await;
    let server = Server::of(Arc::clone(&venue.venue)).await;
    let url = server.url.clone();
    let run = tokio::task::spawn_blocking(move || Command::new(python).args([CLIENT, &url]).output().unwrap());
    let output = run.await.unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.starts_with("ok covia"), "{said}\n{complained}");
}
