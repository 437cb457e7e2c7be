//! An agent of the official SDK for Python is given work, in both bindings.

use super::{CallerSite, partner_agent, told};
use crate::mcp_client::{ServerProcess, installed};
use crate::support::port;
use serde_json::json;
use std::path::Path;
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_the_official_sdk_is_given_work() {
    let Some(python) = installed("venv-a2a/bin/python") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/a2a_server.py");
    for order in ["rpc", "rest"] {
        let port = port::lasting();
        let mut command = Command::new(&python);
        command.arg(&script).arg(port.to_string()).arg(order);
        let _server = ServerProcess::start(&mut command, port).await;
        let site = CallerSite::new().await;
        let url = format!("http://127.0.0.1:{port}");
        for (id, input, part) in
            [("t1", "an order", "echo an order"), ("t2", "ask", "Which size?"), ("t3", "fail", "failed (task")]
        {
            site.venue.agent("clerk", partner_agent(&url, json!({"timeout": 10}))).await;
            let said = told(&site.venue.run("clerk", id, json!(input)).await);
            assert!(said.contains(part), "{order} {input}: {said}");
        }
    }
}
