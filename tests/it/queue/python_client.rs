//! The queue: a plain NATS client for Python submits, and is answered, as the protocol says.

use crate::support::cli::run;
use crate::support::fleet::Fleet;
use crate::support::{nats, python};
use std::process::Command;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/nats_client.py");

#[test]
fn a_plain_nats_client_can_submit_and_read() {
    let Some(python) = python::with("nats") else { return };
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let (worker, serve, url) = fleet.start_all();
    fleet.slow_agent("slow", 1000);
    for agent in ["echo.toml", "slow.toml"] {
        run(fleet.path(), &["agent", "apply", agent, "--url", &url]).ok();
    }
    let output = Command::new(python).args([CLIENT, &fleet.nats, &fleet.prefix]).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let logs = || format!("worker: {}\nserve: {}", worker.log(), serve.log());
    assert!(output.status.success() && said.starts_with("ok nats-py"), "{said}\n{complained}\n{}", logs());
}
