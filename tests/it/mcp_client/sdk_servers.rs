//! Servers of other people's libraries: the official SDKs of Python and of Node.js, and fastmcp.

use super::login_server::log_in;
use super::{ClientSite, shop_agent, told};
use crate::support::port;
use serde_json::json;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A server in a process of its own; it ends with this value.
pub struct ServerProcess(Child);

impl ServerProcess {
    /// Starts a server, and waits until it listens at the port.
    pub async fn start(command: &mut Command, port: u16) -> Self {
        let server = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        for _ in 0..300 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("expected a server at port {port}");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A tool that `tests/run.sh` installs; without it (after a printed line) the test is skipped, and fails when `CI` is set.
pub fn installed(path: &str) -> Option<PathBuf> {
    let found = Path::new(ROOT).join(".tools").join(path);
    if found.exists() {
        return Some(found);
    }
    let text = format!("no {}; `tests/run.sh` installs it", found.display());
    assert!(std::env::var_os("CI").is_none(), "{text}");
    println!("skipped: {text}");
    None
}

/// Has an agent use the shop that a Python program serves, in both revisions.
async fn use_shop(script: &str, package: &str) {
    let Some(python) = installed("venv-mcp/bin/python") else { return };
    let has_package = Command::new(&python).args(["-c", &format!("import {package}")]).stderr(Stdio::null()).status();
    if !has_package.unwrap().success() {
        assert!(std::env::var_os("CI").is_none(), "no {package}; `tests/run.sh` installs it");
        println!("skipped: no {package}; `tests/run.sh` installs it");
        return;
    }
    let port = port::lasting();
    let script = Path::new(ROOT).join("tests/clients").join(script);
    let _server = ServerProcess::start(Command::new(python).arg(script).arg(port.to_string()), port).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    for revision in ["auto", "2025-11-25"] {
        let site = ClientSite::new().await;
        site.venue.agent("clerk", shop_agent(&url, json!({"revision": revision, "timeout": 20}))).await;
        let job = site.venue.run("clerk", "t1", json!("go")).await;
        assert_eq!(site.outcomes(&job).await, [vec!["ok"], vec!["ok"], vec![]], "{revision}");
        assert!(told(&job).contains("paid for tea"), "{revision}: {}", told(&job));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdks_server_is_called_in_both_revisions() {
    use_shop("mcp_shop.py", "mcp").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_fastmcp_is_called_in_both_revisions() {
    use_shop("mcp_fast_shop.py", "fastmcp").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_at_the_login_server_of_fastmcp() {
    let Some(python) = installed("venv-mcp/bin/python") else { return };
    let port = port::lasting();
    let script = Path::new(ROOT).join("tests/clients/mcp_vault.py");
    let _server = ServerProcess::start(Command::new(python).arg(script).arg(port.to_string()), port).await;
    let site = ClientSite::new().await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    site.venue.agent("clerk", shop_agent(&url, json!({"timeout": 20}))).await;
    let job = site.venue.run("clerk", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0][0], "unknown tool", "nobody has logged in");
    let found = log_in(&site, "clerk").await.unwrap();
    assert_eq!(found["ended"], json!(false), "{found}");
    let job = site.venue.run("clerk", "t2", json!("go")).await;
    assert_eq!(site.outcomes(&job).await, [vec!["ok"], vec!["ok"], vec![]], "{}", told(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocols_own_example_server_is_used() {
    const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [
    { tool = "shop__echo", arguments = { message = "tea" } },
    { tool = "shop__get-structured-content", arguments = { location = "Chicago" } },
    { tool = "shop__get-tiny-image", arguments = {} },
    { tool = "shop__trigger-long-running-operation", arguments = { duration = 3, steps = 6 } },
] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;
    let Some(node) = installed("venv-mcp/bin/node") else { return };
    let Some(script) = installed("mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js") else {
        return;
    };
    let port = port::lasting();
    let mut command = Command::new(node);
    command.arg(script).arg("streamableHttp").env("PORT", port.to_string());
    let _server = ServerProcess::start(&mut command, port).await;
    let site = ClientSite::with_rules(RULES).await;
    // The long operation tells of its progress more often than this.
    let config = shop_agent(&format!("http://127.0.0.1:{port}/mcp"), json!({"timeout": 2}));
    site.venue.agent("clerk", config).await;
    let job = site.venue.run("clerk", "t1", json!("go")).await;
    assert_eq!(site.outcomes(&job).await[0], ["ok", "ok", "ok", "ok"], "{}", told(&job));
    assert!(told(&job).contains("Steps: 6"), "{}", told(&job));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_servers_task_is_waited_for() {
    const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "shop__simulate-research-query", arguments = { topic = "tea", ambiguous = true } }] }

[[rule]]
when = { text = "Research Report" }
then = { text = "told: the report" }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;
    let Some(node) = installed("venv-mcp/bin/node") else { return };
    let Some(script) = installed("mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js") else {
        return;
    };
    let port = port::lasting();
    let mut command = Command::new(node);
    command.arg(script).arg("streamableHttp").env("PORT", port.to_string());
    let _server = ServerProcess::start(&mut command, port).await;
    let site = ClientSite::with_rules(RULES).await;
    site.venue.agent("clerk", shop_agent(&format!("http://127.0.0.1:{port}/mcp"), json!({"timeout": 10}))).await;
    let job = site.venue.run("clerk", "t1", json!("go")).await;
    assert_eq!(told(&job), "told: the report");
    assert_eq!(site.outcomes(&job).await, [vec!["ok"], vec![]], "the tool is called once, as a task");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdks_server_asks_a_person() {
    let Some(python) = installed("venv-mcp/bin/python") else { return };
    let port = port::lasting();
    let script = Path::new(ROOT).join("tests/clients/mcp_asking_shop.py");
    let _server = ServerProcess::start(Command::new(python).arg(script).arg(port.to_string()), port).await;
    for (verb, more, part) in [
        ("answer", json!({"answers": {"size": "L", "copies": "2"}}), "2 of tea in L"),
        ("reject", json!({}), "declined"),
    ] {
        let site = ClientSite::new().await;
        let config = shop_agent(&format!("http://127.0.0.1:{port}/mcp"), json!({"timeout": 20}));
        site.venue.agent("payer", config).await;
        let job = site.start("payer").await;
        let question = site.question().await;
        assert!(question["questions"]["title"].as_str().unwrap().ends_with("Which tea?"), "{question}");
        site.decide(verb, &question, more).await.unwrap();
        let said = site.late_result(&job).await;
        assert!(said.contains(part), "{said}");
    }
}
