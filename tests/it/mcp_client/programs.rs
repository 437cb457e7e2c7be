//! Servers on the stdin and stdout of programs.

use super::{ClientSite, sdk_servers};
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
