//! The official SDK for Python finds the card, sends a message and follows its task, in both bindings.

use super::Desk;
use std::path::Path;
use std::process::Command;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/a2a_client.py");

#[tokio::test(flavor = "multi_thread")]
async fn the_official_sdk_talks_to_an_agent() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv-a2a/bin/python");
    if !python.exists() {
        assert!(std::env::var_os("CI").is_none(), "no a2a-sdk; `tests/run.sh` installs it");
        println!("skipped: no a2a-sdk; `tests/run.sh` installs it");
        return;
    }
    let desk = Desk::open().await;
    let url = format!("{}/a2a/local/me/clerk", desk.server.url);
    let run = tokio::task::spawn_blocking(move || Command::new(python).args([CLIENT, &url]).output().unwrap());
    let run = run.await.unwrap();
    let (said, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(said, "JSONRPC echo hi\nHTTP+JSON echo hi\n", "{complained}");
}
