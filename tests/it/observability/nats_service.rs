//! Workers as services of NATS, as `nats micro ls` asks for them.

use crate::support::fleet::Fleet;
use crate::support::{nats, python};
use std::process::Command;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/nats_service.py");

#[test]
fn each_worker_answers_as_a_service_of_nats() {
    let Some(python) = python::with("nats") else { return };
    let Some(fleet) = nats::shared().and_then(Fleet::on_shared_redis) else { return };
    let mut workers = [fleet.start("worker"), fleet.start("worker")];
    for worker in &mut workers {
        worker.says("worker `");
    }
    let output = Command::new(python).args([CLIENT, &fleet.nats, &fleet.prefix, "2"]).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim_end() == "ok", "{said}\n{complained}\n{}", workers[0].log());
}
