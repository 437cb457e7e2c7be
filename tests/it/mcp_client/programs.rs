//! Servers on the stdin and stdout of programs.

use super::{ClientSite, sdk_servers, until};
use crate::support::operate::{boss, operate};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::mcp::name::ServerName;
use trellis::domain::mcp::server::McpServer;
use trellis::venue::mcp_client::{McpEndpoint, McpProgram, VenueServer};
use trellis::venue::operation::OpError;

/// A server that runs a script with a Python.
fn python_server(python: &str, script: &str, may_start: bool) -> VenueServer {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let command = vec![python.to_owned(), script.to_str().unwrap().to_owned(), "stdio".to_owned()];
    let mut settings = McpServer::of_program(ServerName::new("hub").unwrap(), &command);
    settings.timeout = Some(2);
    let of_test = ["PATH", "HOME"].map(|name| (name.to_owned(), std::env::var(name).unwrap_or_default()));
    let env = of_test.into_iter().chain([("SHOWN".to_owned(), "1".to_owned())]).collect();
    let endpoint = McpEndpoint::of_program(settings, McpProgram { command, env, may_start }).unwrap();
    VenueServer { endpoint: Arc::new(endpoint), is_shared: true }
}

async fn ask(site: &ClientSite, operation: &str, input: Value) -> Result<Value, OpError> {
    operate(&site.venue.venue, &boss(&site.venue.owner), operation, input).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_starts_at_its_first_call_and_again_after_its_end() {
    let site = ClientSite::with_server(python_server("python3", "mcp_lines.py", true)).await;
    ask(&site, "mcp/refresh", json!({"server": "hub"})).await.unwrap();
    let env = ask(&site, "mcp:hub:env", json!({})).await.unwrap()["content"].to_string();
    assert!(env.contains("SHOWN") && !env.contains("CARGO"), "{env}");
    let died = ask(&site, "mcp:hub:die", json!({})).await;
    assert!(matches!(died, Err(OpError::OutcomeUnknown(_))), "{died:?}");
    assert_eq!(ask(&site, "mcp:hub:ping", json!({})).await.unwrap()["content"], "ping");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_program_run_and_are_cancelled_side_by_side() {
    let site = ClientSite::with_server(python_server("python3", "mcp_lines.py", true)).await;
    ask(&site, "mcp/refresh", json!({"server": "hub"})).await.unwrap();
    let (hung, pinged) = tokio::join!(ask(&site, "mcp:hub:hang", json!({})), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        ask(&site, "mcp:hub:ping", json!({})).await
    });
    assert!(matches!(hung, Err(OpError::Timeout(_))), "{hung:?}");
    assert_eq!(pinged.unwrap()["content"], "ping");
    assert_eq!(ask(&site, "mcp:hub:cancelled", json!({})).await.unwrap()["content"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_can_not_be_started_is_refused_with_why() {
    for (python, may_start, part) in
        [("python3", false, "`mcp.commands`"), ("/no/such/program", true, "`/no/such/program` can't be started")]
    {
        let site = ClientSite::with_server(python_server(python, "mcp_lines.py", may_start)).await;
        let refused = ask(&site, "mcp/refresh", json!({"server": "hub"})).await.unwrap_err();
        assert!(refused.to_string().contains(part), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdks_server_is_called_on_its_stdin() {
    let Some(python) = sdk_servers::installed("venv-mcp/bin/python") else { return };
    let server = python_server(python.to_str().unwrap(), "mcp_shop.py", true);
    assert!(server.endpoint.display_name().contains("python"), "{}", server.endpoint.display_name());
    let site = ClientSite::with_server(server).await;
    ask(&site, "mcp/refresh", json!({"server": "hub"})).await.unwrap();
    let paid = ask(&site, "mcp:hub:pay", json!({"q": "tea"})).await.unwrap();
    assert!(paid.to_string().contains("paid for tea"), "{paid}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_does_not_end_its_program() {
    let site = ClientSite::with_server(python_server("python3", "mcp_lines.py", true)).await;
    ask(&site, "mcp/refresh", json!({"server": "hub"})).await.unwrap();
    let huge = ask(&site, "mcp:hub:huge", json!({})).await;
    assert!(matches!(huge, Err(OpError::Timeout(_))), "{huge:?}");
    assert_eq!(ask(&site, "mcp:hub:cancelled", json!({})).await.unwrap()["content"], "1", "it is the same program");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_at_once_is_not_started_by_each_call() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("ends.py");
    std::fs::write(&script, "with open(__file__ + '.log', 'a') as log:\n    log.write('x')\n").unwrap();
    let site = ClientSite::with_server(python_server("python3", script.to_str().unwrap(), true)).await;
    for _ in 0..5 {
        ask(&site, "mcp/refresh", json!({"server": "hub"})).await.unwrap_err();
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("ends.py.log")).unwrap(), "x");
}

/// Answers the handshake with a revision that no client speaks, and notes the end of its stdin.
const CHILD: &str = r#"
import json, sys
message = json.loads(sys.stdin.readline())
print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "1999-01-01"}}), flush=True)
sys.stdin.read()
open(__file__ + ".ended", "w").close()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_has_started_reaches_the_end_of_its_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("run.sh");
    std::fs::write(&script, "python3 \"$(dirname \"$0\")/child.py\"\ntrue\n").unwrap();
    std::fs::write(dir.path().join("child.py"), CHILD).unwrap();
    let site = ClientSite::with_server(python_server("sh", script.to_str().unwrap(), true)).await;
    let refused = ask(&site, "mcp/refresh", json!({"server": "hub"})).await.unwrap_err();
    assert!(refused.to_string().contains("1999-01-01"), "{refused}");
    let ended = dir.path().join("child.py.ended");
    until("the end of the child", || ended.exists()).await;
}
