//! The protocol's own conformance suite for clients, as far as it is about lists and calls of tools, and about logins.

use super::{ClientSite, shop_agent};
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use axum::Router;
use axum::http::StatusCode;
use futures::StreamExt;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use trellis::domain::hosts::HostRule;
use trellis::domain::mcp::name::ServerName;
use trellis::domain::mcp::oauth::settings::{LoginGrant, LoginSettings};
use trellis::domain::mcp::revision::RevisionChoice;
use trellis::domain::mcp::server::McpServer;
use trellis::domain::secret::PlainSecret;
use trellis::venue::mcp_client::{McpEndpoint, McpServers, VenueServer};
use trellis::venue::mcp_login::ClientKey;
use trellis::venue::operation::Caller;
use trellis::venue::outbound::HttpPolicy;

const SUITE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/mcp/node_modules/@modelcontextprotocol/conformance/dist/index.js");
/// Node.js of the suite, which needs 22 or newer.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/venv-mcp/bin/node");
/// Program that the suite starts as its client.
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/mcp_driver.mjs");

const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

/// Scenarios of tools, each with the revision in which it runs. Those of questions to people in the older revision aren't
/// served.
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

/// Scenarios of logins that both revisions require.
const LOGINS: [&str; 14] = [
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
];

/// Those that the newer revision requires besides, and two of an extension.
const NEW_LOGINS: [&str; 13] = [
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
];

/// Public address of a venue whose description login servers can ask for, as the suite expects it.
const PUBLIC: &str = "https://conformance-test.local";

/// Page to which logins come back; the test looks where it is sent, and opens nothing.
const REDIRECT: &str = "http://127.0.0.1:8765/callback";

/// Scenarios that run at once.
const AT_ONCE: usize = 3;

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

/// Whether the suite is there; a missing one fails where it must be.
fn is_installed() -> bool {
    if Path::new(NODE).exists() && Path::new(SUITE).exists() {
        return true;
    }
    let text = format!("no {SUITE} or no {NODE}; `tests/run.sh` installs both");
    assert!(std::env::var_os("CI").is_none(), "{text}");
    println!("skipped: {text}");
    false
}

/// Runs a scenario; `serve` uses the servers that it hands over.
async fn run_scenario<F: Future<Output = Result<(), String>>>(
    scenario: &'static str,
    revision: &'static str,
    serve: impl Fn(Value) -> F,
) {
    let (url, mut handed) = handovers().await;
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
                let _ = done.send(serve(server).await);
            }
        }
    };
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{scenario} {revision}: {}\n{said}", output.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suites_scenarios_of_tools_pass() {
    if is_installed() {
        for (scenario, revision) in SCENARIOS {
            let asks = scenario == "sep-2322-client-request-state";
            run_scenario(scenario, revision, async |server| {
                if asks { use_asking_server(&server).await } else { use_server(&server).await }
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suites_scenarios_of_logins_pass_in_the_older_revision() {
    run_logins(LOGINS.into_iter().map(|scenario| (scenario, OLD)).collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suites_scenarios_of_logins_pass_in_the_newer_revision() {
    run_logins(LOGINS.into_iter().chain(NEW_LOGINS).map(|scenario| (scenario, NEW)).collect()).await;
}

async fn run_logins(scenarios: Vec<(&'static str, &'static str)>) {
    if is_installed() {
        let run = |(scenario, revision): (&'static str, &'static str)| async move {
            run_scenario(scenario, revision, async |server| LoginSite::use_server(scenario, &server).await).await;
        };
        futures::stream::iter(scenarios).for_each_concurrent(AT_ONCE, run).await;
    }
}

/// A venue whose operator logs in at a server of the suite.
struct LoginSite {
    site: ClientSite,
    operator: Caller,
}

impl LoginSite {
    /// Uses a server as [`use_server`] does, with a login wherever a call says so.
    async fn use_server(scenario: &str, handed: &Value) -> Result<(), String> {
        let site = Self::new(scenario, handed).await;
        site.ask("mcp/refresh", json!({"server": "hub"})).await?;
        let listed = site.ask("mcp:tools:list", json!({"server": "hub"})).await?;
        for (name, arguments) in calls(&handed["context"], listed["tools"].as_array().unwrap()) {
            site.ask("mcp:tools:call", json!({"server": "hub", "toolName": name, "arguments": arguments})).await?;
        }
        Ok(())
    }

    async fn new(scenario: &str, handed: &Value) -> Self {
        let (url, context) = (handed["url"].as_str().unwrap(), &handed["context"]);
        let mut settings = McpServer::at_url(ServerName::new("hub").unwrap(), url);
        settings.revision = RevisionChoice::from_word(handed["revision"].as_str().unwrap()).unwrap();
        let text = |key: &str| context[key].as_str().map(str::to_owned);
        let secret = |key: &str| text(key).map(|value| PlainSecret::new(value).unwrap());
        let mut key = secret("client_secret").map(ClientKey::Secret);
        key = key.or_else(|| secret("private_key_pem").map(ClientKey::Private));
        if let Some(client_id) = text("client_id") {
            let is_of_machine = scenario.starts_with("auth/client-credentials");
            let grant = if is_of_machine { LoginGrant::ClientCredentials } else { LoginGrant::Login };
            // Who registers a client knows the login server.
            let issuer = match text("issuer") {
                Some(issuer) => issuer,
                None => named_issuer(url).await,
            };
            let auth =
                LoginSettings { grant, issuer: Some(issuer), client_id: Some(client_id), ..LoginSettings::default() };
            settings.auth = Some(Box::new(auth));
        }
        let endpoint = McpEndpoint::of_venue(settings, localhost(), None).unwrap().with_client_key(key);
        let servers = McpServers::new([VenueServer { endpoint: Arc::new(endpoint), is_shared: true }]);
        let servers = servers.with_public_url((scenario == "auth/basic-cimd").then_some(PUBLIC));
        let (mut venue, dir) = TestVenue::embedded(super::HUB_RULES).await;
        let inner = Arc::get_mut(&mut venue.venue).unwrap();
        inner.catalog = trellis::ops::catalog_with(true, localhost()).with_mcp(servers);
        let site = ClientSite::with_catalog(venue, dir);
        let operator = Caller { operator: true, ..boss(&site.venue.owner) };
        Self { site, operator }
    }

    /// Runs an operation, and again after a login for which its error asks.
    async fn ask(&self, operation: &str, input: Value) -> Result<Value, String> {
        loop {
            let asked = self.operate(operation, input.clone()).await;
            match asked {
                Err(error) if error.contains("run `trellis mcp login hub`") => self.log_in().await?,
                asked => return asked,
            }
        }
    }

    async fn operate(&self, operation: &str, input: Value) -> Result<Value, String> {
        let asked = operate(&self.site.venue.venue, &self.operator, operation, input).await;
        asked.map_err(|error| format!("{operation}: {error}"))
    }

    /// Logs in as a person does: opens the page, and brings back the answer.
    async fn log_in(&self) -> Result<(), String> {
        let page = self.operate("mcp/login", json!({"server": "hub", "redirect": REDIRECT})).await?;
        let answer = open_page(page["url"].as_str().unwrap()).await;
        let mut finish = json!({"server": "hub"});
        finish.as_object_mut().unwrap().extend(answer);
        self.operate("mcp/login-finish", finish).await.map(drop)
    }
}

/// Opens the page of a login server that asks nobody, and returns the answer that it sends to [`REDIRECT`].
pub async fn open_page(url: &str) -> serde_json::Map<String, Value> {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap();
    let response = client.get(url).send().await.unwrap();
    let target = reqwest::Url::parse(response.headers()["location"].to_str().unwrap()).unwrap();
    assert!(target.as_str().starts_with(REDIRECT), "{target}");
    target.query_pairs().map(|(key, value)| (key.into_owned(), Value::from(value.into_owned()))).collect()
}

/// Returns the login server that a server of the suite names.
async fn named_issuer(url: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let place = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp");
    let metadata: Value = client.get(place).send().await.unwrap().json().await.unwrap();
    metadata["authorization_servers"][0].as_str().unwrap().to_owned()
}

/// A policy for all ports of the host that the suite names.
fn localhost() -> HttpPolicy {
    let hosts = (1..=u16::MAX).map(|port| HostRule::parse(&format!("localhost:{port}")).unwrap()).collect();
    HttpPolicy { hosts, allow_private: true, timeout: Duration::from_secs(20), ..HttpPolicy::default() }
}
