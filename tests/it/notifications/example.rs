//! The example in Python: it verifies posts with the official library, and answers an approval.

use super::SECRET;
use super::embedded;
use super::{HookServer, definition};
use crate::support::cli::{Process, Up};
use crate::support::{port, python};
use std::process::{Command, Stdio};

/// Starts the example on a port; `None` without the library.
fn receiver(port: u16, secret: &str, venue: &str) -> Option<Process> {
    let python = python::with("standardwebhooks")?;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/examples/webhook_receiver.py");
    let mut command = Command::new("sh");
    // What it says on stdout is what the test reads.
    command.args(["-c", "exec \"$0\" \"$1\" \"$2\" 1>&2"]).arg(python).args([file, &port.to_string()]);
    command.env("WEBHOOK_SECRET", secret).env("TRELLIS_URL", venue).stdin(Stdio::null());
    let mut process = Process::of(command);
    process.says("listening on");
    Some(process)
}

fn set(up: &Up, port: u16) {
    let url = format!("http://127.0.0.1:{port}/");
    up.run(&["webhook", "set", "python", &url, "--secret", "s/HOOK"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_library_verifies_and_answers() {
    let hook = HookServer::willing().await;
    let port = port::lasting();
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{port}, 127.0.0.1:{}", hook.port);
    let up = embedded::up(&hook, &[], &[&hosts]);
    let Some(mut receiver) = receiver(port, SECRET, &up.url) else { return };
    set(&up, port);
    up.file("payer.toml", &definition("payer"));
    up.run(&["agent", "apply", "payer.toml"]).ok();
    let job = up.run(&["submit", "payer", "pay 40"]).ok();
    up.run(&["job", "wait", &job, "--timeout", "60s"]).ok();
    receiver.says("approval-asked payer");
    receiver.says("approval-decided payer");
    assert!(!receiver.log().contains("refused"), "{}", receiver.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_library_refuses_another_key() {
    let hook = HookServer::willing().await;
    let port = port::lasting();
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{port}, 127.0.0.1:{}", hook.port);
    let up = embedded::up(&hook, &[], &[&hosts]);
    let another = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let Some(mut receiver) = receiver(port, another, &up.url) else { return };
    set(&up, port);
    up.run(&["webhook", "try", "python"]).expect(1, "");
    receiver.says("refused:");
}
