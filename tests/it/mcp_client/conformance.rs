//! The protocol's own conformance suite for clients, as far as it is about lists and calls of tools.

use super::{ClientSite, shop_agent};
use crate::support::operate::{boss, operate};
use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use trellis::domain::mcp::name::ServerName;
use trellis::domain::mcp::revision::RevisionChoice;
use trellis::domain::mcp::server::McpServer;

const SUITE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/mcp/node_modules/@modelcontextprotocol/conformance/dist/index.js");
/// Node.js of the suite, which needs 22 or newer.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/venv-mcp/bin/node");
/// Program that the suite starts as its client.
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/mcp_driver.mjs");

const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

/// Scenarios, each with the revision in which it runs. Those of logins, and of questions to people in the older revision,
/// aren't served.
const SCENARIOS: [(&str, &str); 12] = [
    ("initialize", OLD),
    ("tools_call", OLD),
    ("tools_call", NEW),
    ("sse-retry", OLD),
    ("request-metadata", NEW),
    ("http-standard-headers", NEW),
    ("http-custom-headers", NEW),
    ("http-invalid-tool-headers", NEW),
    ("json-schema-ref-no-deref", NEW),
    ("json-schema-2020-12-preservation", OLD),
    ("json-schema-2020-12-preservation", NEW),
    ("sep-2322-client-request-state", NEW),
];

/// A server of the suite, and how to tell the suite's client what came of it.
type Handover = (Value, oneshot::Sender<Result<(), String>>);

/// Returns the address at which the suite's client hands over its servers, and these.
async fn handovers() -> (String, mpsc::Receiver<Handover>) {
    let (send, receive) = mpsc::channel::<Handover>(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let pages = Router::new().fallback(move |body: String| {
        let send = send.clone();
        async move {
            let (done, answer) = oneshot::channel();
            send.send((serde_json::from_str(&body).unwrap(), done)).await.unwrap();
            match answer.await.unwrap() {
                Ok(()) => (StatusCode::OK, String::new()),
                Err(text) => (StatusCode::INTERNAL_SERVER_ERROR, text),
            }
        }
    });
    tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
    (url, receive)
}

/// Tools of the scenario in which the server asks a person.
const ASKING: [&str; 4] =
    ["test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"];

/// Has an agent call the tools that ask a person, and answers their questions.
async fn use_asking_server(handed: &Value) -> Result<(), String> {
    let calls: Vec<String> =
        ASKING.iter().map(|tool| format!("{{ tool = \"shop__{tool}\", arguments = {{}} }}")).collect();
    let calls = calls.join(", ");
    let rules = format!(
        "[[rule]]\nwhen = {{ turn = 1 }}\nthen = {{ calls = [{calls}] }}\n\n[[rule]]\nthen = {{ text = \"told\" }}\n"
    );
    let site = ClientSite::with_rules(&rules).await;
    let url = handed["url"].as_str().unwrap().replace("localhost", "127.0.0.1");
    site.venue.agent("clerk", shop_agent(&url, json!({"timeout": 20}))).await;
    let job = site.start("clerk").await;
    for _ in 0..2 {
        let question = site.question().await;
        site.decide("answer", &question, json!({"answers": {"confirmed": true}})).await?;
    }
    site.venue.ended(&job).await;
    Ok(())
}

/// Lists the tools of a server as the venue does, and calls them by their operations.
async fn use_server(handed: &Value) -> Result<(), String> {
    let mut settings = McpServer::at_url(ServerName::new("hub").unwrap(), handed["url"].as_str().unwrap());
    settings.revision = RevisionChoice::from_word(handed["revision"].as_str().unwrap()).unwrap();
    let site = ClientSite::hub(settings).await;
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let ask = async |operation: &str, input: Value| {
        operate(venue, &boss(owner), operation, input).await.map_err(|error| format!("{operation}: {error}"))
    };
    ask("mcp/refresh", json!({"server": "hub"})).await?;
    let listed = ask("mcp:tools:list", json!({"server": "hub"})).await?;
    for (name, arguments) in calls(&handed["context"], listed["tools"].as_array().unwrap()) {
        ask("mcp:tools:call", json!({"server": "hub", "toolName": name, "arguments": arguments})).await?;
    }
    Ok(())
}

/// Returns the calls of a scenario: those that it names, without arguments that are null, or one of each tool.
fn calls(context: &Value, tools: &[Value]) -> Vec<(String, Value)> {
    if let Some(named) = context["toolCalls"].as_array() {
        let one = |call: &Value| {
            let mut arguments = call["arguments"].as_object().unwrap().clone();
            arguments.retain(|_, value| !value.is_null());
            (call["name"].as_str().unwrap().to_owned(), Value::Object(arguments))
        };
        return named.iter().map(one).collect();
    }
    let schema = |name: &str| tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["inputSchema"].clone());
    let one = |tool: &Value| {
        let name = tool["name"].as_str().unwrap();
        let arguments = match name {
            "add_numbers" => json!({"a": 5, "b": 3}),
            "json_schema_echo" => json!({"schema": schema("json_schema_2020_12_tool")}),
            "valid_tool" => json!({"region": "eu"}),
            "json_schema_2020_12_tool" | "lookup_user" => return None,
            _ => json!({}),
        };
        Some((name.to_owned(), arguments))
    };
    tools.iter().filter_map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suites_scenarios_of_tools_pass() {
    if !Path::new(NODE).exists() || !Path::new(SUITE).exists() {
        let text = format!("no {SUITE} or no {NODE}; `tests/run.sh` installs both");
        assert!(std::env::var_os("CI").is_none(), "{text}");
        println!("skipped: {text}");
        return;
    }
    let (url, mut handed) = handovers().await;
    for (scenario, revision) in SCENARIOS {
        let client = format!("{NODE} {DRIVER} {url}");
        let run = move || {
            let mut command = Command::new(NODE);
            command.args([SUITE, "client", "--scenario", scenario, "--spec-version", revision, "--command", &client]);
            command.output().unwrap()
        };
        let mut running = tokio::task::spawn_blocking(run);
        let output = loop {
            tokio::select! {
                output = &mut running => break output.unwrap(),
                Some((server, done)) = handed.recv() => {
                    let asks = scenario == "sep-2322-client-request-state";
                    let used = if asks { use_asking_server(&server).await } else { use_server(&server).await };
                    let _ = done.send(used);
                }
            }
        };
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{scenario} {revision}: {}\n{said}", output.status);
    }
}
